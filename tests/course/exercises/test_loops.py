"""The loops' bed: its reference gradients and its data, what a worker writes down, and what a forger gets."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from amp_lessons import autocast
from amp_lessons._base.worker.client import Worker, pickled
from amp_lessons._base.worker.host import host
from amp_lessons.audit.findings import Finding
from amp_lessons.course.exercises import bed, loops, loops_there
from amp_lessons.course.exercises.attempt_table import Table
from amp_lessons.course.exercises.heal_missed_warm_up import company_there
from amp_lessons.course.exercises.heal_missed_warm_up.solution import train_missed_warm_up
from amp_lessons.course.exercises.loop_runs import STANDARD, Problem, Run
from amp_lessons.course.exercises.train_with_amp.solution import train_with_amp

PLAIN = Problem(seed=1, dtype=torch.float16)


@pytest.fixture
def gradient():
    weights = PLAIN.drawn[0]
    return weights, PLAIN.truth(weights, 1)[1]


def loss_in_double(weights):
    hidden = F.linear(PLAIN.drawn[1][1][0].double(), weights[:96].reshape(16, 6), weights[96:112])
    logits = F.linear(F.silu(hidden), weights[112:192].reshape(5, 16), weights[192:])
    return F.cross_entropy(logits, PLAIN.drawn[1][1][1]) * PLAIN.loss_weight


def test_reference_gradient_is_a_derivative(gradient):
    """By finite differences in float64, independently of autograd."""
    weights, found = gradient
    draw = torch.Generator().manual_seed(0)
    direction = torch.randn(len(weights), generator=draw, dtype=torch.float64)
    slope = (
        loss_in_double(weights.double() + 1e-5 * direction)
        - loss_in_double(weights.double() - 1e-5 * direction)
    ) / 2e-5
    assert float(found.double() @ direction) == pytest.approx(float(slope), rel=1e-3)


def test_the_tiny_problem_loses_all_gradients_without_scaling():
    tiny = STANDARD[0]
    assert tiny.in_half(tiny.drawn[0], 0, 1.0).eq(0).float().mean() > 0.9
    assert tiny.in_half(tiny.drawn[0], 0, 65536.0).eq(0).float().mean() < 0.5


@pytest.mark.parametrize("shift", range(0, 500, 50))
def test_clipping_by_a_tenth_changes_nothing_of_the_plain_problem(shift):
    problem = PLAIN.drawn_anew(shift)
    for batch in range(len(problem.batch_sizes)):
        assert problem.truth(problem.drawn[0], batch)[1].norm() < 0.1


@pytest.mark.parametrize("shift", range(0, 500, 50))
def test_a_limit_is_above_some_gradients_and_below_others(shift):
    problem = replace(PLAIN, max_norm=0.03).drawn_anew(shift)
    norms = [
        float(problem.truth(problem.drawn[0], batch)[1].norm()) for batch in range(len(problem.batch_sizes))
    ]
    assert min(norms) < problem.max_norm < max(norms)


@pytest.mark.parametrize("shift", range(0, 500, 50))
def test_one_poisoned_batch_overflows_by_its_loss_and_the_other_by_its_gradients_alone(shift):
    problem = STANDARD[3].drawn_anew(shift)
    with autocast.cuda_rules():
        _, by_loss, _, alone, *_ = Run(problem, loops_there.train(train_with_amp, problem.given((), {}))).seen
    assert not math.isfinite(by_loss.loss)
    assert math.isfinite(alone.loss)
    assert alone.left.isinf().any()
    assert not alone.left.isnan().any()


def test_nothing_is_hidden_where_gradients_of_a_loss_that_is_inf_are_numbers_by_themselves():
    problem = replace(STANDARD[3], seed=186)  # as it comes, of 300 one of the six on which it happens
    begins_low = Table("train_with_amp").changed(("GradScaler(", "GradScaler(init_scale=64.0, device="))
    with autocast.cuda_rules():
        run = Run(problem, loops_there.train(begins_low, problem.given((), {})))
        strange = [each for each in run.windows if each.last.loss == math.inf and each.left.isfinite().all()]
        assert strange
        assert not any(each.hidden for each in strange)
        assert loops.mistakes(run) == []


def forged(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    """Train in fp32, on gradients that are rounded at the end."""
    history = []
    for _ in range(epochs):
        total = 0.0
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(inputs), targets)
            loss.backward()
            for parameter in model.parameters():
                parameter.grad = parameter.grad.half().float()
            optimizer.step()
            total += loss.item()
        history.append(total / len(loader))
    return history


def test_a_loop_in_fp32_whose_log_claims_autocast_is_refused_by_the_rounding():
    """What a worker says is believed here, but for the numbers, as somebody may forge it there."""
    told = loops_there.train(forged, PLAIN.given((), {}))
    for entry in told["seen"]:
        entry.update(autocast=torch.float16, begun=[65536.0], loss_autocast=True)
    mistakes = loops.mistakes(Run(PLAIN, told))
    assert [each.code for each in mistakes] == ["no_autocast"]
    assert "of the rounding" in mistakes[0].message
    assert loops.mistakes(Run(PLAIN, loops_there.train(train_with_amp, PLAIN.given((), {})))) == []


def test_a_nearly_learned_batch_whose_gradient_16_bits_round_away_is_not_drawn():
    """The loss of its last batch is 0.0005, and its gradient was 2 % off where 1 % is tolerated."""
    shift = int(torch.randint(2**30, (), generator=torch.Generator().manual_seed(1950375645)))
    problem = STANDARD[4].drawn_anew(shift)
    run = Run(problem, loops_there.train(train_with_amp, problem.given((), {})))
    off = max(
        float((window.applied - window.gradient).norm() / window.gradient.norm()) for window in run.windows
    )
    assert off < problem.tolerance
    assert loops.mistakes(run) == []


@pytest.mark.parametrize("problem", STANDARD, ids=lambda each: str(each.seed))
def test_training_beside_the_worker_puts_back_what_it_replaces(problem):
    before = dict(vars(torch.amp.GradScaler))
    company_there.train(train_missed_warm_up, problem.given((), {}))
    assert dict(vars(torch.amp.GradScaler)) == before


def test_what_the_audit_names_in_a_right_loop_is_a_remark(monkeypatch):
    named = [["odd", "it is odd", "make it even", "line 3"], ["always_overflows", "a symptom", "", ""]]
    monkeypatch.setattr(loops, "audited", lambda worker, given, train: named)
    with Worker(host(bed.PRELOAD), {"pickle": pickled(train_with_amp)}) as worker:
        said = list(loops.Bench(train_with_amp).judge(worker, torch.Generator().manual_seed(1)))
    findings = [each for each in said if isinstance(each, Finding)]
    assert {each.kind for each in findings} == {"passed", "note"}
    assert [each.message for each in findings if each.kind == "note"] == ["it is odd [line 3]"]
