"""How long does one step take, once it is warm, on a device that works while Python goes on?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import torch

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit.findings import Finding, failed, note, passed
from amp_lessons.course.exercises.attempt import Rejected, reject
from amp_lessons.course.exercises.bed import LearnersFunction, described, function
from amp_lessons.course.exercises.report.common_findings import float_in, remark_on_type
from amp_lessons.course.exercises.report.results import SideBySide
from amp_lessons.course.exercises.time_step.cases import BUSY, LAUNCHED, STEADY, UNSTEADY, Seen, TimingCase
from amp_lessons.course.exercises.time_step.clockwork_there import PROCESSOR_CLOCKS, Launch

_THERE = "amp_lessons.course.exercises.time_step.clockwork_there:time_calls"

# --- what is wrong with a measured time: its unit, its clock, or where the clock was read


def mistakes_when_steady(seen: Seen) -> Iterator[Finding]:
    """Yield what is wrong where all samples are equal, so that the statistic cannot be to blame."""
    if seen.is_median:
        return
    yield from _wrong_unit(seen)
    yield from _wrong_clock(seen)
    yield from _wrong_count(seen)
    yield from _whole_milliseconds(seen)
    yield _wrong_time(seen)


_UNITS = {"thousands of seconds": 1e-6, "seconds": 1e-3, "microseconds": 1e3, "nanoseconds": 1e6}


def _wrong_unit(seen: Seen) -> Iterator[Finding]:
    for unit, factor in _UNITS.items():
        if seen.shows(seen.right, factor):
            yield failed(
                "wrong_unit",
                f"the time is in {unit} for {seen.case.what}",
                "perf_counter counts seconds: multiply the difference by 1e3",
            )

    if seen.shows(1e3 / seen.right):
        yield failed(
            "wrong_unit",
            f"these are calls per second, not milliseconds per call, for {seen.case.what}",
            "return the time itself",
        )


def _wrong_clock(seen: Seen) -> Iterator[Finding]:
    if seen.readings & PROCESSOR_CLOCKS and seen.value < 0.05 * seen.right:
        yield failed(
            "not_wall_clock",
            f"the clock stood still while the step waited for {seen.case.what}",
            "process_time counts the processor's work for this process only; time.perf_counter() counts time",
        )


def _wrong_count(seen: Seen) -> Iterator[Finding]:
    samples, everything = sum(seen.samples), sum(seen.everything)
    if seen.shows(samples) or seen.shows(everything):
        warm_up = "" if seen.shows(samples) else ", those of the warm-up as well"
        yield failed(
            "total_time",
            f"this is the time of all calls together{warm_up} for {seen.case.what}",
            "one sample per call, then median",
        )
    if seen.shows(everything / len(seen.samples)):
        yield warm_up_counted(seen.case)
    if seen.shows(seen.right / len(seen.samples)):
        yield failed(
            "divided_twice",
            f"this is the time of one call divided by repeats for {seen.case.what}",
            "each sample holds one call: there is nothing to divide by",
        )


def _whole_milliseconds(seen: Seen) -> Iterator[Finding]:
    if seen.value == round(seen.value) and abs(seen.value - seen.right) < 1:
        yield failed(
            "whole_milliseconds",
            f"the time was rounded to whole milliseconds, {seen.value:g} for {seen.case.what}: of a "
            "step that takes less than one, 0 or 1 would be left",
            "keep the fraction: neither int(), round() nor // has a place here",
        )


def warm_up_counted(case: TimingCase) -> Finding:
    """Say that samples of the warm-up are among those that were used."""
    return failed(
        "warm_up_counted",
        f"the warm-up calls were timed as well for {case.what}",
        "keep only samples of the calls that come after the warm-up",
    )


def _wrong_time(seen: Seen) -> Finding:
    return failed(
        "wrong_time",
        f"{seen.value:.4g} ms were returned for {seen.case.what}; {seen.right:.4g} ms would be right",
        "clock and synchronize right before and right after one call of fn, and nothing else in between",
    )


def mistakes_with_launches(seen: Seen) -> Iterator[Finding]:
    """Yield what is wrong when a call returns before its work is done."""
    yield from _own_work_left_out(seen)
    if not seen.is_median:
        yield from _earlier_work_counted(seen)
        yield _wrong_time(seen)


def _own_work_left_out(seen: Seen) -> Iterator[Finding]:
    case = f"for {seen.case.what}"
    if not seen.synchronized:
        yield failed(
            "never_synchronized",
            f"synchronize was never called, so only the launch was timed {case}",
            "call the synchronize that you are given: before the clock starts and before it is read again",
        )
    if seen.value < 0.5 * min(seen.samples):
        yield failed(
            "no_sync_after",
            f"the clock was read while the device was still working {case}",
            "call synchronize() after fn() and before you read the clock",
        )
    if not seen.one_after_another:
        yield failed(
            "one_sync_for_all",
            f"the calls were launched before the one ahead was done {case}: their times cannot be told apart",
            "synchronize after every call; a median needs one sample per call",
        )


def _earlier_work_counted(seen: Seen) -> Iterator[Finding]:
    first, case = seen.timed[0], f"for {seen.case.what}"
    if first.made < first.began - 2e-3:
        yield failed(
            "no_sync_before",
            "the clock started while the device was still busy with earlier work, and the sample includes it "
            f"{case}",
            "call synchronize() once more, right before the clock starts",
        )
    if seen.shows((first.ended - seen.calls[0].made) * 1e3):
        yield failed(
            "clock_starts_too_early",
            f"the clock started before the device was done with earlier work {case}",
            "first synchronize(), then start the clock",
        )


# --- which statistic of the samples was taken in the place of their median


def mistakes_in_statistic(*runs: Seen) -> Iterator[Finding]:
    """Yield which statistic gives the values of all ``runs``, unless it is the median."""
    wrong = next((seen for seen in runs if not seen.is_median), None)
    if wrong is None:
        return
    if all(seen.exact for seen in runs):  # real time is too coarse to tell statistics apart
        yield from _other_statistics(runs, wrong)
    yield _not_the_median("this is not the median", wrong)


def _other_statistics(runs: Sequence[Seen], wrong: Seen) -> Iterator[Finding]:
    if any(all(seen.shows(statistic(seen)) for seen in runs) for statistic in _WITH_WARM_UP):
        yield warm_up_counted(wrong.case)
    for name, of, why in _OTHER_STATISTICS:
        if all(seen.shows(of(seen.samples)) for seen in runs):
            yield _not_the_median(f"this is the {name}, not the median; {why}", wrong)
    if all(_is_mean_of_some(seen) for seen in runs):
        yield _not_the_median("not all samples were used: this is the median or mean of some", wrong)


def _not_the_median(what: str, seen: Seen) -> Finding:
    samples = ", ".join(f"{sample:.4g}" for sample in seen.samples)
    return failed(
        "not_the_median",
        f"{what}. Of {samples} ms the median is {seen.right:.4g}, and {seen.value:.4g} was returned",
        "keep every sample, and return statistics.median(samples)",
    )


def _is_mean_of_some(seen: Seen) -> bool:
    """Whether the value is the mean of what is left when the fastest or slowest samples are dropped."""
    ordered = sorted(seen.samples)
    parts = combinations(range(len(ordered) + 1), 2)
    return any(seen.shows(statistics.fmean(ordered[start:end])) for start, end in parts)


def _quantile(samples: list[float], fraction: float) -> float:
    """Interpolate as NumPy and PyTorch do."""
    return float(torch.tensor(samples, dtype=torch.float64).quantile(fraction))


_WITH_WARM_UP: tuple[Callable[[Seen], float], ...] = (
    lambda seen: statistics.median(seen.everything),
    lambda seen: statistics.median(seen.everything[max(seen.case.warmup - 1, 0) :]),
    lambda seen: statistics.median(seen.everything[: len(seen.samples)]),
    lambda seen: statistics.median(seen.everything[max(seen.case.warmup - 1, 0) :][: len(seen.samples)]),
    lambda seen: statistics.fmean(seen.everything),
)
_ONE_CALL = "a single call says little"
_MOVES = "one interrupted call moves it"
_OTHER_STATISTICS: tuple[tuple[str, Callable[[list[float]], float], str], ...] = (
    ("mean", statistics.fmean, _MOVES),
    ("minimum", min, "no step of a training run is that lucky"),
    ("maximum", max, "one interrupted call decides it"),
    ("first sample", lambda samples: samples[0], _ONE_CALL),
    ("last sample", lambda samples: samples[-1], _ONE_CALL),
    (
        "sample in the middle of an unsorted list",
        lambda samples: samples[len(samples) // 2],
        "sort the samples first",
    ),
    (
        "sample in the middle of an unsorted list",
        lambda samples: samples[(len(samples) - 1) // 2],
        "sort the samples first",
    ),
    ("geometric mean", statistics.geometric_mean, _MOVES),
    ("harmonic mean", statistics.harmonic_mean, "fast calls pull it down"),
    *(
        (
            f"{percent} % quantile",
            partial(_quantile, fraction=percent / 100),
            "the median is the 50 % quantile",
        )
        for percent in (5, 10, 20, 25, 75, 80, 90, 95, 99)
    ),
    *(
        (
            f"{percent} % quantile",
            lambda s, i=quarter: statistics.quantiles(s)[i],
            "the median is the 50 % one",
        )
        for percent, quarter in ((25, 0), (75, 2))
    ),
    ("mean of the fastest and the slowest", lambda samples: (min(samples) + max(samples)) / 2, _MOVES),
)


# --- the check

_JUDGEMENTS: tuple[tuple[tuple[TimingCase, ...], Callable[..., Iterator[Finding]]], ...] = (
    ((STEADY,), mistakes_when_steady),
    ((LAUNCHED,), mistakes_with_launches),
    (UNSTEADY, mistakes_in_statistic),
    ((BUSY,), mistakes_with_launches),
)
_TRIES = 3  # a busy machine can spoil a single measurement in real time, but hardly three


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Have steps timed whose duration is known, and hold the numbers against their medians."""
    time_step = function(worker, "time_step", None, warmup=1, repeats=1, synchronize=None)
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


def _tried(time_step: LearnersFunction, case: TimingCase) -> Seen:
    """Run a case in simulated time, and in real time if the attempt's clock is out of the simulation's reach.

    In real time a mistake returns every time, a disturbance hardly.
    """
    seen = _run(time_step, case, simulated=True)
    for _ in range(_TRIES):
        if seen.is_median or seen.readings:
            break
        seen = _run(time_step, case, simulated=False)
    return seen


def _run(time_step: LearnersFunction, case: TimingCase, simulated: bool) -> Seen:
    device = {"durations_ms": case.durations_ms, "waits": case.waits, "pending_ms": case.pending_ms}
    told, _ = time_step.called_by(
        _THERE,
        about=f"for {case.what}",
        kwargs={"warmup": case.warmup, "repeats": case.repeats},
        extra=(device, simulated),
    )
    calls = [Launch(*map(float, each)) for each in told["calls"]]
    value = _duration(told["returned"])
    _require_calls(case, len(calls))
    readings = frozenset(map(str, told["readings"]))
    return Seen(case, calls, bool(told["synchronized"]), readings, told["returned"], value, simulated)


def _duration(returned: Any) -> float:
    value = float_in(returned)
    if value is None:
        reject(
            "wrong_return_type",
            f"a float was expected, not {described(returned)}",
            "return one number: the median of the samples",
        )
    if not (0 <= value < math.inf):
        reject("not_a_time", f"{value} ms is no duration", "subtract the start from the end")
    return value


def _require_calls(case: TimingCase, calls: int) -> None:
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
        if each.readings & {"time", "time_ns"}:
            yield _ADJUSTABLE_CLOCK


def _digits_lost(seen: list[Seen]) -> Iterator[Finding]:
    """Remark on a time rounded to fewer digits than the steps' own have."""
    values = [each.value for each in seen if each.exact]
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
