"""Time a step honestly: warmed up, synchronised, repeated, and in turns where steps are to be compared."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any, Literal, Protocol

import torch

from amp_lessons._base.arguments import (
    require,
    require_callable,
    require_device,
    require_number,
    require_whole,
)

Step = Callable[[], Any]

_WARM_UP_S = 0.2  # a GPU needs about this long to raise its clock
_SHORTEST_SAMPLE_MS = 0.2  # a thousand times what reading the clock takes
_ATTEMPTS = 3  # on a busy machine every call of the warm-up may have been disturbed, and the plan be wrong


def time_step(
    fn: Step,
    *,
    device: str | torch.device,
    synchronize: Callable[[], Any] | None = None,
    warmup: int = 3,
    seconds: float = 1.0,
    max_samples: int = 200,
) -> Timing:
    """Time ``fn()`` on ``device``: at least ``warmup`` calls unmeasured, then samples for about ``seconds``.

    On a CUDA GPU the calls follow one another without waiting, as in a training loop, and CUDA events on the
    current stream mark their ends. Elsewhere the host's clock is read after ``synchronize()``, by default the
    device's own, so that work which was only launched is counted too. There are never fewer than 12 samples,
    however long that takes.
    """
    options: dict[str, Any] = {"warmup": warmup, "seconds": seconds, "max_samples": max_samples}
    return time_steps({"": fn}, device=device, synchronize=synchronize, **options)[""]


def time_steps(
    fns: Mapping[str, Step],
    *,
    device: str | torch.device,
    synchronize: Callable[[], Any] | None = None,
    warmup: int = 3,
    seconds: float = 1.0,
    max_samples: int = 200,
) -> dict[str, Timing]:
    """Time several functions in turns, so that whatever slows the machine down slows all of them down.

    Each of the rounds goes through the functions in an order of its own. In a fixed order, a disturbance that
    comes at regular intervals (another process that gets its share of the processor) may meet always the same
    one. Arguments are those of ``time_step``; ``seconds`` is for each function.
    """
    _check(fns, warmup, seconds, max_samples)
    watch = _stopwatch(device, synchronize)
    first_ms = {name: watch.samples_ms(fn, 1, 1)[0] for name, fn in fns.items()}
    fastest_ms = {name: _warm_up(fn, watch, warmup, seconds, first_ms[name]) for name, fn in fns.items()}
    for _ in range(_ATTEMPTS):
        plans = {name: _plan(call_ms, seconds, max_samples) for name, call_ms in fastest_ms.items()}
        samples = _rounds(fns, watch, plans)
        fastest_ms = {name: min(each) for name, each in samples.items()}
        if all(plan.suits(fastest_ms[name]) for name, plan in plans.items()):
            break
    return {
        name: Timing(tuple(samples[name]), str(device), first_ms[name], plan.calls_per_sample)
        for name, plan in plans.items()
    }


@dataclass(frozen=True)
class _Plan:
    calls_per_sample: int
    samples_per_round: int

    def suits(self, call_ms: float) -> bool:
        """Say whether the samples are long enough, now that it is known how short a call can be."""
        return self.calls_per_sample * call_ms > _SHORTEST_SAMPLE_MS / 2


def _plan(call_ms: float, seconds: float, max_samples: int) -> _Plan:
    call_ms = max(call_ms, 1e-6)  # a coarse clock may not have ticked at all
    calls_per_sample = math.ceil(_SHORTEST_SAMPLE_MS / call_ms)
    affordable = seconds * 1e3 / (call_ms * calls_per_sample)
    return _Plan(calls_per_sample, max(1, round(min(affordable, max_samples) / ROUNDS)))


def _warm_up(fn: Step, watch: _Stopwatch, warmup: int, seconds: float, first_ms: float) -> float:
    """Run ``fn`` until it is warm; return the fastest of its latest calls: disturbances only slow down."""
    latest_ms, start = deque([first_ms], maxlen=9), time.perf_counter()
    for calls in count():
        if calls >= warmup and (warmup == 0 or time.perf_counter() - start > min(_WARM_UP_S, seconds)):
            break
        latest_ms += watch.samples_ms(fn, 1, 1)
    return min(latest_ms)


def _rounds(fns: Mapping[str, Step], watch: _Stopwatch, plans: Mapping[str, _Plan]) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {name: [] for name in fns}
    shuffle = random.Random(0)  # the learner's own random numbers stay as they are
    for _ in range(ROUNDS):
        for name in shuffle.sample(list(fns), len(fns)):
            plan = plans[name]
            samples[name] += watch.samples_ms(fns[name], plan.samples_per_round, plan.calls_per_sample)
    return samples


class _Stopwatch(Protocol):
    def samples_ms(self, fn: Step, samples: int, calls: int) -> list[float]:
        """Return the mean duration of ``calls`` calls, ``samples`` times over."""


@dataclass(frozen=True)
class _HostClock:
    synchronize: Callable[[], Any]

    def samples_ms(self, fn: Step, samples: int, calls: int) -> list[float]:
        return [self._sample_ms(fn, calls) for _ in range(samples)]

    def _sample_ms(self, fn: Step, calls: int) -> float:
        self.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            fn()
        self.synchronize()
        return (time.perf_counter() - start) * 1e3 / calls


@dataclass(frozen=True)
class _CudaEvents:
    device: torch.device

    def samples_ms(self, fn: Step, samples: int, calls: int) -> list[float]:
        with torch.cuda.device(self.device):
            torch.cuda.synchronize()
            marks = [self._mark()]
            for _ in range(samples):
                for _ in range(calls):
                    fn()
                marks.append(self._mark())
            torch.cuda.synchronize()
        return [before.elapsed_time(after) / calls for before, after in pairwise(marks)]

    def _mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def _stopwatch(device: str | torch.device, synchronize: Callable[[], Any] | None) -> _Stopwatch:
    place = usable_device(device)
    if synchronize is not None:
        return _HostClock(synchronize)
    if place.type == "cuda":
        return _CudaEvents(place)
    return _HostClock(torch.get_device_module(place).synchronize)


def usable_device(device: str | torch.device) -> torch.device:
    """Return ``device`` as a torch.device; raise ``ValueError`` where it is unknown or not there."""
    place = require_device(device, "device")
    try:
        module = torch.get_device_module(place)
    except RuntimeError as error:
        raise ValueError(f"unknown device {device!r}: {str(error).splitlines()[0]}") from error
    if hasattr(module, "is_available") and not module.is_available():
        raise ValueError(f"there is no {place.type} device here; device='cpu' measures the processor")
    last = module.device_count() - 1
    if (place.index or 0) > last:  # PyTorch takes cpu:7 for the CPU, and fails late for a GPU
        raise ValueError(f"there is no {place} here; the last one is {place.type}:{last}")
    return place


def _check(fns: Mapping[str, Step], warmup: int, seconds: float, max_samples: int) -> None:
    require(fns, Mapping, "fns", 'a dict of functions without arguments, such as {"fp32": step}')
    for name, fn in fns.items():
        require_callable(fn, f"fns[{name!r}]" if name else "fn", "a function without arguments")
    require_whole(warmup, "warmup", least=0)
    require_whole(max_samples, "max_samples")
    require_number(seconds, "seconds", above=0)


# --- how long a step took, sample by sample, and what two such records can tell apart

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
        found = self.speedup, self.low, self.high
        mean, low, high = (f"{each:.2f}x" if each >= 0.1 else f"{each:.1g}x" for each in found)
        if self.verdict == "no difference":
            return f"no difference ({mean}, anywhere from {low} to {high})"
        return f"{mean} as fast (between {low} and {high})"


@dataclass(frozen=True)
class Timing:
    """The duration of one call, sample by sample, in milliseconds.

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
