"""How long does one step take, once it is warm, on a device that works while Python goes on?"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, pairwise
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from amp_lessons.exercises import conduct, sandbox
from amp_lessons.exercises.fake_clockwork import PROCESSOR_CLOCKS, Call, Device, RealTime, SimulatedTime
from amp_lessons.exercises.results import Exercise, Finding, SideBySide, Verdict, failed, note, passed
from amp_lessons.exercises.sources import source_of


def time_step(fn, *, warmup, repeats, synchronize):  # type: ignore[no-untyped-def]
    """Return the median time of one call of ``fn`` in milliseconds."""
    for _ in range(warmup):
        fn()
    samples_ms = []
    for _ in range(repeats):
        synchronize()
        start = time.perf_counter()
        fn()
        synchronize()
        samples_ms.append((time.perf_counter() - start) * 1e3)
    return statistics.median(samples_ms)


@dataclass(frozen=True)
class _Case:
    """One run: on which device, with which arguments; ``what`` completes "for …"."""

    what: str
    make: Callable[[], Device]
    warmup: int
    repeats: int


_STEADY = _Case("a step of 4 ms that returns when it is done", lambda: Device((4.0,)), 2, 4)
_LAUNCHED = _Case("a step of 6 ms that is only launched", lambda: Device((6.0,), waits=False), 1, 3)
_BUSY = _Case(
    "a launched step while the device is busy", lambda: Device((6.0,), False, pending_ms=40.0), 2, 1
)
_SLOW_AT_FIRST = (80.0, 60.0)
_ODD = (27.0, 9.0, 3.5, 38.5, 34.5, 2.5, 5.0, 33.0, 6.5)
_EVEN = (16.0, 39.0, 8.0, 21.5, 3.0, 2.5)
# chosen so that no other statistic comes near the median, and no two of them agree in both
_UNSTEADY = (
    _Case("nine samples after a slow warm-up", lambda: Device(_SLOW_AT_FIRST + _ODD), 2, len(_ODD)),
    _Case("six samples", lambda: Device(_EVEN), 0, len(_EVEN)),
)
_TRIES = 3  # a busy machine can spoil a single measurement in real time, but hardly three


@dataclass
class _Seen:
    """What an attempt did in one case, in milliseconds; ``time`` is what its clocks showed."""

    case: _Case
    device: Device
    value: float
    time: SimulatedTime | RealTime
    remark: Finding | None
    timed: list[Call] = field(init=False)

    def __post_init__(self) -> None:
        self.timed = self.device.calls[self.case.warmup :]

    @property
    def everything(self) -> list[float]:
        return [call.work_ms for call in self.device.calls]

    @property
    def samples(self) -> list[float]:
        return [call.work_ms for call in self.timed]

    @property
    def right(self) -> float:
        return statistics.median(self.samples)

    @property
    def middle(self) -> tuple[float, float]:
        """The lower and the upper of the two samples in the middle; of an odd number they are one."""
        return statistics.median_low(self.samples), statistics.median_high(self.samples)

    @property
    def one_after_another(self) -> bool:
        """Whether each timed call but the first was made when the one before it was done."""
        return all(later.made >= before.ended - 1e-4 for before, later in pairwise(self.timed))

    @property
    def readings(self) -> set[str]:
        return self.time.readings if isinstance(self.time, SimulatedTime) else set()

    @property
    def exact(self) -> bool:
        """Whether the clocks were simulated: real time is too coarse to tell statistics apart."""
        return isinstance(self.time, SimulatedTime)

    def shows(self, expected: float, unit: float = 1.0) -> bool:
        """Whether the value is ``expected``, give or take a rounding, or what real time adds."""
        value = self.value / unit
        if isinstance(self.time, SimulatedTime):
            return abs(value - expected) <= 0.06 + 0.002 * expected
        return expected * 0.95 <= value <= expected * 1.25 + 0.4

    @property
    def is_median(self) -> bool:
        """Whether the value is the median, or one of the two samples that it lies between."""
        return any(self.shows(each) for each in (self.right, *self.middle))


def _examine(attempt: Any) -> Verdict:
    arguments = {"warmup": 1, "repeats": 1, "synchronize": Device((1.0,)).synchronize}
    finding = conduct.uncallable(attempt, "time_step", Device((1.0,)), **arguments)
    if finding is not None:
        return Verdict((finding,))
    seen: list[_Seen] = []
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


def _side_by_side(seen: list[_Seen]) -> tuple[SideBySide, ...]:
    expected, yours = zip(*[(each.right, each.value) for each in seen], strict=True)
    return (SideBySide("median in ms", "case", expected, yours),)


def _remarks(seen: list[_Seen]) -> Iterator[Finding]:
    for each in seen:
        if each.remark is not None:
            yield each.remark
        if not each.shows(each.right):
            yield _NOT_AVERAGED
        if each.readings & {"time", "time_ns"}:
            yield _ADJUSTABLE_CLOCK


def _tried(attempt: Any, case: _Case) -> Finding | _Seen:
    """Run a case in simulated time, and in real time if the attempt's clock is out of the simulation's reach.

    In real time a mistake returns every time, a disturbance hardly.
    """
    tried = _run(attempt, case, SimulatedTime())
    for _ in range(_TRIES):
        if isinstance(tried, Finding) or tried.is_median or tried.readings:
            break
        tried = _run(attempt, case, RealTime())
    return tried


def _run(attempt: Any, case: _Case, time: SimulatedTime | RealTime) -> Finding | _Seen:
    device = case.make().start(time)
    with time.shown_to(attempt) if isinstance(time, SimulatedTime) else nullcontext():
        outcome = sandbox.call(
            attempt, device, warmup=case.warmup, repeats=case.repeats, synchronize=device.synchronize
        )
    finding = conduct.not_attempted(outcome) or conduct.misconduct(outcome)
    if finding is None and outcome.error is not None:
        finding = conduct.raised(outcome, f"for {case.what}")
    finding = finding or _not_a_time(outcome.value) or _wrong_calls(case, len(device.calls))
    return finding or _Seen(case, device, float(outcome.value), time, _not_a_float(outcome.value))


def _not_a_time(value: Any) -> Finding | None:
    is_number = isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1)
    if isinstance(value, bool) or not is_number:
        return failed(
            "wrong_return_type",
            f"a float was expected, not {conduct.describe(value)}",
            "return one number: the median of the samples",
        )
    if not (math.isfinite(value) and value >= 0):
        return failed("not_a_time", f"{float(value)} ms is no duration", "subtract the start from the end")
    return None


def _not_a_float(value: Any) -> Finding | None:
    if isinstance(value, float):
        return None
    return note("not_a_float", f"a float was asked for, not {type(value).__name__}", "return float(…)")


def _wrong_calls(case: _Case, calls: int) -> Finding | None:
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


def _mistake_when_steady(seen: _Seen) -> Finding | None:
    """Name what is wrong where all samples are equal, so that the statistic cannot be to blame."""
    if seen.is_median:
        return None
    case = f"for {seen.case.what}"
    return (
        _wrong_unit(seen, case) or _wrong_clock(seen, case) or _wrong_count(seen, case) or _wrong_time(seen)
    )


def _wrong_unit(seen: _Seen, case: str) -> Finding | None:
    for unit, factor in (("seconds", 1e-3), ("microseconds", 1e3), ("nanoseconds", 1e6)):
        if seen.shows(seen.right, factor):
            return failed(
                "wrong_unit",
                f"the time is in {unit} {case}",
                "perf_counter counts seconds: multiply the difference by 1e3",
            )
    return None


def _wrong_clock(seen: _Seen, case: str) -> Finding | None:
    if seen.readings & PROCESSOR_CLOCKS and seen.value < 0.05 * seen.right:
        return failed(
            "not_wall_clock",
            f"the clock stood still while the step waited {case}",
            "process_time counts the processor's work for this process only; time.perf_counter() counts time",
        )
    return None


def _wrong_count(seen: _Seen, case: str) -> Finding | None:
    samples, everything = sum(seen.samples), sum(seen.everything)
    if seen.shows(samples) or seen.shows(everything):
        warm_up = "" if seen.shows(samples) else ", those of the warm-up as well"
        return failed(
            "total_time",
            f"this is the time of all calls together{warm_up} {case}",
            "one sample per call, then median",
        )
    if seen.shows(everything / len(seen.samples)):
        return _warm_up_counted(case)
    if seen.shows(seen.right / len(seen.samples)):
        return failed(
            "divided_twice",
            f"this is the time of one call divided by repeats {case}",
            "each sample holds one call: there is nothing to divide by",
        )
    return None


def _warm_up_counted(case: str) -> Finding:
    return failed(
        "warm_up_counted",
        f"the warm-up calls were timed as well {case}",
        "keep only samples of the calls that come after the warm-up",
    )


def _wrong_time(seen: _Seen) -> Finding:
    return failed(
        "wrong_time",
        f"{seen.value:.4g} ms were returned for {seen.case.what}; {seen.right:.4g} ms would be right",
        "clock and synchronize right before and right after one call of fn, and nothing else in between",
    )


def _mistake_with_launches(seen: _Seen) -> Finding | None:
    """Name what is wrong when a call returns before its work is done."""
    first, case = seen.timed[0], f"for {seen.case.what}"
    if not seen.device.synchronized:
        return failed(
            "never_synchronized",
            f"synchronize was never called, so only the launch was timed {case}",
            "call the synchronize that you are given: before the clock starts and before it is read again",
        )
    if seen.value < 0.5 * min(seen.samples):
        return failed(
            "no_sync_after",
            f"the clock was read while the device was still working {case}",
            "call synchronize() after fn() and before you read the clock",
        )
    if not seen.one_after_another:
        return failed(
            "one_sync_for_all",
            f"the calls were launched before the one ahead was done {case}: their times cannot be told apart",
            "synchronize after every call; a median needs one sample per call",
        )
    if seen.is_median:
        return None
    if first.made < first.began - 2e-3:
        return failed(
            "no_sync_before",
            "the clock started while the device was still busy with earlier work, and the sample includes it "
            f"{case}",
            "call synchronize() once more, right before the clock starts",
        )
    if seen.shows((first.ended - seen.device.calls[0].made) * 1e3):
        return failed(
            "clock_starts_too_early",
            f"the clock started before the device was done with earlier work {case}",
            "first synchronize(), then start the clock",
        )
    return _wrong_time(seen)


def _another_statistic(*runs: _Seen) -> Finding | None:
    """Name the statistic that gives the values of all ``runs``, unless it is the median."""
    wrong = next((seen for seen in runs if not seen.is_median), None)
    if wrong is None:
        return None
    if not all(seen.exact for seen in runs):
        return _not_the_median("this is not the median", wrong)
    if any(all(seen.shows(statistic(seen)) for seen in runs) for statistic in _WITH_WARM_UP):
        return _warm_up_counted(f"for {wrong.case.what}")
    for name, of, why in _OTHER_STATISTICS:
        if all(seen.shows(of(seen.samples)) for seen in runs):
            return _not_the_median(f"this is the {name}, not the median; {why}", wrong)
    if all(_is_mean_of_some(seen) for seen in runs):
        return _not_the_median("not all samples were used: this is the median or mean of some", wrong)
    return _not_the_median("this is not the median", wrong)


def _not_the_median(what: str, seen: _Seen) -> Finding:
    samples = ", ".join(f"{sample:.4g}" for sample in seen.samples)
    return failed(
        "not_the_median",
        f"{what}. Of {samples} ms the median is {seen.right:.4g}, and {seen.value:.4g} was returned",
        "keep every sample, and return statistics.median(samples)",
    )


def _is_mean_of_some(seen: _Seen) -> bool:
    """Whether the value is the mean of what is left when the fastest or slowest samples are dropped."""
    ordered = sorted(seen.samples)
    parts = combinations(range(len(ordered) + 1), 2)
    return any(seen.shows(statistics.fmean(ordered[start:end])) for start, end in parts)


def _quantile(samples: list[float], fraction: float) -> float:
    """Interpolate as NumPy and PyTorch do."""
    return float(torch.tensor(samples, dtype=torch.float64).quantile(fraction))


_WITH_WARM_UP: tuple[Callable[[_Seen], float], ...] = (
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

_JUDGEMENTS: tuple[tuple[tuple[_Case, ...], Callable[..., Finding | None]], ...] = (
    ((_STEADY,), _mistake_when_steady),
    ((_LAUNCHED,), _mistake_with_launches),
    (_UNSTEADY, _another_statistic),
    ((_BUSY,), _mistake_with_launches),
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

EXERCISE = Exercise(
    id="time_step",
    title="Time a step",
    lesson="05",
    difficulty=2,
    minutes=10,
    names=("time_step",),
    task=(
        "Return the median time of one call of fn() in milliseconds. Call it warmup times first without "
        "timing it, then take repeats samples of one call each. fn may only launch work on a device; "
        "synchronize() returns when the device has done all of it."
    ),
    stub='''def time_step(fn, *, warmup, repeats, synchronize):
    """Return, as a float, the median time of one call of fn() in milliseconds."""
    raise NotImplementedError
''',
    hints=(
        "What would your clock show if fn() returned at once and the device worked for another second? And "
        "if the device were still busy when you start the clock?",
        "For each sample: synchronize, read the clock, call fn, synchronize, read the clock. The warm-up "
        "comes before all that, with no clock at all.",
        "samples.append((time.perf_counter() - start) * 1e3) after the second synchronize(); at the end "
        "return statistics.median(samples).",
    ),
    explanation=(
        "The first synchronize keeps earlier work out of the sample, the second keeps this call's work in. "
        "Warm-up hides what happens once: compiling, choosing kernels, allocating. The median ignores the "
        "few samples that something else interrupted. perf_counter is the clock that never jumps. On a GPU "
        "CUDA events do the same without making Python wait; measure.time_step uses them."
    ),
    answer=time_step,
    answer_source=source_of(time_step, imports="import statistics\nimport time\n"),
    examine=_examine,
)
