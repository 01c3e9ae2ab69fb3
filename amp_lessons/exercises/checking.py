"""Check one attempt: contained, within its time, and always ending in a report."""

from __future__ import annotations

from typing import Any

from amp_lessons.audit.findings import Finding, failed, note
from amp_lessons.exercises import ranks
from amp_lessons.exercises.attempt import Attempt, Rejected
from amp_lessons.exercises.containment import isolation
from amp_lessons.exercises.exercise import Exercise
from amp_lessons.exercises.report.results import Report, SideBySide
from amp_lessons.text.describing import describe

_MANY_CHARACTERS = 100_000
_ORDER = {"todo": 0, "failed": 1, "note": 2, "passed": 3}


def examine(exercise: Exercise, attempt: Any, time_limit_s: float, way: isolation.Way) -> Report:
    """Examine ``attempt`` and report, within the limit and without any other effect, whatever it does."""
    if exercise.on_ranks:  # the learner's code runs in processes of its own, which this one has to start
        ranks.prepare()
        way = "inprocess"
    result = isolation.run(lambda: _said(exercise, Attempt(attempt, exercise.names)), time_limit_s, way)
    said = result.value if result.ending == "finished" else (ended_early(result, time_limit_s),)
    findings = [each for each in (*said, *_about_output(result)) if isinstance(each, Finding)]
    findings.sort(key=lambda finding: _ORDER[finding.kind])  # stable: the first failure stays the root cause
    comparisons = tuple(each for each in said if isinstance(each, SideBySide))
    return Report(exercise.id, exercise.title, tuple(findings), comparisons, result.printed)


def _said(exercise: Exercise, attempt: Attempt) -> tuple[Finding | SideBySide, ...]:
    """Return what the check says of an attempt, each thing once; of a rejected one nothing but why."""
    try:
        return tuple(dict.fromkeys(exercise.check(attempt)))
    except Rejected as rejected:
        return rejected.said
    except Exception as error:  # a mistake in the check must read as one, and must not become a traceback
        return (_checker_failed(error),)


def _checker_failed(error: Exception) -> Finding:
    return failed(
        "checker_failed",
        f"the check itself could not cope with this attempt: {describe(error)}",
        "this is a mistake in the course, not in your code; please report it with the code you checked",
    )


def ended_early(result: isolation.Result, limit_s: float) -> Finding:
    """Report code that did not come to its end within ``limit_s`` seconds."""
    if result.ending == "out of time":
        place = f"; it was at {result.stopped_at}" if result.stopped_at else ""
        return failed(
            "time_limit",
            f"your code was still running after {limit_s:g} seconds{place}",
            "look for a loop that never ends; on these small problems a right solution takes well under a "
            "second",
        )
    return failed(
        "process_ended",
        f"your code ended the process it ran in ({_cause_of_death(result.exit_code)}); the notebook's "
        "kernel was not affected",
        "return a value, or raise an exception; if you did not end it on purpose, it may have run out of "
        "memory",
    )


def _cause_of_death(exit_code: int) -> str:
    return f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"


def _about_output(result: isolation.Result) -> list[Finding]:
    if result.characters_printed < _MANY_CHARACTERS:
        return []
    message = f"your code printed {result.characters_printed:,} characters; the report shows the first few"
    return [note("prints_a_lot", message, "print once per epoch, not once per batch or value")]
