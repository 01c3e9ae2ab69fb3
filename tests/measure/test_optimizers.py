"""Optimizer bytes against the state of real optimizers after real steps."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import pytest
import torch
from torch import nn

from amp_lessons.measure import OptimizerBytes, measure_memory, optimizer_bytes, predict_memory

PARAMETERS = 24 * 16 + 16


def _model() -> nn.Module:
    return nn.Linear(24, 16)


@pytest.mark.parametrize(
    "factory",
    [
        torch.optim.AdamW,
        partial(torch.optim.AdamW, amsgrad=True),
        torch.optim.SGD,
        partial(torch.optim.SGD, momentum=0.9),
        torch.optim.RMSprop,
        torch.optim.Adagrad,
        torch.optim.NAdam,
    ],
)
def test_state_is_what_a_real_optimizer_holds(factory: object) -> None:
    model = _model()
    optimizer = factory(model.parameters())  # type: ignore[operator]
    model(torch.randn(3, 24)).sum().backward()
    optimizer.step()
    tensors = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
    on_cpu = optimizer_bytes(factory, model.parameters(), device_type="cpu")
    assert on_cpu.state == sum(tensor.nbytes for tensor in tensors)
    on_gpu = optimizer_bytes(factory, model.parameters())
    assert on_gpu.state == sum(tensor.nbytes for tensor in tensors if tensor.dim() > 0)


def test_adamw_takes_eight_bytes_per_parameter_and_four_in_passing() -> None:
    assert optimizer_bytes(torch.optim.AdamW, _model().parameters()) == OptimizerBytes(
        8 * PARAMETERS, 4 * PARAMETERS
    )
    halved = optimizer_bytes(torch.optim.AdamW, _model().bfloat16().parameters())
    assert halved == OptimizerBytes(4 * PARAMETERS, 2 * PARAMETERS)


@pytest.mark.parametrize("device_type", ["cpu", "cuda"])
def test_a_fused_optimizer_keeps_its_step_counts_on_the_device_and_needs_nothing_in_passing(
    device_type: str,
) -> None:
    fused = partial(torch.optim.AdamW, fused=True)
    model = _model()
    step_counts = 4 * len(list(model.parameters()))
    assert optimizer_bytes(fused, model.parameters(), device_type=device_type) == OptimizerBytes(
        8 * PARAMETERS + step_counts, 0
    )
    optimizer = fused(model.parameters())
    model(torch.randn(3, 24)).sum().backward()
    optimizer.step()
    tensors = [tensor for state in optimizer.state.values() for tensor in state.values()]
    assert sum(tensor.nbytes for tensor in tensors) == 8 * PARAMETERS + step_counts


def test_plain_sgd_keeps_nothing_and_frozen_parameters_cost_nothing() -> None:
    assert optimizer_bytes(torch.optim.SGD, _model().parameters()) == OptimizerBytes(0, 0)
    assert optimizer_bytes(torch.optim.AdamW, _model().requires_grad_(False).parameters()) == OptimizerBytes(
        0, 0
    )
    assert optimizer_bytes(None, _model().parameters()) == OptimizerBytes(0, 0)


def test_a_groups_own_choice_is_respected() -> None:
    one_by_one = partial(torch.optim.AdamW, foreach=False)
    model = nn.Sequential(*(nn.Linear(16, 16, bias=False) for _ in range(4)))
    together = optimizer_bytes(torch.optim.AdamW, model.parameters()).temporary
    assert optimizer_bytes(one_by_one, model.parameters()).temporary < together


@pytest.mark.parametrize("factory", [torch.optim.LBFGS, torch.optim.Adafactor])
def test_an_optimizer_that_needs_values_is_named(factory: object) -> None:
    with pytest.raises(ValueError, match="cannot step on tensors without data"):
        optimizer_bytes(factory, _model().parameters())


def test_something_that_makes_no_optimizer_is_named() -> None:
    with pytest.raises(ValueError, match=r"a torch\.optim\.Optimizer was expected"):
        optimizer_bytes(list, _model().parameters())  # type: ignore[arg-type]


def test_an_optimizer_of_other_parameters_is_refused_before_it_steps() -> None:
    model, other, x = _model(), _model(), torch.randn(3, 24)
    model(x).sum().backward()
    other(x).sum().backward()
    before = [p.detach().clone() for p in (*model.parameters(), *other.parameters())]

    def own(_: object) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=0.1)

    def both(parameters: Iterable[torch.Tensor]) -> torch.optim.Optimizer:
        return torch.optim.AdamW([*parameters, *other.parameters()], lr=0.1)

    for factory in (own, both):
        with pytest.raises(ValueError, match="to use those that it is given"):
            optimizer_bytes(factory, model.parameters())
        with pytest.raises(ValueError, match="to use those that it is given"):
            predict_memory(model, x, optimizer=factory)
    with pytest.raises(ValueError, match="to use those that it is given"):
        measure_memory(model, x, optimizer=both)
    after = [*model.parameters(), *other.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))


def test_a_factory_may_sort_what_it_is_given_into_groups() -> None:
    def grouped(parameters: Iterable[torch.Tensor]) -> torch.optim.Optimizer:
        weight, bias = parameters
        return torch.optim.AdamW([{"params": [weight]}, {"params": [bias], "weight_decay": 0.0}])

    assert optimizer_bytes(grouped, _model().parameters()).state == 8 * PARAMETERS
