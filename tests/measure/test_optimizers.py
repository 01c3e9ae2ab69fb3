"""Optimizer bytes against the state of real optimizers after real steps."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from amp_lessons.measure import OptimizerBytes, measure_memory, optimizer_bytes, predict_memory

PARAMETERS = 24 * 16 + 16
AdamW, SGD = torch.optim.AdamW, torch.optim.SGD
FUSED = partial(AdamW, fused=True)


def _model():
    return nn.Linear(24, 16)


@pytest.mark.parametrize(
    "factory",
    [
        *(AdamW, FUSED, partial(AdamW, amsgrad=True), SGD, partial(SGD, momentum=0.9)),
        *(torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.NAdam),
    ],
)
def test_state_is_what_a_real_optimizer_holds(factory):
    model = _model()
    optimizer = factory(model.parameters())
    model(torch.randn(3, 24)).sum().backward()
    optimizer.step()
    tensors = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
    on_cpu = optimizer_bytes(factory, model.parameters(), device_type="cpu")
    assert on_cpu.state == sum(tensor.nbytes for tensor in tensors)
    on_gpu = optimizer_bytes(factory, model.parameters())
    # a fused one keeps its step counts on the device
    assert on_gpu.state == sum(tensor.nbytes for tensor in tensors if tensor.dim() > 0 or factory is FUSED)


def test_bytes_kept_and_in_passing_by_hand():
    parameters = list(_model().parameters())
    assert optimizer_bytes(AdamW, parameters) == OptimizerBytes(8 * PARAMETERS, 4 * PARAMETERS)
    halved = optimizer_bytes(AdamW, _model().bfloat16().parameters())
    assert halved == OptimizerBytes(4 * PARAMETERS, 2 * PARAMETERS)
    with_step_counts = OptimizerBytes(8 * PARAMETERS + 4 * 2, 0)
    assert optimizer_bytes(FUSED, parameters) == with_step_counts
    assert optimizer_bytes(FUSED, parameters, device_type="cpu") == with_step_counts
    frozen = _model().requires_grad_(False).parameters()
    for factory, given in ((SGD, parameters), (None, parameters), (AdamW, frozen)):
        assert optimizer_bytes(factory, given) == OptimizerBytes(0, 0)


def test_a_groups_own_choice_is_respected():
    one_by_one = partial(AdamW, foreach=False)
    model = nn.Sequential(*(nn.Linear(16, 16, bias=False) for _ in range(4)))
    together = optimizer_bytes(AdamW, model.parameters()).temporary
    assert optimizer_bytes(one_by_one, model.parameters()).temporary < together


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (torch.optim.LBFGS, "cannot step on tensors without data"),
        (torch.optim.Adafactor, "cannot step on tensors without data"),
        (list, r"a torch\.optim\.Optimizer was expected"),
    ],
)
def test_what_needs_values_and_what_makes_no_optimizer_is_named(factory, words):
    with pytest.raises(ValueError, match=words):
        optimizer_bytes(factory, _model().parameters())


def test_an_optimizer_of_other_parameters_is_refused_before_it_steps():
    model, other, x = _model(), _model(), torch.randn(3, 24)
    model(x).sum().backward()
    other(x).sum().backward()
    held = [*model.parameters(), *other.parameters()]
    before = [each.detach().clone() for each in held]

    def own(_):
        return AdamW(model.parameters(), lr=0.1)

    def both(parameters):
        return AdamW([*parameters, *other.parameters()], lr=0.1)

    for call in (
        *(partial(optimizer_bytes, factory, model.parameters()) for factory in (own, both)),
        *(partial(predict_memory, model, x, optimizer=factory) for factory in (own, both)),
        partial(measure_memory, model, x, optimizer=both),
    ):
        with pytest.raises(ValueError, match="to use those that it is given"):
            call()
    assert all(torch.equal(a, b) for a, b in zip(held, before, strict=True))


def test_a_factory_may_sort_what_it_is_given_into_groups():
    def grouped(parameters):
        weight, bias = parameters
        return AdamW([{"params": [weight]}, {"params": [bias], "weight_decay": 0.0}])

    assert optimizer_bytes(grouped, _model().parameters()).state == 8 * PARAMETERS
