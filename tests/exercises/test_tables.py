"""Every wrong attempt in the tables is rejected for the right reason, every right one accepted."""

from __future__ import annotations

from typing import Any

import pytest

from amp_lessons import exercises
from amp_lessons.exercises import isolation
from tests.exercises.attempts import (
    accumulate_gradients,
    clip_gradients,
    decode_bits,
    fp32_island,
    largest_safe_scale,
    loss_scaler,
    predict_dtypes,
    resume_training,
    round_to_bfloat16,
    train_with_amp,
    two_optimizers,
)
from tests.exercises.attempts.table import Table

MODULES = (
    decode_bits,
    round_to_bfloat16,
    predict_dtypes,
    fp32_island,
    largest_safe_scale,
    loss_scaler,
    train_with_amp,
    clip_gradients,
    accumulate_gradients,
    two_optimizers,
    resume_training,
)
TABLES = {module.TABLE.exercise_id: module.TABLE for module in MODULES}
WRONG = [(table, name) for table in TABLES.values() for name in table.wrong]
RIGHT = [(table, name) for table in TABLES.values() for name in table.right]
# a sample in this process: what a check sees does not depend on where it runs
BOTH_WAYS = WRONG[::6] + RIGHT[::3]


def _id(value: Any) -> str:
    return value if isinstance(value, str) else value.exercise_id


def _attempt(table: Table, name: str) -> Any:
    return table.wrong[name][2] if name in table.wrong else table.right[name][1]


@pytest.mark.parametrize(("table", "name"), WRONG, ids=_id)
def test_wrong_attempt_is_named(table, name):
    code, word, attempt = table.wrong[name]
    report = exercises.check(table.exercise_id, attempt)
    assert report.status == "not passed", report
    assert report.findings[0].code == code, report
    assert word in report.findings[0].message, report
    assert report.findings[0].hint


@pytest.mark.parametrize(("table", "name"), RIGHT, ids=_id)
def test_right_attempt_passes(table, name):
    notes, attempt = table.right[name]
    report = exercises.check(table.exercise_id, attempt)
    assert report.passed, report
    assert tuple(f.code for f in report.findings if f.kind == "note") == notes, report


@pytest.mark.skipif(not isolation.can_fork(), reason="there is only one way on this machine")
@pytest.mark.parametrize(("table", "name"), BOTH_WAYS, ids=_id)
def test_both_ways_see_the_same(table, name):
    reports = [
        exercises.check(table.exercise_id, _attempt(table, name), isolation=way)
        for way in ("fork", "inprocess")
    ]
    assert reports[0].findings == reports[1].findings


@pytest.mark.parametrize("table", TABLES.values(), ids=_id)
def test_tables_are_long_enough(table):
    wrong, right = (30, 10) if table.exercise_id == "train_with_amp" else (6, 3)
    assert len(table.wrong) >= wrong
    assert len(table.right) >= right


def test_every_exercise_has_a_table():
    assert list(TABLES) == [exercise.id for exercise in exercises.catalog()]
