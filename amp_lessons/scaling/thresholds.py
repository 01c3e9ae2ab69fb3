"""Where a number format begins and ends, found by asking PyTorch's own arithmetic.

What becomes of a gradient g when it is scaled and cast depends on |g| alone, and changes at three magnitudes
only: where it stops rounding to zero, where it reaches the normal numbers, and where it leaves the format.
Each is found by bisection with the multiplication and the cast that PyTorch really performs, so ties, double
rounding, scales that are no power of two and formats that somebody adds tomorrow need no formula here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from amp_lessons.scaling.histogram import layout_of


@lru_cache(maxsize=1024)
def fate_thresholds(source: torch.dtype, target: torch.dtype, scale: float) -> tuple[int, int, int]:
    """Return the largest |g| that underflows, that stays subnormal or less, and that does not overflow.

    They are bit patterns of `source` (fp32 or fp64), for the cast `(g * scale).to(target)`. A magnitude
    overflows when it rounds beyond the largest finite value, whether the format then says inf (fp16), NaN or
    the largest value itself (float8_e4m3fn, before and since PyTorch 2.12).
    """
    limits = torch.finfo(target)

    def largest(is_beyond: Callable[[Tensor], Tensor]) -> int:
        layout = layout_of(source)
        bits = range(layout.infinity)
        return bisect_left(bits, True, key=lambda b: bool(is_beyond(layout.value(b) * scale))) - 1

    # Negated, because beyond its range a format may say NaN, which compares as neither below nor above.
    return (
        largest(lambda scaled: ~(_cast(scaled, target) == 0)),
        largest(lambda scaled: ~(_cast(scaled, target) < limits.smallest_normal)),
        # One binade lower the format has room to round up; the cast of the number itself might saturate.
        largest(lambda scaled: ~(_cast(scaled / 2, target) <= limits.max / 2)),
    )


def _cast(value: Tensor, target: torch.dtype) -> Tensor:
    return value.to(target).to(torch.float64)
