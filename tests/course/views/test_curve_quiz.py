"""Twelve curves, side by side and to be named."""

from __future__ import annotations

import numpy as np
import pytest

from amp_lessons import clinic, views
from amp_lessons.course.quizzes import question
from amp_lessons.course.views.widgets.loss_curves import describe
from tests.course.views.hands import written


def letter(number, right):
    choices = question(f"curves.{clinic.LOSS_CURVES[number - 1]}").choices
    return "abcd"[[choice.right for choice in choices].index(right)]


def test_some_of_the_curves_keep_their_numbers_and_after_the_last_comes_the_first():
    quiz = views.CurveQuiz(range(7, 13))
    assert quiz.caption.startswith("Curve 7: ")
    quiz.number = 12
    quiz.choose(letter(12, True))
    assert quiz.score == "Right at the first try: 1 of 1 tried, of 6 in all."
    quiz.next()
    assert quiz.number == 7


def test_without_a_kernel_all_questions_are_there_with_their_answers_folded():
    bundle = views.CurveQuiz()._repr_mimebundle_()
    assert bundle["text/markdown"].count("<details>") == 12
    assert "image/png" not in bundle
    assert bundle["text/plain"].count("What is it?") == 12


@pytest.mark.parametrize(("numbers", "beside"), [(range(1, 7), False), (range(7, 13), True), ((2, 3), False)])
def test_the_gallery_numbers_the_curves_names_no_cause_and_draws_no_scale_over_a_word(numbers, beside):
    shown = views.loss_curves(numbers)
    every_axes = shown.picture.figure.axes
    titles = [axes.get_title() or axes.get_title(loc="left") for axes in every_axes]
    assert [title for title in titles if title] == [str(number) for number in numbers]
    assert all(axes.lines for axes in every_axes)
    assert {word for axes in every_axes for word in written(axes)} <= {"NaN"}
    assert shown._repr_mimebundle_()["text/plain"].startswith(f"[measured] {len(numbers)} training runs")
    assert ("dotted" in shown.caption) == beside
    shown.picture.png()
    lines = [line for axes in every_axes for line in axes.lines]
    drawn = np.concatenate([line.get_transform().transform(line.get_path().vertices) for line in lines])
    for box in (text.get_window_extent() for axes in every_axes for text in axes.texts):
        assert not any(box.contains(x, y) for x, y in drawn)


def test_a_curve_is_said_in_words():
    assert "of the last nan" in describe(clinic.loss_curve("past_the_scaler"))
    assert "the averaged weights" in describe(clinic.loss_curve("average_in_half"))
    assert describe(clinic.loss_curve("fp32")).endswith("no loss scaling.")
