"""The operands of a linear layer's products: which tensor is cast how, how often, and along which side."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from amp_lessons.fp8.history import AmaxHistory
from amp_lessons.fp8.quantized import Quantized, quantize
from amp_lessons.fp8.recipes import Cast, Recipe, Role
from amp_lessons.fp8.recording import is_recording
from amp_lessons.fp8.transforms import random_hadamard


@dataclass(frozen=True)
class Operands:
    """Casts the tensors of one layer and one step.

    A cast whose blocks are as wide as high serves both products that need the tensor, and is made once: a
    history counts it once. Any other is made again along the other side, from the tensor itself, for casting
    what a first cast has left would round twice.
    """

    recipe: Recipe
    history: AmaxHistory | None
    generator: torch.Generator | None
    made: dict[tuple[Role, Cast], Quantized] = field(default_factory=dict)

    def for_backward(self) -> Operands:
        """Return these with what is cast so far; what one backward pass adds is not there in the next."""
        return replace(self, made=dict(self.made))

    def cast(
        self, role: Role, tensor: Tensor, cast: Cast, hadamard: int | None, *, transposed: bool
    ) -> Quantized:
        """Return a matrix, or its transpose, as this product wants it: what is summed over comes last."""
        if not cast.is_symmetric or hadamard:
            along = tensor.t() if transposed else tensor
            return self._quantize(role, random_hadamard(along, hadamard) if hadamard else along, cast)
        if (role, cast) not in self.made:
            self.made[role, cast] = self._quantize(role, tensor, cast)
        made = self.made[role, cast]
        return made.transposed() if transposed else made

    def _quantize(self, role: Role, tensor: Tensor, cast: Cast) -> Quantized:
        count = is_recording()
        if self.history is None or not tensor.numel():
            return quantize(tensor, cast, generator=self.generator, count=count)
        amax = self.history.amax_for(role, cast.element)
        made = quantize(tensor, cast, amax=amax, generator=self.generator, count=count)
        self.history.remember(role, made.amax)
        return made
