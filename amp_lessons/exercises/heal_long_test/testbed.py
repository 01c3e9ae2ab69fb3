"""Models in 16 bits, and loaders of small batches, with what is right of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.exercises.watching.tape import device_type
from amp_lessons.formats.dtypes import dtype_name

_FEATURES, _CLASSES = 8, 5
_SHARE_MISLED = 0.1  # of the samples: so many have another label than the model says


@dataclass(frozen=True)
class Problem:
    """A model in 16 bits and ``samples`` samples, in batches of up to ``batch``."""

    dtype: torch.dtype
    samples: int
    batch: int
    model: nn.Module
    loader: list[tuple[Tensor, Tensor]]

    @property
    def what(self) -> str:
        """How to tell this problem from the others."""
        batches = f"batches of {self.batch}" if self.batch > 1 else "batches of one"
        return f"{self.samples:,} samples in {batches} and {dtype_name(self.dtype)}"

    @property
    def right(self) -> tuple[float, float]:
        """Return mean loss and accuracy of the model's 16-bit logits, summed in fp64."""
        inputs, labels = (torch.cat(each) for each in zip(*self.loader, strict=True))
        with torch.no_grad():
            logits = self.model(inputs).double()
        return float(F.cross_entropy(logits, labels)), int((logits.argmax(1) == labels).sum()) / self.samples


def problem(dtype: torch.dtype, samples: int, batch: int, seed: int) -> Problem:
    """Make a linear classifier in ``dtype``, and samples of which it names nine in ten."""
    draw = torch.Generator().manual_seed(seed)
    device = device_type()
    model = nn.Linear(_FEATURES, _CLASSES).to(device, dtype).requires_grad_(False)
    model.weight.copy_(torch.randn(_CLASSES, _FEATURES, generator=draw))
    model.bias.copy_(torch.randn(_CLASSES, generator=draw))
    inputs = torch.randn(samples, _FEATURES, generator=draw).to(device, dtype)
    labels = model(inputs).argmax(1)
    misled = (torch.rand(samples, generator=draw) < _SHARE_MISLED).to(device)
    labels = (labels + misled) % _CLASSES
    return Problem(
        dtype, samples, batch, model, list(zip(inputs.split(batch), labels.split(batch), strict=True))
    )
