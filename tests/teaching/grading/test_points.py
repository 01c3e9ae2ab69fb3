"""Every report says its points, from 0.0 to 1.0: that is what graders read."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from amp_lessons import audit, exercises
from amp_lessons.audit.findings import Sighting, failed, note, passed, todo
from amp_lessons.course.interview.reporting import MockReport


def reports() -> Iterator[type]:
    """Yield the classes of the package that are called a report."""
    for room in ("course.exercises.report", "audit.report", "course.interview", "advice"):
        package = importlib.import_module(f"amp_lessons.{room}")
        for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            names = vars(importlib.import_module(info.name)).items()
            yield from (each for name, each in names if name.endswith("Report") and inspect.isclass(each))


def test_every_report_has_points():
    assert {each.__qualname__ for each in reports()} >= {"Report", "MockReport"}
    assert not [each for each in reports() if not isinstance(getattr(each, "points", None), property)]


@pytest.mark.parametrize(
    ("findings", "points"),
    [
        ((passed("a", "m"), note("b", "m")), 1.0),
        ((failed("a", "m", "h"), passed("b", "m")), 0.0),
        ((todo("m"),), 0.0),
        ((), 0.0),
    ],
)
def test_a_check_gives_points_for_a_solved_exercise(findings, points):
    assert exercises.Report("id", "title", findings).points == points


def test_an_audit_gives_points_where_no_mistake_was_seen():
    assert audit.Report(()).points == 1.0
    assert audit.Report((Sighting("a", "failed", "m"),)).points == 0.0


def test_an_interview_gives_the_share_that_was_covered():
    question, code = (SimpleNamespace(minutes=minutes) for minutes in (5, 15))
    turns = (SimpleNamespace(asked=question, share=0.4), SimpleNamespace(asked=code, share=1.0))
    assert MockReport("junior", 20, 0, turns).points == (0.4 * 5 + 15) / 20
    assert MockReport("junior", 20, 0, ()).points == 0.0
