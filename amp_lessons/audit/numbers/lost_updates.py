"""Which share of the weights a step leaves as they were, although they have a gradient.

An update below half the spacing of a weight's format is rounded away. A few weights of each layer are
remembered across the step instead of all of them: a copy of the model would double its memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from amp_lessons.audit.recorder.later import local

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
        return {layer: share for layer, found in self._before.items() if (share := _share(found)) is not None}


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
    kept = {name for state in optimizer.state.values() if isinstance(state, Mapping) for name in state}
    return any(word in str(name).lower() for name in named | kept for word in _WAYS_TO_MAKE_GOOD)


def _share(found: list[_Some]) -> float | None:
    lost, asked = 0, 0
    for parameter, where, before, has_gradient in found:
        same = _flat(parameter)[where] == before
        lost += int((same & has_gradient).sum())
        asked += int(has_gradient.sum())
    return lost / asked if asked else None


def _flat(tensor: Tensor) -> Tensor:
    part = local(tensor).detach()
    return (part.to_dense() if part.layout != torch.strided else part).reshape(-1)
