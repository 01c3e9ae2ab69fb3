"""A workload that trains in microseconds, and ways for it to go wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from amp_lessons.course.bench.cases import BenchCase, measure
from amp_lessons.course.bench.workloads import Size


class TinyModel(nn.Module):
    """A linear layer that returns its loss as the models of transformers do."""

    def __init__(self, trouble):
        super().__init__()
        self.layer, self.trouble = nn.Linear(64, 64), trouble

    def forward(self, x):
        if type(self.layer.weight.data) is Tensor:  # predictions, on fake tensors, come through
            self.trouble()
        return SimpleNamespace(loss=self.layer(x).float().square().mean())


@dataclass(frozen=True)
class TinyWorkload:
    """Stands in for a `Workload`; ``trouble`` is called by each real forward pass."""

    trouble: Callable[[], None] = lambda: None
    largest_batch: int = 8
    name: str = "Tiny"
    claim: None = None

    @property
    def sizes(self):
        return dict.fromkeys(("full", "small"), Size(self.largest_batch, 64))

    def size(self, preset):
        return self.sizes[preset]

    def build(self, preset="full"):
        return TinyModel(self.trouble).train()

    def batch(self, model, batch, preset="full"):
        return {"x": torch.randn(batch, 64)}


def measured(precision="fp32", mode="eager", batch=8, device="cpu"):
    """Measure it, as the fixture ``tiny`` has put it into the catalogue."""
    case = BenchCase("Tiny", precision, mode, "small")
    return measure(case, batch=batch, device=torch.device(device), seconds=0.01)
