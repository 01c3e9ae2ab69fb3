"""Between the walls: define what a learner has written, check it in this process, and report.

This is for exercises whose check watches how the attempt uses PyTorch; it runs only what the gate has let
through. What the report says is data, and its reader takes nothing else.
"""

from __future__ import annotations

import linecache
import os
import sys
from typing import Any

from amp_lessons.audit.findings import Finding
from amp_lessons.exercises import checking, shelf
from amp_lessons.exercises.attempt import Rejected, run
from amp_lessons.exercises.containment import isolation
from amp_lessons.exercises.exercise import Exercise
from amp_lessons.exercises.report.results import Report
from amp_lessons.grading import frames

FILE = "<submission>"


def main() -> None:
    """Answer one request."""
    incoming, outgoing = map(int, sys.argv[1:3])
    request = frames.read(incoming)
    os.makedirs(os.environ["AMP_LESSONS_HOME"], exist_ok=True)
    exercise = shelf.find(request["exercise"])
    _ = exercise.check  # importing it takes time that is not the learner's
    isolation.load_what_pytorch_loads_late()
    frames.write(outgoing, {"ready": True})
    report = _report(exercise, request["source"], request["limit_s"])
    frames.write(outgoing, as_data(report))


def _report(exercise: Exercise, source: str, limit_s: float) -> Report:
    result = isolation.run_in_process(lambda: _defined_or_said(source), limit_s)
    if result.ending != "finished":
        return Report(exercise.id, exercise.title, (checking.ended_early(result, limit_s),))
    namespace, said = result.value
    if said:
        return Report(exercise.id, exercise.title, said)
    return checking.examine(exercise, exercise.defined_in(namespace), limit_s, "inprocess")


def _defined_or_said(source: str) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Return what the attempt defines, or what is to be said where it cannot even be defined."""
    try:
        return run(defined, source, about="while it was defined"), ()
    except Rejected as rejected:
        return {}, tuple(each for each in rejected.said if isinstance(each, Finding))


def defined(source: str) -> dict[str, Any]:
    """Run ``source`` as a cell of a notebook; return what it defines. Raises what it raises."""
    linecache.cache[FILE] = (len(source), None, source.splitlines(True), FILE)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, FILE, "exec"), namespace)
    return namespace


def as_data(report: Report) -> dict[str, Any]:
    """Return what a report says, as JSON can hold it."""
    return {
        "findings": [[each.kind, each.code, each.message, each.hint] for each in report.findings],
        "comparisons": [
            [each.quantity, each.index, list(map(float, each.expected)), list(map(float, each.yours))]
            for each in report.comparisons
        ],
        "printed": report.printed,
    }


if __name__ == "__main__":
    main()
