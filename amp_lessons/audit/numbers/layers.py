"""One layer at one step: its gradients in the format used and in others, its dtypes, the updates it lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from amp_lessons.audit.recorder.later import local
from amp_lessons.audit.seen import LayerStep
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.scaling.counts import censuses

# what a cast of the gradients would be to, where training does not use it
FORMATS: Mapping[str, torch.dtype] = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8_e5m2": torch.float8_e5m2,
    "fp8_e4m3": torch.float8_e4m3fn,
}


def layer_step(
    parameters: Sequence[Tensor], step: int, carried: float, loss_scale: float, used: torch.dtype | None
) -> Callable[[], LayerStep] | None:
    """Look at the gradients of one layer, which still carry the scale ``carried``; None without any.

    What is returned says what was seen, and waits for it where they lie on a device. ``used`` is the dtype
    of autocast, in which the gradients were computed at ``loss_scale``. At most one layer's gradients are
    copied, and only where they are still scaled.
    """
    gradients = [_dense(p.grad) for p in parameters if p.grad is not None]
    if not gradients:
        return None
    if carried != 1.0:
        gradients = [each.float() / carried for each in gradients]
    wanted = [(dtype, 1.0) for dtype in FORMATS.values()]
    in_use = used if used in FORMATS.values() and 0 < loss_scale < math.inf else None
    if in_use is not None and loss_scale != 1.0:
        wanted.append((in_use, loss_scale))
    counted = censuses(gradients, wanted, norms=True)

    def seen() -> LayerStep:
        found = counted()
        one = found[0]
        return LayerStep(
            step=step,
            census=next((each for each in reversed(found) if each.dtype == in_use), None),
            counterfactual=dict(zip(FORMATS, found, strict=False)),
            norm=one.norm or 0.0,
            zero_fraction=one.zero / one.total if one.total else 0.0,
        )

    return seen


def _dense(tensor: Tensor) -> Tensor:
    here = local(tensor).detach()
    return here.to_dense() if here.layout != torch.strided else here


def state_of(optimizer: torch.optim.Optimizer) -> Mapping[Any, Any]:
    """Return an optimizer's state by parameter; what a scaler steps need not be of PyTorch's class."""
    return getattr(optimizer, "state", {})


def dtypes_of(
    parameters: Mapping[str, Tensor], optimizers: Sequence[torch.optim.Optimizer]
) -> Iterator[tuple[str, str]]:
    """Name the dtypes of a layer's parameters, of their gradients and of the optimizers' state."""
    for name, parameter in parameters.items():
        yield name, dtype_name(parameter.dtype)
        if parameter.grad is not None:
            yield f"{name}.gradient", dtype_name(parameter.grad.dtype)
        for optimizer in optimizers:
            for key, value in state_of(optimizer).get(parameter, {}).items():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    yield f"optimizer.{key}", dtype_name(value.dtype)


_WAYS_TO_MAKE_GOOD = ("kahan", "compensat", "stochastic")
_AT_MOST = 4096  # weights of one parameter: a share is then known to within 2 %, mostly better


class Remembered:
    """Some weights of each layer, as they were before a step.

    Gradients are looked at then, too; those that a closure computes are not there before ``closure_is_over``.
    """

    def __init__(self, layers: Mapping[str, Iterable[Tensor]]) -> None:
        self._weights = {layer: [_some(each) for each in parameters] for layer, parameters in layers.items()}
        self._before: dict[str, list[_Some]] = {}
        self.closure_is_over()

    def closure_is_over(self) -> None:
        """Look at the gradients again."""
        self._before = {
            layer: [
                (p, where, weights, _flat(p.grad)[where] != 0)
                for p, where, weights in found
                if p.grad is not None
            ]
            for layer, found in self._weights.items()
        }

    def lost(self) -> dict[str, float]:
        """Return, by layer, the share of the weights with a gradient that are still what they were."""
        counted = {layer: [*map(_count_lost, found)] for layer, found in self._before.items()}
        numbers = {layer: [each.tolist() for each in found] for layer, found in counted.items()}
        sums = {layer: [sum(each) for each in zip(*pairs, strict=True)] for layer, pairs in numbers.items()}
        return {layer: both[0] / both[1] for layer, both in sums.items() if both and both[1]}


_Some = tuple[Tensor, Tensor, Tensor, Tensor]  # of which, where, weights there, whether they have a gradient


def _some(parameter: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Take weights at equal distances: no random number is drawn, so training draws its own."""
    weights = _flat(parameter)
    step = max(1, weights.numel() // _AT_MOST)
    where = torch.arange(0, weights.numel(), step, device=weights.device)[:_AT_MOST]
    return parameter, where, weights[where].clone()


def makes_good(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimizer says that it keeps what rounding cuts off, or rounds at random.

    It says so in the names of its options and of its state, as torchao's and optimi's do: then a weight that
    stays as it was will move some time.
    """
    options = [vars(optimizer), *optimizer.param_groups]
    named = {
        name for each in options for name, value in each.items() if value is not None and value is not False
    }
    states = (state for state in state_of(optimizer).values() if isinstance(state, Mapping))
    kept = {name for state in states for name in state}
    return any(word in str(name).lower() for name in named | kept for word in _WAYS_TO_MAKE_GOOD)


def _count_lost(some: _Some) -> Tensor:
    """Count weights that are still what they were, though they have a gradient, and those that have one."""
    parameter, where, before, has_gradient = some
    same = _flat(parameter)[where] == before
    return torch.stack([same & has_gradient, has_gradient]).sum(1)


def _flat(tensor: Tensor) -> Tensor:
    return _dense(tensor).reshape(-1)
