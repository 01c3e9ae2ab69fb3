"""Time a step honestly: warmed up, synchronised, repeated, and in turns where steps are to be compared."""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any, Protocol

import torch

from amp_lessons.arguments import require, require_callable, require_device, require_number, require_whole
from amp_lessons.measure.timing import ROUNDS, Timing

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
    return time_steps(
        {"": fn},
        device=device,
        synchronize=synchronize,
        warmup=warmup,
        seconds=seconds,
        max_samples=max_samples,
    )[""]


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
