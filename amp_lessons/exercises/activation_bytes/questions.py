"""What layers make autograd keep, measured by CUDA's rules and kernels; no GPU is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import torch
from torch import nn

from amp_lessons.autocast import fake_tensors
from amp_lessons.autocast.cuda_on_cpu import cuda_kernels
from amp_lessons.measure import saved_activation_bytes

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
        return sum(_bytes_by_dtype(self).values())

    @property
    def numbers(self) -> int:
        """How many numbers are kept, of whatever size."""
        return sum(kept // dtype.itemsize for dtype, kept in _bytes_by_dtype(self).items())

    def __str__(self) -> str:
        how = "under fp16 autocast" if self.autocast else "in fp32"
        return f"{self.layer} {how}, {self.tokens} tokens, width {self.width}"


@cache
def _bytes_by_dtype(question: Question) -> dict[torch.dtype, int]:
    """Measure what autograd keeps, by CUDA's rules and kernels, without a GPU."""
    dtype = torch.float16 if question.autocast else None
    with fake_tensors():
        module = LAYERS[question.layer](question.width)
        x = torch.empty(question.tokens, question.width, dtype=dtype or torch.float32).requires_grad_()
    with torch.enable_grad(), cuda_kernels():
        return saved_activation_bytes(module, x, dtype=dtype, device_type="cuda")


def questions() -> Iterator[Question]:
    """Ask for every layer, with autocast and without, in two shapes."""
    for layer in LAYERS:
        for autocast in (False, True):
            for tokens, width in _SHAPES:
                yield Question(layer, tokens, width, autocast)
