"""Run a benchmark case by case; what was found is kept after each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path

from amp_lessons.course.bench.cases import BenchCase
from amp_lessons.course.bench.folders import files, path_for
from amp_lessons.course.bench.results import (
    Outcome,
    Recording,
    Result,
    Setup,
    UnreadableResultsError,
    read,
    set_aside,
    write,
)

FAILURES: tuple[Outcome, ...] = ("out of memory", "does not fit", "failed", "interrupted")


def resume(folder: Path, setup: Setup, preset: str) -> tuple[Path, Recording, str]:
    """Go on with the results of an earlier run with the same setup, or begin new ones.

    Return their file, what it holds, and in words what there was to say. A case during which the earlier
    process ended without a word becomes a result of its own: most often the system had run out of memory. A
    file that cannot be read is set aside, not overwritten.
    """
    path = path_for(folder, setup, preset)
    if not path.exists():
        return path, Recording(setup, preset), _others(folder, setup, preset)
    try:
        recording = read(path)
    except UnreadableResultsError as error:
        return path, Recording(setup, preset), f"{error}. It was set aside as {set_aside(path).name}."
    count = len(recording.results)
    words = f"{count} earlier results are kept." if count else ""
    if recording.running is None:
        return path, recording, words
    ended = _interrupted(recording)
    return path, recording.with_result(ended), f"{words} {' '.join(ended.key)}: {ended.message}.".strip()


def outstanding(
    cases: Sequence[BenchCase], recording: Recording, *, fresh: bool, retry: bool
) -> list[BenchCase]:
    """Return the cases without a result; ``retry`` adds those that failed, ``fresh`` all."""

    def is_done(case: BenchCase) -> bool:
        result = recording.results.get(case.key)
        return result is not None and not fresh and not (retry and result.outcome in FAILURES)

    return [case for case in cases if not is_done(case)]


def run_cases(
    cases: Sequence[BenchCase],
    recording: Recording,
    path: Path,
    measure: Callable[[BenchCase], Result],
) -> Recording:
    """Measure the cases in order and write the file after each; an interruption leaves it complete so far."""
    for case in cases:
        write(path, replace(recording, running=case.key))
        try:
            result = measure(case)
        except BaseException:
            write(path, recording)
            raise
        recording = recording.with_result(result)
        write(path, recording)
    return recording


def _interrupted(recording: Recording) -> Result:
    assert recording.running is not None
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    words = "the process ended while this ran, killed or out of main memory; --retry tries again"
    return Result(*recording.running, "interrupted", 0, now, words)


def _others(folder: Path, setup: Setup, preset: str) -> str:
    """Name the results of this device that were measured with another setup, and say what is different."""
    there = [
        f"{path.name} ({_differences(recording.setup, setup)})"
        for path, recording in files(folder)
        if recording.preset == preset and recording.setup.device == setup.device
    ]
    return f"Earlier results are of another setup and stay as they are: {', '.join(there)}." if there else ""


def _differences(then: Setup, now: Setup) -> str:
    before, after = asdict(then), asdict(now)
    changed = [f"{name} {before[name]}, now {after[name]}" for name in before if before[name] != after[name]]
    return "; ".join(changed)
