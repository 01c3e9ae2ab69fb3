"""What is wrong with a measured time: its unit, its clock, or where the clock was read."""

from __future__ import annotations

from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.time_step.fake_clockwork import PROCESSOR_CLOCKS
from amp_lessons.exercises.time_step.runs import Seen


def mistake_when_steady(seen: Seen) -> Finding | None:
    """Name what is wrong where all samples are equal, so that the statistic cannot be to blame."""
    if seen.is_median:
        return None
    case = f"for {seen.case.what}"
    return (
        _wrong_unit(seen, case) or _wrong_clock(seen, case) or _wrong_count(seen, case) or _wrong_time(seen)
    )


def _wrong_unit(seen: Seen, case: str) -> Finding | None:
    for unit, factor in (("seconds", 1e-3), ("microseconds", 1e3), ("nanoseconds", 1e6)):
        if seen.shows(seen.right, factor):
            return failed(
                "wrong_unit",
                f"the time is in {unit} {case}",
                "perf_counter counts seconds: multiply the difference by 1e3",
            )
    return None


def _wrong_clock(seen: Seen, case: str) -> Finding | None:
    if seen.readings & PROCESSOR_CLOCKS and seen.value < 0.05 * seen.right:
        return failed(
            "not_wall_clock",
            f"the clock stood still while the step waited {case}",
            "process_time counts the processor's work for this process only; time.perf_counter() counts time",
        )
    return None


def _wrong_count(seen: Seen, case: str) -> Finding | None:
    samples, everything = sum(seen.samples), sum(seen.everything)
    if seen.shows(samples) or seen.shows(everything):
        warm_up = "" if seen.shows(samples) else ", those of the warm-up as well"
        return failed(
            "total_time",
            f"this is the time of all calls together{warm_up} {case}",
            "one sample per call, then median",
        )
    if seen.shows(everything / len(seen.samples)):
        return warm_up_counted(case)
    if seen.shows(seen.right / len(seen.samples)):
        return failed(
            "divided_twice",
            f"this is the time of one call divided by repeats {case}",
            "each sample holds one call: there is nothing to divide by",
        )
    return None


def warm_up_counted(case: str) -> Finding:
    """Say that samples of the warm-up are among those that were used."""
    return failed(
        "warm_up_counted",
        f"the warm-up calls were timed as well {case}",
        "keep only samples of the calls that come after the warm-up",
    )


def _wrong_time(seen: Seen) -> Finding:
    return failed(
        "wrong_time",
        f"{seen.value:.4g} ms were returned for {seen.case.what}; {seen.right:.4g} ms would be right",
        "clock and synchronize right before and right after one call of fn, and nothing else in between",
    )


def mistake_with_launches(seen: Seen) -> Finding | None:
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
