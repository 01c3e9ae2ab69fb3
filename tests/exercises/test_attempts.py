"""Every wrong attempt at the other exercises is rejected for the right reason, every right one accepted."""

from __future__ import annotations

import pytest

from amp_lessons import exercises
from tests.exercises.attempts import (
    accumulate_gradients,
    activation_bytes,
    clip_gradients,
    decode_bits,
    fp32_island,
    largest_safe_scale,
    loss_scaler,
    predict_dtypes,
    resume_training,
    round_to_bfloat16,
    time_step,
    train_with_amp,
    two_optimizers,
)
from tests.exercises.attempts.verdicts import assert_right, assert_same_both_ways, assert_wrong, cases, sample

TABLES = [
    module.TABLE
    for module in (
        decode_bits,
        round_to_bfloat16,
        predict_dtypes,
        fp32_island,
        largest_safe_scale,
        loss_scaler,
        two_optimizers,
        resume_training,
        time_step,
        activation_bytes,
    )
]
LOOPS = [module.TABLE for module in (train_with_amp, clip_gradients, accumulate_gradients)]


@pytest.mark.parametrize(("table", "name"), cases(TABLES, "wrong"))
def test_wrong_attempt_is_named(table, name):
    assert_wrong(table, name)


@pytest.mark.parametrize(("table", "name"), cases(TABLES, "right"))
def test_right_attempt_passes(table, name):
    assert_right(table, name)


@pytest.mark.parametrize(("table", "name"), sample(TABLES))
def test_both_ways_see_the_same(table, name):
    assert_same_both_ways(table, name)


@pytest.mark.parametrize("table", TABLES + LOOPS, ids=lambda table: table.exercise_id)
def test_tables_are_long_enough(table):
    wrong, right = (30, 10) if table.exercise_id == "train_with_amp" else (6, 3)
    assert len(table.wrong) >= wrong
    assert len(table.right) >= right


def test_every_exercise_has_a_table():
    assert {table.exercise_id for table in TABLES + LOOPS} == {e.id for e in exercises.catalog()}
