"""Check one attempt: contained, within its time, and always ending in a report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from amp_lessons import autocast
from amp_lessons.audit.findings import Finding
from amp_lessons.exercises import bed
from amp_lessons.exercises.attempt import Attempt, Rejected
from amp_lessons.exercises.containment import isolation
from amp_lessons.exercises.exercise import Exercise
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.report.results import Report, SideBySide
from amp_lessons.exercises.watching.tape import device_type

_ORDER = {"todo": 0, "failed": 1, "note": 2, "passed": 3}


def examine(exercise: Exercise, attempt: Any, time_limit_s: float, way: isolation.Way) -> Report:
    """Examine ``attempt`` and report, within the limit and without any other effect, whatever it does."""
    if exercise.is_on_bench:
        return _by_bench(exercise, attempt, time_limit_s)
    if _has_to_hold_on_cuda_too(exercise):
        _read_cuda_rules()
    result = isolation.run(lambda: _said(exercise, Attempt(attempt, exercise.names)), time_limit_s, way)
    said = result.value if result.ending == "finished" else (ended_early(result, time_limit_s),)
    said = (*said, *common_findings.about_output(result.characters_printed))
    findings = [each for each in said if isinstance(each, Finding)]
    findings.sort(key=lambda finding: _ORDER[finding.kind])  # stable: the first failure stays the root cause
    comparisons = tuple(each for each in said if isinstance(each, SideBySide))
    return Report(exercise.id, exercise.title, tuple(findings), comparisons, result.printed)


def _by_bench(exercise: Exercise, attempt: Any, time_limit_s: float, seed: int | None = None) -> Report:
    return reported(exercise, bed.examine(exercise.id, attempt, time_limit_s, seed))


def reported(exercise: Exercise, said: dict[str, Any]) -> Report:
    """Make a report of what a judge has said, mistakes before remarks before what holds."""
    findings = sorted((Finding(*each) for each in said["findings"]), key=lambda each: _ORDER[each.kind])
    comparisons = tuple(
        SideBySide(quantity, index, tuple(expected), tuple(yours))
        for quantity, index, expected, yours in said["comparisons"]
    )
    return Report(exercise.id, exercise.title, tuple(findings), comparisons, said["printed"])


def not_attempted(exercise: Exercise) -> Report:
    """Report that a patient is still as it came, and what to do; its mistake is for the learner to find."""
    return Report(exercise.id, exercise.title, (common_findings.as_it_came(exercise.names),))


def _said(exercise: Exercise, attempt: Attempt) -> tuple[Finding | SideBySide, ...]:
    """Return what the check says of an attempt: by the autocast rules of this device, then by CUDA's.

    The two have different lists, and what is right here may be wrong on the GPU that it is meant for.
    """
    said = _said_here(exercise, attempt)
    if _refused(said) or not _has_to_hold_on_cuda_too(exercise):
        return said
    with autocast.cuda_rules():
        on_cuda = _said_here(exercise, attempt)
    return tuple(map(_by_cuda_rules, on_cuda)) if _refused(on_cuda) else said


def _read_cuda_rules() -> None:
    """Ask PyTorch for CUDA's rules, once for this process: a child would ask again at each check."""
    with autocast.cuda_rules():
        pass


def _has_to_hold_on_cuda_too(exercise: Exercise) -> bool:
    return exercise.meets_autocast and device_type() == "cpu"


def _refused(said: tuple[Finding | SideBySide, ...]) -> bool:
    return not all(each.ok for each in said if isinstance(each, Finding))


def _by_cuda_rules(each: Finding | SideBySide) -> Finding | SideBySide:
    """Say of a finding that it holds on a GPU, whose autocast has other lists than a CPU's."""
    if not isinstance(each, Finding):
        return each
    return replace(each, message=f"right by this CPU's autocast, and not by CUDA's: {each.message}")


def _said_here(exercise: Exercise, attempt: Attempt) -> tuple[Finding | SideBySide, ...]:
    """Return what the check says of an attempt, each thing once; of a rejected one nothing but why."""
    try:
        return tuple(dict.fromkeys(exercise.check(attempt)))
    except Rejected as rejected:
        return rejected.said
    except Exception as error:  # a mistake in the check must read as one, and must not become a traceback
        return (common_findings.checker_failed(error),)


def ended_early(result: isolation.Result, limit_s: float) -> Finding:
    """Report code that did not come to its end within ``limit_s`` seconds."""
    if result.ending == "out of time":
        return common_findings.out_of_time(limit_s, result.stopped_at)
    return common_findings.ended(_cause_of_death(result.exit_code))


def _cause_of_death(exit_code: int) -> str:
    return f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
