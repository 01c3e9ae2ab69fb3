"""How long a step took, sample by sample, and what two such records can tell apart."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Verdict = Literal["faster", "slower", "no difference"]

# Smaller differences come and go with clock speed and memory layout, however little the samples scatter.
RESOLUTION = 0.02
ROUNDS = 12


@dataclass(frozen=True)
class Difference:
    """One timing beside another: how many times as fast, and whether that is more than noise.

    ``speedup`` is the ratio of the medians; ``low`` and ``high`` enclose what it may really be.
    """

    speedup: float
    low: float
    high: float

    @property
    def verdict(self) -> Verdict:
        """``"no difference"`` unless the whole interval lies on one side of 1 and the ratio beyond 2 %."""
        if self.low <= 1 <= self.high or abs(math.log(self.speedup)) < math.log1p(RESOLUTION):
            return "no difference"
        return "faster" if self.speedup > 1 else "slower"

    def __str__(self) -> str:
        if self.verdict == "no difference":
            return f"no difference ({self.speedup:.2f}x, anywhere from {self.low:.2f}x to {self.high:.2f}x)"
        return f"{self.speedup:.2f}x as fast (between {self.low:.2f}x and {self.high:.2f}x)"


@dataclass(frozen=True)
class Timing:
    """How long one call took, sample by sample, in milliseconds.

    Each sample is the mean over ``calls_per_sample`` calls. ``first_call_ms`` is the very first call, with
    all that happens only once: loading kernels, choosing algorithms, allocating, compiling.
    """

    samples_ms: tuple[float, ...]
    device: str
    first_call_ms: float | None = None
    calls_per_sample: int = 1

    def __post_init__(self) -> None:
        if not self.samples_ms or not all(ms > 0 and math.isfinite(ms) for ms in self.samples_ms):
            raise ValueError("a Timing needs at least one sample, and every sample positive and finite")

    @property
    def median_ms(self) -> float:
        """The median, which a few interrupted samples do not move."""
        return statistics.median(self.samples_ms)

    @property
    def quartiles_ms(self) -> tuple[float, float]:
        """The bounds of the middle half of the samples."""
        if len(self.samples_ms) == 1:
            return self.samples_ms[0], self.samples_ms[0]
        first, _, third = statistics.quantiles(self.samples_ms, n=4, method="inclusive")
        return first, third

    @property
    def spread_fraction(self) -> float:
        """The width of the middle half, as a share of the median."""
        first, third = self.quartiles_ms
        return (third - first) / self.median_ms

    @property
    def round_medians_ms(self) -> tuple[float, ...]:
        """The medians of the run's twelve stretches (of single samples, where there are fewer)."""
        count, rounds = len(self.samples_ms), min(ROUNDS, len(self.samples_ms))
        ends = [count * i // rounds for i in range(rounds + 1)]
        return tuple(statistics.median(self.samples_ms[a:b]) for a, b in pairwise(ends))

    @property
    def median_interval_ms(self) -> tuple[float, float]:
        """Bounds of the true median at 99 % confidence: the second smallest and second largest round median.

        Each round's lies on either side of it with probability one half, whatever the distribution, so that
        of twelve at least two lie on each side, but for one run in 150. Neighbouring samples often resemble
        each other, because what disturbs one disturbs the next; those of different rounds do so less. Of
        fewer than twelve samples the extremes are taken.
        """
        ordered = sorted(self.round_medians_ms)
        left_out = 1 if len(ordered) == ROUNDS else 0
        return ordered[left_out], ordered[-1 - left_out]

    def compare(self, other: Timing) -> Difference:
        """Say how many times as fast this is as ``other``, and whether that is more than noise.

        Raises ``ValueError`` where either has a single sample, which says nothing about its noise.
        """
        if not isinstance(other, Timing):
            raise TypeError(f"compare with another Timing, not with {type(other).__name__}")
        if min(len(self.samples_ms), len(other.samples_ms)) < 2:
            raise ValueError("one sample cannot tell a difference from noise; time several with time_step")
        (low, high), (other_low, other_high) = self.median_interval_ms, other.median_interval_ms
        return Difference(other.median_ms / self.median_ms, other_low / high, other_high / low)

    def faster_than(self, other: Timing) -> bool:
        """Say whether this is faster than ``other`` by more than noise."""
        return self.compare(other).verdict == "faster"

    def throughput(self, items_per_call: float) -> float:
        """Return items per second where one call handles ``items_per_call`` samples, tokens or operations."""
        return items_per_call / (self.median_ms / 1e3)

    def __str__(self) -> str:
        first, third = self.quartiles_ms
        count = len(self.samples_ms)
        return f"{self.median_ms:.3g} ms (middle half {first:.3g} to {third:.3g}, {count} samples)"
