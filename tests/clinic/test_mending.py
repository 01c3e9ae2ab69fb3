"""Lesson 06: every half-mended patient is rejected for the right reason, every healed one accepted."""

from __future__ import annotations

import pytest

from tests.exercises.verdicts import (
    assert_right,
    assert_same_both_ways,
    assert_wrong,
    cases,
    lesson_of,
    sample,
    tables,
)

TABLES = [table for table in tables() if lesson_of(table) == "06"]


@pytest.mark.parametrize(("table", "name"), cases(TABLES, "wrong"))
def test_half_mended_code_is_named(table, name):
    assert_wrong(table, name)


@pytest.mark.parametrize(("table", "name"), cases(TABLES, "right"))
def test_healed_code_passes(table, name):
    assert_right(table, name)


@pytest.mark.parametrize(("table", "name"), sample(TABLES))
def test_both_ways_see_the_same(table, name):
    assert_same_both_ways(table, name)
