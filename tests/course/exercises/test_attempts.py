"""Every wrong attempt at the exercises is rejected for the right reason, every right one accepted."""

from __future__ import annotations

import pytest

from tests.course.exercises.verdicts import assert_right, assert_wrong, cases, lesson_of, tables

TABLES = [
    table for table in tables() if lesson_of(table) not in ("04", "06")
]  # which have files of their own


@pytest.mark.parametrize(("table", "name"), cases(TABLES, "wrong"))
def test_wrong_attempt_is_named(table, name):
    assert_wrong(table, name)


@pytest.mark.parametrize(("table", "name"), cases(TABLES, "right"))
def test_right_attempt_passes(table, name):
    assert_right(table, name)


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.exercise_id)
def test_tables_are_long_enough(table):
    wrong, right = (30, 10) if table.exercise_id == "train_with_amp" else (6, 3)
    assert len(table.wrong) >= wrong
    assert len(table.right) >= right
