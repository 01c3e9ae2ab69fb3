"""How fast ``quantize`` is beside PyTorch's own cast there and back, per format and size.

Formats that PyTorch can cast to are compared with that cast, the others with the cast to float16. Times are
the best of several, in nanoseconds per element, which stay level where the cost is linear in size; small
tensors that fit a cache are faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from amp_lessons.formats import FORMATS, FloatFormat

SIZES = (10**5, 10**6, 10**7)


@dataclass(frozen=True)
class Row:
    """The cost of one format at one size, in nanoseconds per element."""

    name: str
    size: int
    quantize_ns: float
    cast_ns: float
    yardstick: torch.dtype

    @property
    def ratio(self) -> float:
        """How many times PyTorch's cast ``quantize`` takes."""
        return self.quantize_ns / self.cast_ns


def measure(float_format: FloatFormat, x: Tensor, repeats: int = 7) -> Row:
    """Time ``float_format.quantize(x)`` and the cast it is compared with, in turns; the best counts."""
    yardstick = float_format.dtype or torch.float16
    quantize_s, cast_s = [], []
    for _ in range(repeats):
        quantize_s.append(_seconds(lambda: float_format.quantize(x)))
        cast_s.append(_seconds(lambda: x.to(yardstick, copy=True).to(torch.float32)))
    quantize_ns, cast_ns = (1e9 * min(seconds) / x.numel() for seconds in (quantize_s, cast_s))
    return Row(float_format.name, x.numel(), quantize_ns, cast_ns, yardstick)


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def main() -> None:
    """Print one line per format and size."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, CPU")
    print(f"{'format':14}{'elements':>12}{'quantize ns':>14}{'cast ns':>12}{'ratio':>8}  compared with")
    for size in SIZES:
        x = torch.randn(size, generator=torch.Generator().manual_seed(0))
        for row in (measure(float_format, x) for float_format in FORMATS.values()):
            figures = f"{row.quantize_ns:14.2f}{row.cast_ns:12.2f}{row.ratio:8.1f}"
            print(f"{row.name:14}{row.size:12,}{figures}  {row.yardstick}")


if __name__ == "__main__":
    main()
