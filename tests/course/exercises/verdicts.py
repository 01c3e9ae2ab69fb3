"""The tests that every table goes through."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any
from unittest import mock

import pytest

from amp_lessons import exercises
from amp_lessons.course.exercises import bed, shelf
from amp_lessons.course.exercises.attempt_table import Table

_OF_EACH_TABLE = {"wrong": 6, "right": 3}  # that `make test` takes; `make test-all` takes them all
_PATIENCE_S = 40.0  # beside other work a check waits; those of the limit itself are in other files


def tables() -> list[Table]:
    """List the attempts at every exercise, of interviews too; each has a table in its folder."""
    found = (*shelf.exercises(), *shelf.interview_tasks())
    return [import_module(f"{exercises.__name__}.{each.id}.attempts").TABLE for each in found]


def lesson_of(table: Table) -> str:
    """Return the number of the lesson that the table's exercise belongs to."""
    return shelf.find(table.exercise_id).lesson


def cases(tables: Iterable[Table], kind: str) -> list[Any]:
    """List the wrong or right attempts of some tables for parametrize.

    `make test` takes the first of each table; of wrong ones, one for each code, of right ones none that
    `test_catalogue.py` checks.
    """
    return [_case(table, name, kind) for table in tables for name in getattr(table, kind)]


def _case(table: Table, name: str, kind: str) -> Any:
    if kind == "wrong":
        mine = _first_of_its_code()[table.exercise_id]
    else:
        mine = [each for each in table.right if each != "the_solution"]  # which test_catalogue.py checks
    marks = () if name in mine[: _OF_EACH_TABLE[kind]] else pytest.mark.thorough
    return pytest.param(table, name, id=f"{table.exercise_id}-{name}", marks=marks)


@cache
def _first_of_its_code() -> dict[str, list[str]]:
    """Return of each exercise the wrong attempts that are the first of all to get their code."""
    known, found = set(), {}
    for table in tables():
        found[table.exercise_id] = []
        for name, (code, *_) in table.wrong.items():
            if code not in known:
                known.add(code)
                found[table.exercise_id].append(name)
    return found


def checked(exercise_id: str, attempt: Any) -> exercises.Report:
    """Check an attempt, with cases that are the same each time: some mistakes show in several ways."""
    with mock.patch.object(bed.secrets, "randbits", return_value=1):
        return exercises.check(exercise_id, attempt, time_limit_s=_PATIENCE_S)


def assert_wrong(table: Table, name: str) -> None:
    """Check that a wrong attempt is rejected for the reason in the table."""
    code, word, attempt = table.wrong[name]
    report = checked(table.exercise_id, attempt)
    assert report.status == "not passed", report
    assert report.findings[0].code == code, report
    assert word in report.findings[0].message, report
    hint = report.findings[0].hint
    assert hint
    assert hint.count("scaler.") <= 2, (
        "a check suggests the next step; the order of all calls is the exercise"
    )


def assert_right(table: Table, name: str) -> None:
    """Check that a right attempt passes, with the notes in the table."""
    notes, attempt = table.right[name]
    report = checked(table.exercise_id, attempt)
    assert report.passed, report
    assert tuple(f.code for f in report.findings if f.kind == "note") == notes, report
