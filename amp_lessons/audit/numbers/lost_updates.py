"""Which share of the weights a step leaves as they were, although they have a gradient.

An update below half the spacing of a weight's format is rounded away. A few weights of each layer are
remembered across the step instead of all of them: a copy of the model would double its memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from amp_lessons.audit.recorder.local import local

_AT_MOST = 4096  # weights of one parameter: a share is then known to within 2 %, mostly better


class Remembered:
    """Some weights of each layer, as they were before a step."""

    def __init__(self, layers: Mapping[str, Iterable[Tensor]]) -> None:
        self._before = {
            layer: [_some(each) for each in parameters if each.grad is not None]
            for layer, parameters in layers.items()
        }

    def lost(self) -> dict[str, float]:
        """Return, by layer, the share of the weights with a gradient that are still what they were."""
        return {layer: share for layer, found in self._before.items() if (share := _share(found)) is not None}


_Some = tuple[Tensor, Tensor, Tensor]  # where, the weights there, and whether they have a gradient


def _some(parameter: Tensor) -> tuple[Tensor, _Some]:
    """Take weights at equal distances: no random number is drawn, so training draws its own."""
    weights = local(parameter).detach().reshape(-1)
    gradient = local(parameter.grad).detach().reshape(-1)  # type: ignore[arg-type]
    step = max(1, weights.numel() // _AT_MOST)
    where = torch.arange(0, weights.numel(), step, device=weights.device)[:_AT_MOST]
    return parameter, (where, weights[where].clone(), gradient[where] != 0)


def _share(found: list[tuple[Tensor, _Some]]) -> float | None:
    lost, asked = 0, 0
    for parameter, (where, before, has_gradient) in found:
        same = local(parameter).detach().reshape(-1)[where] == before
        lost += int((same & has_gradient).sum())
        asked += int(has_gradient.sum())
    return lost / asked if asked else None
