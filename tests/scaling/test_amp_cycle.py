"""The mixed precision step, one phase at a time, against the same step written out in plain PyTorch."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from amp_lessons.scaling import PHASES, AmpCycle, make_scaler

Batch = tuple[Tensor, Tensor]


def perceptron():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5))


def batches():
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(5, 6, generator=generator), torch.arange(5)) for _ in range(2)]


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.5)


def cycle_of(model, init_scale=1024.0, **options):
    scaler = make_scaler("cpu", init_scale=init_scale, growth_interval=2)
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


def test_two_cycles_train_exactly_as_the_loop_in_the_documentation_does():
    model = perceptron()
    reference = copy.deepcopy(model)
    optimizer, scaler = sgd(reference), torch.amp.GradScaler("cpu", init_scale=1024.0)
    losses = []
    for inputs, targets in batches():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = cross_entropy(reference(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    cycle = cycle_of(model)
    assert [cycle.advance_cycle()[-1].loss for _ in range(2)] == losses
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), reference.parameters(), strict=True))


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


def test_an_injected_overflow_is_found_and_the_step_skipped():
    model = perceptron()
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

    after = by_phase(cycle.advance_cycle())
    assert (after["check"].gradients_finite, after["step"].skipped) == (True, False)


def test_an_overflow_injected_too_late_waits_for_the_next_backward():
    cycle = cycle_of(perceptron())
    while cycle.phase != "unscale":
        cycle.advance()
    cycle.inject_overflow()
    assert [snapshot.skipped for snapshot in cycle.advance_cycle()][-1] is False
    assert cycle.advance_cycle()[-1].skipped is True


def test_a_real_overflow_needs_no_injection():
    seen = by_phase(cycle_of(perceptron(), init_scale=2.0**40).advance_cycle())
    assert (seen["check"].gradients_finite, seen["step"].skipped) == (False, True)
    assert seen["update"].scale == 2.0**39


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
    cycle = AmpCycle(model, iter(batches()), sgd(model), cross_entropy)
    cycle.advance_cycle()
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


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_on_a_gpu_the_overflow_is_skipped_too():
    model = perceptron().cuda()
    cycle = AmpCycle(model, batches(), sgd(model), cross_entropy)
    cycle.inject_overflow()
    assert cycle.advance_cycle()[-1].skipped is True
    seen = by_phase(cycle.advance_cycle())
    assert (seen["forward"].dtypes["output"], seen["step"].skipped) == (torch.float16, False)
