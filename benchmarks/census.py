"""Time the census of gradients against one `torch.sum` over the same memory, and watch its extra memory.

A census cannot be as fast as a sum, which does one addition per value: it builds a histogram. The bar is four
times the sum. Both are timed in turn, so that whatever else the machine does slows both down; medians are
compared.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from amp_lessons.scaling import census

SIZES = (10**6, 10**7, 10**8)
ROUNDS = {10**6: 100, 10**7: 25, 10**8: 5}
BAR = 4.0


def main() -> None:
    """Print one line per kind of gradients and size: sum, census, their ratio, and the extra memory."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; medians; bar: {BAR:g} × torch.sum")
    print("gradients       values        sum     census   ratio  ns/value     extra")
    for name, values in _gradients():
        for size in SIZES:
            print(_line(name, values[:size]))


def _line(name: str, values: Tensor) -> str:
    extra_mib = _extra_memory_mib(lambda: census(values))
    sum_ms, census_ms = _median_ms(len(values), values.sum, lambda: census(values))
    return (
        f"{name:<10} {len(values):>11,} {sum_ms:>7.3f} ms {census_ms:>7.2f} ms {census_ms / sum_ms:>6.1f}× "
        f"{census_ms / len(values) * 1e6:>9.2f} {extra_mib}"
    )


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
