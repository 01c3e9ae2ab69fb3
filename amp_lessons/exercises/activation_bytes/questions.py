"""What layers make autograd keep, measured by CUDA's rules and kernels; no GPU is needed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import torch
from torch import nn

# each maps (tokens, width) to (tokens, width)
LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "linear": lambda width: nn.Linear(width, width),
    "relu": lambda width: nn.ReLU(),
    "gelu": lambda width: nn.GELU(),
    "layer_norm": lambda width: nn.LayerNorm(width),
    "softmax": lambda width: nn.Softmax(dim=-1),
    "dropout": lambda width: nn.Dropout(0.1),
}
_SHAPES = ((96, 64), (24, 160))


def measured_bytes(layer: str, tokens: int, width: int, *, autocast: bool) -> int:
    """Measure what autograd keeps, by CUDA's rules and kernels, without a GPU."""
    return sum(_measured(layer, tokens, width, autocast).values())


@cache
def _measured(layer: str, tokens: int, width: int, autocast: bool) -> dict[torch.dtype, int]:
    # imported late: only this check needs them, and they are not quick to load
    fakes, measure, kernels = map(importlib.import_module, _NEEDED)
    dtype = torch.float16 if autocast else None
    with fakes.fake_tensors():
        module = LAYERS[layer](width)
        x = torch.empty(tokens, width, dtype=dtype or torch.float32).requires_grad_()
    with torch.enable_grad(), kernels.cuda_kernels():
        return measure.saved_activation_bytes(module, x, dtype=dtype, device_type="cuda")


_NEEDED = ("amp_lessons.autocast", "amp_lessons.measure", "amp_lessons.autocast.cuda_on_cpu")


class Question(NamedTuple):
    """How many bytes does ``layer`` keep, for an input of shape (tokens, width)?"""

    layer: str
    tokens: int
    width: int
    autocast: bool

    @property
    def elements(self) -> int:
        """The numbers that arrive."""
        return self.tokens * self.width

    @property
    def size(self) -> int:
        """The bytes of each number that arrives."""
        return 2 if self.autocast else 4

    @property
    def right(self) -> int:
        """The bytes that autograd keeps."""
        return measured_bytes(self.layer, self.tokens, self.width, autocast=self.autocast)

    @property
    def numbers(self) -> int:
        """How many numbers are kept, of whatever size."""
        return sum(kept // dtype.itemsize for dtype, kept in _measured(*self).items())

    def __str__(self) -> str:
        how = "under fp16 autocast" if self.autocast else "in fp32"
        return f"{self.layer} {how}, {self.tokens} tokens, width {self.width}"


def questions() -> Iterator[Question]:
    """Ask for every layer, with autocast and without, in two shapes."""
    for layer in LAYERS:
        for autocast in (False, True):
            for tokens, width in _SHAPES:
                yield Question(layer, tokens, width, autocast)
