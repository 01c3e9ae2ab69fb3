"""The mixed precision step, one phase at a time, and many such steps, against scalers read by hand."""

import copy
import math
from itertools import cycle as endless
from itertools import islice

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from amp_lessons.scaling import PHASES, AmpCycle, ScalerTimeline, make_scaler
from tests.cuda import CUDA


def perceptron():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5))


def batches():
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(5, 6, generator=generator), torch.arange(5)) for _ in range(3)]


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.5)


def cycle_of(model, **options):
    scaler = make_scaler(next(model.parameters()).device.type, init_scale=1024.0, growth_interval=2)
    return AmpCycle(model, batches(), sgd(model), cross_entropy, scaler=scaler, **options)


def by_phase(snapshots):
    return {snapshot.phase: snapshot for snapshot in snapshots}


def first_biases(model):
    return tuple(model[-1].bias[:4].tolist())


def test_phases_follow_each_other_round_and_round():
    cycle = cycle_of(perceptron())
    announced, performed = [], []
    for _ in range(2 * len(PHASES)):
        announced.append(cycle.phase)
        snapshot = cycle.advance()
        performed.append((snapshot.cycle, snapshot.phase))
    assert announced == list(PHASES) * 2
    assert performed == [(k, phase) for k in range(2) for phase in PHASES]


def test_each_phase_shows_what_it_did():
    model = perceptron()
    before = first_biases(model)
    seen = by_phase(cycle_of(model).advance_cycle())

    forward = seen["forward"]
    others = dict.fromkeys(("weight", "input", "loss"), torch.float32)
    assert forward.dtypes == {**others, "output": torch.float16}
    assert forward.loss is not None
    assert (forward.scaled_loss, forward.gradients, forward.gradients_finite, forward.skipped) == (None,) * 4
    assert forward.watched == "2.bias"

    assert seen["scale"].scaled_loss == forward.loss * 1024.0

    scaled, unscaled = seen["backward"].gradients, seen["unscale"].gradients
    assert seen["backward"].dtypes["gradient"] == torch.float32
    assert scaled is not None
    assert any(scaled)
    assert unscaled == tuple(g / 1024.0 for g in scaled)

    assert seen["unscale"].gradients_finite is None
    assert seen["check"].gradients_finite is True

    assert seen["check"].weights == before
    assert seen["step"].weights == first_biases(model)
    assert seen["step"].weights == pytest.approx([w - 0.5 * g for w, g in zip(before, unscaled, strict=True)])
    assert (seen["check"].skipped, seen["step"].skipped) == (None, False)

    assert (seen["step"].growth_tracker, seen["update"].growth_tracker) == (0, 1)
    assert seen["update"].scale == 1024.0


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_an_injected_overflow_is_found_and_the_step_skipped(device):
    model = perceptron().to(device)
    before = [p.clone() for p in model.parameters()]
    cycle = cycle_of(model)
    cycle.inject_overflow()
    assert cycle.overflow_is_due
    seen = by_phase(cycle.advance_cycle())
    assert not cycle.overflow_is_due
    assert seen["backward"].gradients is not None
    assert seen["backward"].gradients[0] == math.inf
    assert (seen["check"].gradients_finite, seen["step"].skipped) == (False, True)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))
    assert (seen["step"].scale, seen["update"].scale) == (1024.0, 512.0)


def test_an_overflow_injected_too_late_waits_for_the_next_backward():
    cycle = cycle_of(perceptron())
    while cycle.phase != "unscale":
        cycle.advance()
    cycle.inject_overflow()
    assert [snapshot.skipped for snapshot in cycle.advance_cycle()][-1] is False
    assert cycle.advance_cycle()[-1].skipped is True


def test_the_overflow_goes_where_there_is_a_gradient():
    model = perceptron()
    model.register_module("unused", nn.Linear(2, 2))
    model.forward = lambda x: model[2](model[1](model[0](x)))
    cycle = cycle_of(model)
    cycle.inject_overflow()
    seen = by_phase(cycle.advance_cycle())
    assert seen["backward"].gradients is None  # the watched parameter is the last one, which is unused
    assert seen["step"].skipped is True


class Rows(nn.Module):
    """Rows of a table as logits; the table is the only parameter, so it is the watched one."""

    def __init__(self, sparse):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(10, 5, sparse=sparse)

    def forward(self, x):
        return self.table(x).mean(1)


def cycle_of_rows(sparse):
    model = Rows(sparse)
    looked_up = torch.tensor([[0, 7], [5, 3], [2, 4]])  # each once: SGD rounds after each part of a row
    return AmpCycle(model, [(looked_up, torch.arange(3))], sgd(model), cross_entropy)


def test_sparse_gradients_are_walked_through_as_dense_ones_are():
    sparse, dense = (cycle_of_rows(kind) for kind in (True, False))
    for _ in range(2):
        assert sparse.advance_cycle() == dense.advance_cycle()  # row 0 comes first in both


def test_a_sparse_gradient_overflows_too():
    cycle = cycle_of_rows(sparse=True)
    cycle.inject_overflow()
    seen = by_phase(cycle.advance_cycle())
    assert seen["backward"].gradients is not None
    assert seen["backward"].gradients[0] == math.inf
    assert (seen["check"].gradients_finite, seen["step"].skipped) == (False, True)
    assert seen["update"].weights == seen["forward"].weights


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_other_dtypes(dtype):
    seen = by_phase(cycle_of(perceptron(), dtype=dtype).advance_cycle())
    assert seen["forward"].dtypes["output"] == dtype
    assert seen["step"].skipped is False


def test_the_default_scaler_is_pytorchs():
    model = perceptron()
    cycle = AmpCycle(model, batches(), sgd(model), cross_entropy)
    assert cycle.scaler.state_dict() == torch.amp.GradScaler("cpu").state_dict()


def test_no_hook_stays_on_the_optimizer():
    model = perceptron()
    optimizer = sgd(model)
    AmpCycle(model, batches(), optimizer, cross_entropy).advance_cycle()
    assert not optimizer._optimizer_step_post_hooks


def test_a_loader_that_runs_dry_is_explained():
    model = perceptron()
    cycle = AmpCycle(model, iter(batches()[:1]), sgd(model), cross_entropy)
    cycle.advance_cycle()
    with pytest.raises(ValueError, match="no batch"):
        cycle.advance()
    with pytest.raises(ValueError, match="no batch"):
        AmpCycle(model, [], sgd(model), cross_entropy).advance()


def test_an_error_in_the_forward_pass_leaves_the_phase_where_it_was():
    model = perceptron()
    wrong = [(torch.ones(5, 7), torch.arange(5))]
    cycle = AmpCycle(model, wrong, sgd(model), cross_entropy)
    with pytest.raises(RuntimeError):
        cycle.advance()
    assert cycle.phase == "forward"
    assert not torch.is_autocast_enabled("cpu")


def test_what_cannot_work_is_refused_at_once():
    model = perceptron()
    with pytest.raises(TypeError, match=r"torch\.optim\.Optimizer"):
        AmpCycle(model, batches(), model.parameters(), cross_entropy)
    fused = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    with pytest.raises(ValueError, match="fused"):
        AmpCycle(model, batches(), fused, cross_entropy)
    off = torch.amp.GradScaler("cpu", enabled=False)
    with pytest.raises(ValueError, match="disabled"):
        AmpCycle(model, batches(), sgd(model), cross_entropy, scaler=off)
    with pytest.raises(TypeError, match="GradScaler"):
        AmpCycle(model, batches(), sgd(model), cross_entropy, scaler=1024.0)
    with pytest.raises(ValueError, match="autocast runs in"):
        AmpCycle(model, batches(), sgd(model), cross_entropy, dtype=torch.float64)
    with pytest.raises(ValueError, match="no parameter"):
        AmpCycle(nn.ReLU(), batches(), sgd(model), cross_entropy)


@pytest.mark.parametrize(
    ("knobs", "error", "message"),
    [
        ({"init_scale": 0.0}, ValueError, "init_scale must be positive"),
        ({"growth_factor": 1.0}, ValueError, "growth_factor must be above 1"),
        ({"backoff_factor": 1.0}, ValueError, "backoff_factor must lie between 0 and 1"),
        ({"backoff_factor": 0.0}, ValueError, "backoff_factor must be positive"),
        ({"growth_interval": 0}, ValueError, "growth_interval is a whole number of at least 1"),
    ],
)
def test_an_impossible_knob_is_explained(knobs, error, message):
    with pytest.raises(error, match=message):
        make_scaler("cpu", **knobs)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_scaler_for_a_missing_gpu_is_refused():
    with pytest.raises(RuntimeError, match="does nothing without a GPU"):
        make_scaler("cuda")


# --- the life of a loss scale: many such steps, against a scaler run beside them


def record(model=None, **options):
    model = perceptron() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return ScalerTimeline.record(model, batches(), optimizer, cross_entropy, **options)


def test_agrees_with_a_scaler_that_is_read_by_hand():
    model = perceptron()
    reference = copy.deepcopy(model)
    knobs = {"init_scale": 2.0**20, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 3}
    timeline = record(model, steps=14, **knobs)

    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", **knobs)
    for step, (inputs, targets) in zip(timeline.steps, islice(endless(batches()), 14), strict=True):
        before, weights = scaler.get_scale(), reference[0].weight.clone()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = cross_entropy(reference(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        assert (step.loss, step.scale, step.next_scale) == (loss.item(), before, scaler.get_scale())
        assert step.growth_tracker == scaler.state_dict()["_growth_tracker"]
        assert step.skipped == torch.equal(reference[0].weight, weights)
        assert step.gradients_finite != step.skipped
    assert {step.skipped for step in timeline.steps} == {True, False}  # both happened
    assert any(step.next_scale > step.scale for step in timeline.steps)


def test_an_injected_overflow_skips_that_step_halves_the_scale_and_restarts_the_count():
    timeline = record(steps=8, init_scale=1024.0, growth_interval=3, overflow_at=[4])
    assert timeline.skipped == (4,)
    assert timeline.scales == (1024, 1024, 1024, 2048, 2048, 1024, 1024, 1024)
    assert [step.growth_tracker for step in timeline.steps] == [1, 2, 0, 1, 0, 1, 2, 0]
    assert [step.gradients_finite for step in timeline.steps] == [k != 4 for k in range(8)]
    assert timeline.steps[-1].next_scale == 2048
    assert (timeline.growth_interval, timeline.grown) == (3, (2, 7))


def test_the_scale_has_no_floor():
    timeline = record(steps=6, init_scale=4.0, overflow_at=range(6))
    assert timeline.steps[-1].next_scale == 0.0625
    assert len(timeline.skipped) == 6


def test_steps_can_be_taken_one_by_one():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    timeline = ScalerTimeline(model, batches(), optimizer, cross_entropy, init_scale=8.0)
    assert timeline.steps == ()
    assert timeline.advance().skipped is False
    assert timeline.advance(overflow=True).skipped is True
    assert timeline.advance().scale == 4.0
    assert [step.step for step in timeline.steps] == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps is a whole number"),
        ({"steps": 3, "overflow_at": [3]}, "overflow_at names steps from 0 to 2"),
    ],
)
def test_impossible_options_are_explained(options, message):
    with pytest.raises(ValueError, match=message):
        record(**options)


def test_one_number_is_no_collection_of_steps():
    with pytest.raises(TypeError, match=r"overflow_at is a collection of steps, such as \[3\], not 1"):
        record(steps=2, overflow_at=1)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_mode_of_the_caller_makes_no_difference(mode):
    model, expected = perceptron(), record(steps=3, growth_interval=2)
    with mode():
        assert record(model, steps=3, growth_interval=2).steps == expected.steps  # its batches are made here
        assert not torch.is_grad_enabled()
        assert torch.is_inference_mode_enabled() == (mode is torch.inference_mode)


def test_a_model_made_under_inference_mode_is_named():
    with torch.inference_mode():
        model = perceptron()
    with pytest.raises(ValueError, match=r"made under torch\.inference_mode"):
        record(model, steps=1)
