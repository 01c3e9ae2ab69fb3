"""Delayed scaling: the scale comes from the largest magnitudes of the steps before.

So a tensor is read once instead of twice, for its scale is known before it is. The price is a state, which
belongs into a checkpoint, and a scale that may be stale.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from amp_lessons.arguments import require_whole
from amp_lessons.formats import FloatFormat
from amp_lessons.fp8.recipes import ROLES, Role


class AmaxHistory(nn.Module):
    """The largest magnitudes of one layer's input, weight and gradient, for the last ``length`` steps.

    As in Transformer Engine: the scale comes from the largest of them, is 1 as long as there is none, and
    stays as it was where that is infinite or NaN. Buffers hold all of it; evaluation mode leaves it alone.
    """

    amax: Tensor
    in_force: Tensor

    def __init__(self, length: int = 1024) -> None:
        """Begin with nothing remembered. Raises TypeError or ValueError for a length below 1."""
        super().__init__()
        self.register_buffer("amax", torch.zeros(len(ROLES), require_whole(length, "length")))
        self.register_buffer("in_force", torch.zeros(len(ROLES)))

    def amax_for(self, role: Role, element: FloatFormat) -> Tensor:
        """Return the largest magnitude that the scale of the next cast is made of."""
        in_force = self.in_force[ROLES.index(role)]
        return torch.where(in_force > 0, in_force, element.max)

    def remember(self, role: Role, amax: Tensor) -> None:
        """Put the largest magnitude of a tensor in the place of the oldest one."""
        if not self.training:
            return
        row = ROLES.index(role)
        self.amax[row] = torch.cat([amax.detach().reshape(1).to(self.amax), self.amax[row, :-1]])
        largest = self.amax[row].amax()
        usable = largest.isfinite() & (largest > 0)
        self.in_force[row] = torch.where(usable, largest, self.in_force[row])
