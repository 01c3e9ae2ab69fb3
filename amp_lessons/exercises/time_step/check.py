"""How long does one step take, once it is warm, on a device that works while Python goes on?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from numbers import Real
from typing import Any

from torch import Tensor

from amp_lessons.audit.findings import Finding, failed, note, passed
from amp_lessons.exercises.containment import sandbox
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.report.results import SideBySide, Verdict
from amp_lessons.exercises.time_step.fake_clockwork import Device, RealTime, SimulatedTime
from amp_lessons.exercises.time_step.mistakes import mistake_when_steady, mistake_with_launches
from amp_lessons.exercises.time_step.mistakes_in_statistic import another_statistic
from amp_lessons.exercises.time_step.runs import BUSY, LAUNCHED, STEADY, UNSTEADY, Case, Seen
from amp_lessons.text.describing import describe


def check(attempt: Any) -> Verdict:
    attempt = attempt.value
    arguments = {"warmup": 1, "repeats": 1, "synchronize": Device((1.0,)).synchronize}
    finding = common_findings.uncallable(attempt, "time_step", Device((1.0,)), **arguments)
    if finding is not None:
        return Verdict((finding,))
    seen: list[Seen] = []
    for cases, judge in _JUDGEMENTS:
        for case in cases:
            tried = _tried(attempt, case)
            if isinstance(tried, Finding):
                return Verdict((tried,))
            seen.append(tried)
        finding = judge(*seen[-len(cases) :])
        if finding is not None:
            return Verdict((finding,), _side_by_side(seen))
    return Verdict((*_WHAT_HOLDS, *dict.fromkeys(_remarks(seen))))


def _side_by_side(seen: list[Seen]) -> tuple[SideBySide, ...]:
    expected, yours = zip(*[(each.right, each.value) for each in seen], strict=True)
    return (SideBySide("median in ms", "case", expected, yours),)


def _remarks(seen: list[Seen]) -> Iterator[Finding]:
    for each in seen:
        if each.remark is not None:
            yield each.remark
        if not each.shows(each.right):
            yield _NOT_AVERAGED
        if each.readings & {"time", "time_ns"}:
            yield _ADJUSTABLE_CLOCK


def _tried(attempt: Any, case: Case) -> Finding | Seen:
    """Run a case in simulated time, and in real time if the attempt's clock is out of the simulation's reach.

    In real time a mistake returns every time, a disturbance hardly.
    """
    tried = _run(attempt, case, SimulatedTime())
    for _ in range(_TRIES):
        if isinstance(tried, Finding) or tried.is_median or tried.readings:
            break
        tried = _run(attempt, case, RealTime())
    return tried


def _run(attempt: Any, case: Case, time: SimulatedTime | RealTime) -> Finding | Seen:
    device = case.make().start(time)
    with time.shown_to(attempt) if isinstance(time, SimulatedTime) else nullcontext():
        outcome = sandbox.call(
            attempt, device, warmup=case.warmup, repeats=case.repeats, synchronize=device.synchronize
        )
    finding = common_findings.not_attempted(outcome) or common_findings.misconduct(outcome)
    if finding is None and outcome.error is not None:
        finding = common_findings.raised(outcome, f"for {case.what}")
    finding = finding or _not_a_time(outcome.value) or _wrong_calls(case, len(device.calls))
    return finding or Seen(case, device, float(outcome.value), time, _not_a_float(outcome.value))


def _not_a_time(value: Any) -> Finding | None:
    is_number = isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1)
    if isinstance(value, bool) or not is_number:
        return failed(
            "wrong_return_type",
            f"a float was expected, not {describe(value)}",
            "return one number: the median of the samples",
        )
    if not (math.isfinite(value) and value >= 0):
        return failed("not_a_time", f"{float(value)} ms is no duration", "subtract the start from the end")
    return None


def _not_a_float(value: Any) -> Finding | None:
    if isinstance(value, float):
        return None
    return note("not_a_float", f"a float was asked for, not {type(value).__name__}", "return float(…)")


def _wrong_calls(case: Case, calls: int) -> Finding | None:
    wanted = case.warmup + case.repeats
    if calls == wanted:
        return None
    asked = f"warmup={case.warmup} and repeats={case.repeats}"
    if case.warmup and calls == case.repeats:
        return failed(
            "no_warm_up",
            f"with {asked} fn was called {calls} times: there was no warm-up, so the first sample holds "
            "whatever happens only once",
            "call fn() warmup times before the first sample",
        )
    return failed(
        "wrong_number_of_calls",
        f"with {asked} fn was called {calls} times instead of {wanted}",
        "warmup calls that nobody times, then one call per sample",
    )


_TRIES = 3  # a busy machine can spoil a single measurement in real time, but hardly three
_JUDGEMENTS: tuple[tuple[tuple[Case, ...], Callable[..., Finding | None]], ...] = (
    ((STEADY,), mistake_when_steady),
    ((LAUNCHED,), mistake_with_launches),
    (UNSTEADY, another_statistic),
    ((BUSY,), mistake_with_launches),
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
_WHAT_HOLDS = (
    passed("warm_up", "what happens only in the first calls is not counted"),
    passed("synchronized", "work that was only launched is counted, and other work is not"),
    passed("median", "the median of the samples, in milliseconds: an interrupted call does not move it"),
)
