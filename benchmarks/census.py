"""Time the census of gradients against the usual ``log2`` + ``histogram``, and watch its extra memory.

The census must be at least seven times faster, linear in the number of values (nanoseconds per value stay
level), and need the same few MiB of extra memory for any size. Both are timed in turn, so that whatever else
the machine does slows both down; medians are compared.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from amp_lessons.scaling import census

SIZES = (10**6, 10**7, 10**8)
ROUNDS = {10**6: 100, 10**7: 25, 10**8: 5}
TIMES_FASTER = 7.0


def main() -> None:
    """Print one line per kind of gradients and size: both times, their ratio, and the extra memory."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, numpy {np.__version__}; medians")
    print("gradients       values  log2 + histogram       census    ratio  ns/value     extra")
    slowest = min(_measure(name, values[:size]) for name, values in _gradients() for size in SIZES)
    kept = "kept" if slowest >= TIMES_FASTER else "not kept"
    print(f"promised at least {TIMES_FASTER:g} times faster, was at least {slowest:.1f} times: {kept}")


def _measure(name: str, values: Tensor) -> float:
    """Print one line, and return how many times faster the census is."""
    extra_mib = _extra_memory_mib(lambda: census(values))
    usual_ms, census_ms = _median_ms(len(values), lambda: log2_histogram(values), lambda: census(values))
    ns_per_value = census_ms / len(values) * 1e6
    print(
        f"{name:<10} {len(values):>11,} {usual_ms:>14.2f} ms {census_ms:>9.2f} ms "
        f"{usual_ms / census_ms:>7.1f}× {ns_per_value:>9.2f} {extra_mib}",
        flush=True,
    )
    return usual_ms / census_ms


def log2_histogram(values: Tensor) -> np.ndarray:
    """Count magnitudes in 64 bins, as tutorials do before a bar chart; a zero or inf has no bin."""
    magnitudes = values.abs()
    return np.histogram(magnitudes[magnitudes.isfinite() & (magnitudes > 0)].log2().numpy(), bins=64)[0]


def _gradients() -> Iterator[tuple[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    largest = max(SIZES)
    yield "normal", torch.randn(largest, generator=generator)
    sign = torch.randint(0, 2, (largest,), generator=generator, dtype=torch.int8).mul_(2).sub_(1)
    lognormal = torch.randn(largest, generator=generator).mul_(3.0).exp_().mul_(1e-6)
    yield "lognormal", lognormal.mul_(sign)


def _median_ms(size: int, *functions: Callable[[], object]) -> list[float]:
    elapsed: list[list[float]] = [[] for _ in functions]
    for _ in range(ROUNDS[size]):
        for function, times in zip(functions, elapsed, strict=True):
            start = time.perf_counter()
            function()
            times.append((time.perf_counter() - start) * 1e3)
    return [statistics.median(times) for times in elapsed]


def _extra_memory_mib(function: Callable[[], object]) -> str:
    if sys.platform != "linux":
        return f"{'unknown':>9}"
    # Linux notes the peak only now and then, so one reading may miss it.
    return f"{max(_one_reading_mib(function) for _ in range(3)):>5.1f} MiB"


def _one_reading_mib(function: Callable[[], object]) -> float:
    Path("/proc/self/clear_refs").write_text("5")  # the peak is from now on
    before = _peak_mib()
    function()
    return _peak_mib() - before


def _peak_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
