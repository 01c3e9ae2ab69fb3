"""Every wrong attempt in the tables is rejected for the right reason, every right one accepted."""

from __future__ import annotations

from typing import Any

import pytest

from amp_lessons import exercises
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


def _id(value: Any) -> str:
    return value if isinstance(value, str) else value.exercise_id


@pytest.mark.parametrize("way", ["fork", "inprocess"])
@pytest.mark.parametrize(("table", "name"), WRONG, ids=_id)
def test_wrong_attempt_is_named(table, name, way):
    code, word, attempt = table.wrong[name]
    report = exercises.check(table.exercise_id, attempt, isolation=way)
    assert report.status == "not passed", report
    assert report.findings[0].code == code, report
    assert word in report.findings[0].message, report
    assert report.findings[0].hint


@pytest.mark.parametrize("way", ["fork", "inprocess"])
@pytest.mark.parametrize(("table", "name"), RIGHT, ids=_id)
def test_right_attempt_passes(table, name, way):
    notes, attempt = table.right[name]
    report = exercises.check(table.exercise_id, attempt, isolation=way)
    assert report.passed, report
    assert tuple(f.code for f in report.findings if f.kind == "note") == notes, report
