"""What is wrong with a measured time: its unit, its clock, or where the clock was read."""

from __future__ import annotations

from collections.abc import Iterator

from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.time_step.fake_clockwork import PROCESSOR_CLOCKS
from amp_lessons.exercises.time_step.runs import Case, Seen


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
    if seen.time.readings & PROCESSOR_CLOCKS and seen.value < 0.05 * seen.right:
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


def warm_up_counted(case: Case) -> Finding:
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
    if not seen.device.synchronized:
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
    if seen.shows((first.ended - seen.device.calls[0].made) * 1e3):
        yield failed(
            "clock_starts_too_early",
            f"the clock started before the device was done with earlier work {case}",
            "first synchronize(), then start the clock",
        )
