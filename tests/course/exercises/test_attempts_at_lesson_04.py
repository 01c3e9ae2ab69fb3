"""Lesson 04: every wrong attempt is rejected for the right reason, every right one accepted."""

from __future__ import annotations

import pytest

from amp_lessons import exercises
from amp_lessons.course.exercises import shelf
from amp_lessons.course.exercises.train_with_amp import attempts as train_with_amp
from tests.course.exercises.verdicts import assert_right, assert_wrong, cases, lesson_of, tables

TABLES = [table for table in tables() if lesson_of(table) == "04"]


@pytest.mark.parametrize(("table", "name"), cases(TABLES, "wrong"))
def test_wrong_loop_is_named(table, name):
    assert_wrong(table, name)


@pytest.mark.parametrize(("table", "name"), cases(TABLES, "right"))
def test_right_loop_passes(table, name):
    assert_right(table, name)


@pytest.mark.parametrize("exercise_id", [table.exercise_id for table in TABLES])
def test_no_hint_hands_over_a_line_of_the_solution(exercise_id):
    exercise = shelf.find(exercise_id)
    statements = {line.strip().rstrip(":") for line in exercise.solution_source.splitlines()}
    for hint in exercise.hints:
        words = " ".join(hint.split())
        assert [each for each in statements if "(" in each and each in words] == []


def test_a_detached_mean_is_told_how_to_become_a_float():
    report = exercises.check("train_with_amp", train_with_amp.TABLE.wrong["detached_tensors_logged"][2])
    assert "(total / n).item(), one float per epoch" in report.findings[0].hint


def test_who_gave_the_name_of_the_loss_to_the_scaled_one_is_told_so():
    attempt = train_with_amp.TABLE.wrong["name_of_the_loss_given_to_the_scaled_one"][2]
    report = exercises.check("train_with_amp", attempt)
    assert "the name means the scaled loss" in report.findings[0].hint


def test_the_scale_is_shown_where_the_gradient_at_the_loss_is_inf():
    report = exercises.check("train_with_amp", train_with_amp.TABLE.wrong["loss_outside_autocast"][2])
    scales = next(each for each in report.comparisons if each.quantity.startswith("loss scale"))
    assert scales.yours[0] == scales.expected[0] == 65536.0


@pytest.mark.parametrize(
    ("line", "instead", "code"),
    [
        ("loss / accumulation_steps", "loss", "loss_not_divided"),
        (" or i + 1 == len(loader)", "", "last_window_dropped"),
    ],
)
def test_the_weight_of_a_batch_in_its_window_is_not_shown_as_its_scale(line, instead, code):
    namespace = {}
    exec(exercises.solution("accumulate_gradients").source.replace(line, instead), namespace)
    report = exercises.check("accumulate_gradients", namespace["train_with_accumulation"])
    assert report.findings[0].code == code
    scales = next(each for each in report.comparisons if each.quantity.startswith("loss scale"))
    assert set(scales.yours) == set(scales.expected) == {65536.0}
