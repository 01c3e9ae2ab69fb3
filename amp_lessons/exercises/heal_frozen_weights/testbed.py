"""A model whose gains lie where bf16 is coarse, and what fp32 makes of the same training."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.exercises.watching.tape import device_type

EPOCHS, LR = 4, 0.02  # no step of a gain reaches half a spacing of bf16 at 1; all of them together, ten
_BATCHES, _BATCH = 30, 16
_HIDDEN = 64


@dataclass
class Problem:
    """A model in fp32, batches of inputs (batch, 8) and labels, all drawn from one seed."""

    model: nn.Module
    loader: list[tuple[Tensor, Tensor]]

    def start(self) -> dict[str, Tensor]:
        """Copy the parameters, in fp32."""
        return {name: each.detach().float().clone() for name, each in self.model.named_parameters()}


def problem(seed: int) -> Problem:
    """Make a classifier with a layer norm, whose gains begin at 1, and data that another one labels."""
    draw = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    layers = nn.Linear(8, _HIDDEN), nn.LayerNorm(_HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 4)
    device = device_type()
    inputs = torch.randn(_BATCHES * _BATCH, 8, generator=draw)
    labels = (inputs @ torch.randn(8, 4, generator=draw)).argmax(1)
    pairs = zip(inputs.to(device).split(_BATCH), labels.to(device).split(_BATCH), strict=True)
    return Problem(nn.Sequential(*layers).to(device), list(pairs))


def in_fp32(problem: Problem) -> tuple[dict[str, Tensor], list[float]]:
    """Train a copy in fp32 by plain SGD; return how far each parameter came, and the losses."""
    model, start, history = copy.deepcopy(problem.model), problem.start(), []
    for _ in range(EPOCHS):
        losses = []
        for inputs, labels in problem.loader:
            loss = F.cross_entropy(model(inputs), labels)
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                    parameter.sub_(LR * gradient)
            losses.append(loss.item())
        history.append(sum(losses) / len(losses))
    return {name: each.detach() - start[name] for name, each in model.named_parameters()}, history
