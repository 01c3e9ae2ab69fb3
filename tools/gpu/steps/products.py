"""How fast the device multiplies square matrices: by ``measure``, and by a plain sweep written here.

The sweep shares nothing with ``measure``: no plan, no statistics, no switch of its own for TF32.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from amp_lessons.measure import precisions_on, product_rates
from tools.gpu.found import Agreement, Figure, Found, Place

TOLERANCE = 0.1
FULL_SIZES, SMALL_SIZES = (2048, 4096, 8192, 12288), (64, 128)
LEAST_ROUNDS, CALLS = 6, 10
LONGEST_CALL_MS = 1000.0
_REASON = "clock and power limits move a rate by some percent from one second to the next"
_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def parts(place: Place) -> tuple[str, ...]:
    """Name the precisions that the device multiplies in."""
    return precisions_on(place.device)


def run(name: str, place: Place) -> Found:
    """Take both rates of every size."""
    sizes = FULL_SIZES if place.is_full else SMALL_SIZES
    seconds = 0.4 if place.is_full else 0.02
    rates = product_rates(
        name, device=place.device, sizes=sizes, seconds=seconds, longest_call_ms=LONGEST_CALL_MS
    )
    claimed = {rate.size: rate.flop_per_s for rate in rates}
    measured = {size: plain_rate(size, name, place.device, seconds) for size in claimed}
    agreements = tuple(
        Agreement(f"{name}, {size} × {size}", claimed[size], measured[size], _REASON, TOLERANCE, "FLOP/s")
        for size in claimed
    )
    return Found((Figure(f"best rate in {name}", max(measured.values()), "FLOP/s"),), agreements)


def plain_rate(size: int, precision: str, device: str, seconds: float) -> float:
    """Multiply ten times in a row, again and again; return the median of the later half, in FLOP per second.

    The earlier half is there to warm up: a GPU that has just been idle is not yet at its limit of power.
    """
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    a, b = (torch.randn(size, size, device=device, dtype=_DTYPES[precision]) for _ in range(2))
    elapsed = cuda_seconds if device == "cuda" else host_seconds

    def multiply() -> None:
        for _ in range(CALLS):
            torch.matmul(a, b.t())

    took: list[float] = []
    while len(took) < LEAST_ROUNDS or sum(took) < seconds:
        took.append(elapsed(multiply))
    return CALLS * 2 * size**3 / statistics.median(took[len(took) // 2 :])


def cuda_seconds(work: Callable[[], None]) -> float:
    """Return how long the GPU took, between two events."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3


def host_seconds(work: Callable[[], None]) -> float:
    """Return how long the host took."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
