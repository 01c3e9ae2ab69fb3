"""How long does one step take, once it is warm, on a device that works while Python goes on?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, isclose, log10
from statistics import median, median_high, median_low
from typing import Any

import torch

from amp_lessons.audit.findings import Finding, failed, note, passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.report.common_findings import float_in, remark_on_type

_THERE = "amp_lessons.course.exercises.time_step.clocks_there"


@dataclass(frozen=True)
class TimingCase:
    """Steps, the warm-up's among them, on a device that is busy for ``pending_ms``; ``what`` names them.

    A call returns when its work is done if it ``waits``.
    """

    what: str
    durations_ms: tuple[float, ...]
    warmup: int
    waits: bool = False
    pending_ms: float = 0.0

    @property
    def samples(self) -> tuple[float, ...]:
        """How long the device works on each call that is to be timed, in milliseconds."""
        return self.durations_ms[self.warmup :]

    @property
    def right(self) -> float:
        """The median of the samples, in milliseconds."""
        return median(self.samples)


# chosen so that no other statistic comes near the median, or near to one another
_ODD = (27.0, 9.0, 3.5, 38.5, 34.5, 2.5, 5.0, 33.0, 6.5)
_EVEN = (16.0, 39.0, 8.0, 21.5, 3.0, 2.5)
_SLOW_AT_FIRST = (80.0, 60.0)


def _cases(draw: torch.Generator) -> Iterator[TimingCase]:
    """Yield cases, from the simplest on."""
    steady, more = torch.rand(2, generator=draw, dtype=torch.float64).tolist()
    one = 4.6 + 0.3 * steady  # digits behind the point: who rounds to whole milliseconds loses them
    yield TimingCase(f"a step of {one:.4g} ms that returns when it is done", (one,) * 6, 2, waits=True)
    odd, even, slow = (tuple((1 + more) * each for each in ms) for ms in (_ODD, _EVEN, _SLOW_AT_FIRST))
    several = [", ".join(f"{each:.4g}" for each in ms) for ms in (odd, even)]
    yield TimingCase(f"launched steps of {several[0]} ms after a slow warm-up", slow + odd, 2)
    yield TimingCase(f"launched steps of {several[1]} ms", even, 0)
    busy = f"a launched step of {even[0]:.4g} ms on a busy device"
    yield TimingCase(busy, (even[0],) * 3, 2, pending_ms=slow[0])


_HOW = (
    "after the warm-up, for each sample synchronize and read time.perf_counter() right before and right "
    "after one call of fn; return the median of the samples, in milliseconds and with its fraction"
)


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Have steps timed whose duration is known, and hold the numbers against their medians."""
    simulated = worker.call(f"{_THERE}:with_simulated_clocks", bed.Handle(0), keep=True)
    arguments = {"warmup": 1, "repeats": 1, "synchronize": None}
    time_step = bed.function(worker, "time_step", None, number=simulated.number, **arguments)
    for case in _cases(draw):
        options = {"warmup": case.warmup, "repeats": len(case.samples)}
        device = list(case.durations_ms), case.waits, case.pending_ms
        there, about = f"{_THERE}:time_calls", f"for {case.what}"
        told, _ = time_step.called_by(there, about=about, kwargs=options, extra=device)
        value = _value(told, case)
        low, high = median_low(case.samples), median_high(case.samples)
        if not any(_shows(value, each) for each in (low, case.right, high)):
            bed.require_none(_mistakes(value, case))
        yield from _remarks(told, value, case)
    yield passed("warm_up", "what happens only in the first calls is not counted")
    yield passed("synchronized", "work that was only launched is counted, and other work is not")
    yield passed("median", "the median of the samples, in milliseconds: an interrupted call does not move it")


def _shows(value: float, expected: float) -> bool:
    """Whether a value is ``expected``, give or take a rounding."""
    return abs(value - expected) <= 0.06 + 0.002 * expected


def _value(told: dict[str, Any], case: TimingCase) -> float:
    """Return the milliseconds that were returned; reject what is none, and other calls than asked for."""
    value, calls = float_in(told["returned"]), told["calls"]
    if value is None or not 0 <= value < inf:
        bed.reject("not_a_time", f"{bed.described(told['returned'])} is no duration in milliseconds", _HOW)
    if calls != len(case.durations_ms):
        asked = f"with warmup={case.warmup} and repeats={len(case.samples)}"
        said = f"{asked} fn was called {calls} times instead of {len(case.durations_ms)}"
        hint = "call fn() warmup times before the first sample, where nobody times it, then once per sample"
        bed.reject("wrong_number_of_calls", said, hint)
    return value


def _mistakes(value: float, case: TimingCase) -> Iterator[Finding]:
    """Yield what is wrong with a value that is not the median, the surest cause first."""
    where = f"for {case.what}, {value:.4g} was returned, where {case.right:.4g} ms would be right"
    if value < 0.05 * case.right and not case.waits:
        hint = "call the synchronize that you are given after fn() and before you read the clock"
        yield failed("no_sync_after", f"{where}: the clock was read while the device was still working", hint)
    power = log10(value / case.right) if value > 0 else 0.0
    if round(power) and isclose(power, round(power), abs_tol=0.003):
        unit = f"that is {10.0 ** round(power):.0e} times the time in milliseconds"
        yield failed("wrong_unit", f"{where}: {unit}", "perf_counter counts seconds: times 1e3 is right")
    if case.pending_ms and isclose(value, case.pending_ms + sum(case.durations_ms), rel_tol=0.005):
        yield failed("no_sync_before", f"{where}: this is the step with earlier work of the device", _HOW)
    if len(set(case.samples)) > 1:
        yield failed("not_the_median", f"{where}: this is not the median of the samples", _HOW)
    yield failed("wrong_time", where, _HOW)


def _remarks(told: dict[str, Any], value: float, case: TimingCase) -> Iterator[Finding]:
    yield from remark_on_type(told["returned"], float)
    if not _shows(value, case.right):
        said = "of an even number of samples this is one of the middle two; their mean is the usual median"
        yield note("not_averaged", said, "statistics.median does it")
    if "time" in told["seen"]:
        said = "time.time() is the time of day: it jumps when somebody sets it, and it may be coarse"
        hint = "time.perf_counter() only ever goes forward, and is as fine as the machine allows"
        yield note("adjustable_clock", said, hint)
