"""The bench itself: its reference gradients, its data, and what its spies see."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from amp_lessons.audit.recorder.stale import is_stale
from amp_lessons.exercises.containment import sandbox
from amp_lessons.exercises.train_with_amp.check import train_with_amp
from amp_lessons.exercises.training_loops import examine
from amp_lessons.exercises.training_loops.testbed import (
    Problem,
    fp32_loss_and_gradient,
    make_batches,
    make_model,
    run_loop,
)
from amp_lessons.exercises.watching.spying_there import spying
from amp_lessons.exercises.watching.tape_there import Call, Tape, device_type

PROBLEM = Problem(seed=1, dtype=torch.float16)
DEVICE = device_type()


@pytest.fixture
def session():
    with sandbox.contained(30.0) as session:
        yield session


def test_reference_gradient_equals_backward_in_float32():
    model = make_model(3, "cpu")
    inputs, targets = make_batches(PROBLEM, "cpu")[0]
    weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    loss = F.cross_entropy(model(inputs), targets) * 0.25
    loss.backward()
    expected = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    found_loss, found = fp32_loss_and_gradient(weights, (inputs, targets), 0.25)
    torch.testing.assert_close(found, expected)
    assert found_loss == pytest.approx(loss.item())


def test_reference_gradient_is_a_derivative():
    """By finite differences in float64, independently of autograd."""
    model = make_model(3, "cpu").double()
    inputs, targets = make_batches(PROBLEM, "cpu")[1]
    weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    direction = torch.randn(len(weights), generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def loss(step):
        torch.nn.utils.vector_to_parameters(weights + step * direction, model.parameters())
        with torch.no_grad():
            return F.cross_entropy(model(inputs.double()), targets)

    slope = (loss(1e-5) - loss(-1e-5)) / 2e-5
    gradient = fp32_loss_and_gradient(weights.float(), (inputs, targets), 1.0)[1].double()
    assert float(gradient @ direction) == pytest.approx(float(slope), rel=1e-3)


def test_seeds_decide_data_and_weights():
    first, again, other = (make_batches(replace(PROBLEM, seed=s), "cpu") for s in (1, 1, 2))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0][0], other[0][0])
    assert torch.equal(make_model(5, "cpu").head.weight, make_model(5, "cpu").head.weight)


def test_data_are_not_uniform():
    inputs = torch.cat([x for x, _ in make_batches(PROBLEM, "cpu")])
    sizes = inputs.norm(dim=1)
    assert sizes.max() > 4 * sizes.min()
    assert len({len(x) for x, _ in make_batches(PROBLEM, "cpu")}) > 1


def test_tiny_problem_loses_all_gradients_without_scaling():
    tiny = examine.STANDARD[0]
    inputs, targets = make_batches(tiny, "cpu")[0]
    model = make_model(tiny.seed + 1000, "cpu")
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(model(inputs), targets) * tiny.loss_weight
    loss.backward()
    zero_fraction = torch.cat([p.grad.reshape(-1) for p in model.parameters()]).eq(0).float().mean()
    assert zero_fraction > 0.9


def test_plain_problem_has_gradients_below_one_tenth():
    """So that clipping by a threshold of 0.1 or more, done right, changes nothing."""
    for index, batch in enumerate(make_batches(PROBLEM, "cpu")):
        weights = torch.cat(
            [p.detach().reshape(-1) for p in make_model(PROBLEM.seed + 1000, "cpu").parameters()]
        )
        _, gradient = fp32_loss_and_gradient(weights, batch, PROBLEM.loss_weight)
        assert 0.005 < gradient.norm() < 0.1, index


def test_a_run_is_written_down(session):
    run = run_loop(train_with_amp, PROBLEM)
    assert [step.batch for step in run.steps] == [0, 1, 2, 3, 4] * 2
    assert all(step.start_gradient == 65536.0 for step in run.steps)
    assert all(step.moved for step in run.steps)
    names = [call.name for call in run.steps[0].calls if not call.in_step]
    assert names == ["scale", "scaler.step", "update", "updated", "zero_grad"]
    assert [c.name for c in run.steps[0].calls if c.in_step] == [
        "unscale_",
        "unscaled",
        "optimizer.step",
        "stepped",
    ]


def test_running_twice_gives_the_same(session):
    first, second = run_loop(train_with_amp, PROBLEM), run_loop(train_with_amp, PROBLEM)
    assert torch.equal(first.end_weights, second.end_weights)
    assert first.outcome.value == second.outcome.value


def test_poisoned_batches_overflow_where_they_are_meant_to(session):
    run = run_loop(train_with_amp, examine.STANDARD[3])
    first, second = (step for step in run.steps[:5] if step.batch in (1, 3))
    assert first.loss.value != first.loss.value, "the forward pass of one overflows"
    assert second.loss.value < 1e6, "the loss of the other is finite"
    assert not first.moved
    assert not second.moved


def test_stale_weights_are_noticed():
    layer = torch.nn.Linear(4, 4)
    inputs = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype=torch.float16):
        before = layer(inputs)
        assert not is_stale(layer, inputs, before)
        with torch.no_grad():
            layer.weight.mul_(1.5)
        assert is_stale(layer, inputs, layer(inputs)), "the cache still holds the old weights"
        torch.clear_autocast_cache()
        assert not is_stale(layer, inputs, layer(inputs))


def test_spies_leave_every_class_as_it_was():
    owners = [torch.amp.GradScaler, torch.autocast, torch.optim.Optimizer, torch.nn.Module, torch.Tensor]
    before = [dict(vars(owner)) for owner in owners]
    during = []

    def fail_while_spying():
        with spying(Tape([torch.nn.Parameter(torch.zeros(1))], "cpu")):
            during.extend(dict(vars(owner)) for owner in owners)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_while_spying()
    assert during[0] != before[0]
    assert [dict(vars(owner)) for owner in owners] == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="cuda means cuda here")
def test_cuda_means_the_device_there_is():
    tape = Tape([torch.nn.Parameter(torch.zeros(1))], "cpu")
    with spying(tape):
        scaler = torch.cuda.amp.GradScaler()
        assert scaler.is_enabled()
        with torch.autocast("cuda"):
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float16
        with torch.cuda.amp.autocast(dtype=torch.bfloat16):
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
        assert torch.ones(1).cuda().device.type == "cpu"
        assert torch.nn.Linear(1, 1).to(torch.device("cuda:0")).weight.device.type == "cpu"
    assert tape.hard_coded == {"GradScaler", "autocast", "cuda", "to"}
    assert {"torch.cuda.amp.GradScaler", "torch.cuda.amp.autocast"} == tape.deprecated


def test_subclasses_and_early_imports_of_the_scaler_are_seen():
    class Own(torch.amp.GradScaler):
        pass

    early = torch.GradScaler
    parameter = torch.nn.Parameter(torch.ones(1))
    tape = Tape([parameter], "cpu")
    with spying(tape):
        for kind in (Own, early):
            kind("cpu").scale(parameter.sum()).backward()
    assert [event.name for event in tape.events if isinstance(event, Call)] == ["GradScaler", "scale"] * 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_checks_run_on_the_gpu(session):
    run = run_loop(train_with_amp, PROBLEM)
    assert DEVICE == "cuda"
    assert all(parameter.is_cuda for parameter in run.parameters)
