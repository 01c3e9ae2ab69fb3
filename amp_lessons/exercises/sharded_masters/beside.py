"""The same training in one process: all masters in one fp32 tensor, every rank's gradient computed here."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn

LossFn = Callable[[nn.Module, Tensor, Tensor], Tensor]


class Beside:
    """Weights and mean gradient as they should be: flat fp32 tensors in the order of the parameters."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.masters = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        self.of_ranks: list[Tensor] = []
        self._model = copy.deepcopy(model).to(dtype)

    @property
    def gradient(self) -> Tensor:
        """The mean of the ranks' gradients."""
        return torch.stack(self.of_ranks).double().mean(0).float()

    @property
    def share(self) -> int:
        """How many weights each rank keeps, padding included."""
        return -(-len(self.masters) // dist.get_world_size())

    def mine(self, flat: Tensor) -> Tensor:
        """Return this rank's share of a flat tensor, without padding."""
        return flat[dist.get_rank() * self.share :][: self.share]

    def compute(self, batches: list[tuple[Tensor, Tensor]], loss_fn: LossFn) -> None:
        """Compute every rank's gradient in ``dtype``, at the masters rounded to it."""
        self.of_ranks = []
        nn.utils.vector_to_parameters(self.masters.to(self.dtype), self._model.parameters())
        for inputs, targets in batches:
            self._model.zero_grad()
            loss_fn(self._model, inputs.to(self.dtype), targets).backward()
            gradients = [p.grad for p in self._model.parameters() if p.grad is not None]
            self.of_ranks.append(torch.cat([each.float().flatten() for each in gradients]))

    def step(self, rate: float) -> None:
        """Take a step of plain SGD."""
        self.masters = self.masters - rate * self.gradient
