"""How long does one step take, once it is warm, on a device that works while Python goes on?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from amp_lessons.audit.findings import Finding, note, passed
from amp_lessons.exercises.attempt import Attempt, LearnersFunction, Rejected, reject
from amp_lessons.exercises.report.common_findings import float_in, remark_on_type
from amp_lessons.exercises.report.results import SideBySide
from amp_lessons.exercises.time_step.fake_clockwork import Device, RealTime, SimulatedTime, Time
from amp_lessons.exercises.time_step.mistakes import mistakes_when_steady, mistakes_with_launches
from amp_lessons.exercises.time_step.mistakes_in_statistic import mistakes_in_statistic
from amp_lessons.exercises.time_step.runs import BUSY, LAUNCHED, STEADY, UNSTEADY, Case, Seen
from amp_lessons.text.describing import describe

_JUDGEMENTS: tuple[tuple[tuple[Case, ...], Callable[..., Iterator[Finding]]], ...] = (
    ((STEADY,), mistakes_when_steady),
    ((LAUNCHED,), mistakes_with_launches),
    (UNSTEADY, mistakes_in_statistic),
    ((BUSY,), mistakes_with_launches),
)
_TRIES = 3  # a busy machine can spoil a single measurement in real time, but hardly three


def check(attempt: Attempt) -> Iterator[Finding]:
    """Have steps timed whose duration is known, and hold the numbers against their medians."""
    device = Device((1.0,))
    time_step = attempt.function(device, warmup=1, repeats=1, synchronize=device.synchronize)
    seen: list[Seen] = []
    for cases, mistakes in _JUDGEMENTS:
        runs = [_tried(time_step, case) for case in cases]
        seen += runs
        for root_cause in mistakes(*runs):
            raise Rejected(root_cause, _side_by_side(seen))
    yield passed("warm_up", "what happens only in the first calls is not counted")
    yield passed("synchronized", "work that was only launched is counted, and other work is not")
    yield passed("median", "the median of the samples, in milliseconds: an interrupted call does not move it")
    yield from _remarks(seen)
    yield from _digits_lost(seen)


def _tried(time_step: LearnersFunction, case: Case) -> Seen:
    """Run a case in simulated time, and in real time if the attempt's clock is out of the simulation's reach.

    In real time a mistake returns every time, a disturbance hardly.
    """
    seen = _run(time_step, case, SimulatedTime())
    for _ in range(_TRIES):
        if seen.is_median or seen.time.readings:
            break
        seen = _run(time_step, case, RealTime())
    return seen


def _run(time_step: LearnersFunction, case: Case, time: Time) -> Seen:
    device = case.make().start(time)
    with time.shown_to(time_step.function):
        returned = time_step(
            device,
            warmup=case.warmup,
            repeats=case.repeats,
            synchronize=device.synchronize,
            about=f"for {case.what}",
        )
    value = _duration(returned)
    _require_calls(case, len(device.calls))
    return Seen(case, device, returned, value, time)


def _duration(returned: Any) -> float:
    value = float_in(returned)
    if value is None:
        reject(
            "wrong_return_type",
            f"a float was expected, not {describe(returned)}",
            "return one number: the median of the samples",
        )
    if not (0 <= value < math.inf):
        reject("not_a_time", f"{value} ms is no duration", "subtract the start from the end")
    return value


def _require_calls(case: Case, calls: int) -> None:
    wanted = case.warmup + case.repeats
    if calls == wanted:
        return
    called = f"with warmup={case.warmup} and repeats={case.repeats} fn was called {calls} times"
    if case.warmup and calls == case.repeats:
        reject(
            "no_warm_up",
            f"{called}: there was no warm-up, so the first sample holds whatever happens only once",
            "call fn() warmup times before the first sample",
        )
    reject(
        "wrong_number_of_calls",
        f"{called} instead of {wanted}",
        "warmup calls that nobody times, then one call per sample",
    )


def _side_by_side(seen: list[Seen]) -> SideBySide:
    expected, yours = zip(*[(each.right, each.value) for each in seen], strict=True)
    return SideBySide("median in ms", "case", expected, yours)


def _remarks(seen: list[Seen]) -> Iterator[Finding]:
    for each in seen:
        yield from remark_on_type(each.returned, float)
        if not each.shows(each.right):
            yield _NOT_AVERAGED
        if each.time.readings & {"time", "time_ns"}:
            yield _ADJUSTABLE_CLOCK


def _digits_lost(seen: list[Seen]) -> Iterator[Finding]:
    """Remark on a time rounded to fewer digits than the steps' own have."""
    values = [each.value for each in seen if each.time.exact]
    digits = next((d for d in (1, 2) if values and all(value == round(value, d) for value in values)), None)
    if digits is not None:
        yield note(
            "rounded_time",
            f"the time was rounded to {10.0**-digits:g} ms: of a step that takes a few microseconds "
            "nothing would be left",
            "return the median as it is, and round where it is printed",
        )


_NOT_AVERAGED = note(
    "not_averaged",
    "of an even number of samples this is one of the two in the middle; their mean is the usual median",
    "statistics.median does it",
)
_ADJUSTABLE_CLOCK = note(
    "adjustable_clock",
    "time.time() is the time of day: it jumps when somebody sets it, and it may be coarse",
    "time.perf_counter() only ever goes forward, and is as fine as the machine allows",
)
