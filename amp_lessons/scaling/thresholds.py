"""Where a number format begins and ends, found by asking PyTorch's own arithmetic.

What becomes of a gradient g when it is scaled and cast depends on |g| alone, and changes at three magnitudes
only: where it stops rounding to zero, where it reaches the normal numbers, and where it leaves the format.
Each is found by a search with the multiplication and the cast that PyTorch really performs, so ties, double
rounding, scales that are no power of two and formats that somebody adds tomorrow need no formula here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from amp_lessons.scaling.histogram import Layout, layout_of

PROBES = 1024


@lru_cache(maxsize=1024)
def fate_thresholds(source: torch.dtype, target: torch.dtype, scale: float) -> tuple[int, int, int]:
    """Return the largest |g| that underflows, that stays subnormal or less, and that does not overflow.

    They are bit patterns of ``source`` (fp32 or fp64), for the cast ``(g * scale).to(target)``. A magnitude
    overflows when it rounds beyond the largest finite value, whether the format then says inf (fp16), NaN or
    the largest value itself (float8_e4m3fn, before and since PyTorch 2.12).
    """
    limits = torch.finfo(target)

    def largest(is_beyond: Callable[[Tensor], Tensor]) -> int:
        layout = layout_of(source)
        return _last_before(layout, lambda values: is_beyond(values * scale))

    # Negated, because beyond its range a format may say NaN, which compares as neither below nor above.
    return (
        largest(lambda scaled: ~(_cast(scaled, target) == 0)),
        largest(lambda scaled: ~(_cast(scaled, target) < limits.smallest_normal)),
        # One binade lower the format has room to round up; the cast of the number itself might saturate.
        largest(lambda scaled: ~(_cast(scaled / 2, target) <= limits.max / 2)),
    )


def _last_before(layout: Layout, is_beyond: Callable[[Tensor], Tensor]) -> int:
    """Return the bits of the largest finite magnitude that is not beyond, where zero is not and inf is.

    Each round asks about a thousand magnitudes at once: PyTorch takes as long for one.
    """
    low, high = 0, layout.infinity
    while high - low > 1:
        step = max((high - low) // PROBES, 1)
        probes = low + step * torch.arange(-(-(high - low) // step), dtype=layout.bits_dtype)
        inside = int((~is_beyond(probes.view(layout.dtype))).sum())
        low, high = low + (inside - 1) * step, min(low + inside * step, high)
    return low


def _cast(value: Tensor, target: torch.dtype) -> Tensor:
    return value.to(target).to(torch.float64)
