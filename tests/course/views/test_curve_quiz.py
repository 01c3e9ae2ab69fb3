"""Twelve curves, side by side and to be named."""

from __future__ import annotations

import numpy as np
import pytest

from amp_lessons import clinic, views
from amp_lessons.course.quizzes import question
from amp_lessons.course.views.widgets.loss_curves import describe
from tests.course.views.hands import press


@pytest.fixture
def quiz():
    return views.CurveQuiz()


def letter(number, right):
    choices = question(f"curves.{clinic.LOSS_CURVES[number - 1]}").choices
    return "abcd"[[choice.right for choice in choices].index(right)]


def test_the_next_curve_brings_its_own_question(quiz):
    assert quiz.caption.startswith("Curve 1: ")
    press(quiz, "Next curve")
    assert quiz.number == 2
    assert quiz.caption == f"Curve 2: {describe(clinic.loss_curve(clinic.LOSS_CURVES[1]))}"
    quiz.choose(letter(2, True))
    assert quiz.verdict == f"Yes. {question('curves.one_autocast').answer.why}"


def test_after_the_last_comes_the_first(quiz):
    quiz.number = 12
    quiz.next()
    assert quiz.number == 1


def test_only_the_first_answer_to_a_curve_counts(quiz):
    quiz.choose(letter(1, False))
    quiz.choose(letter(1, True))
    quiz.next()
    quiz.choose(letter(2, True))
    assert quiz.score == "Right at the first try: 1 of 2 tried, of 12 in all."
    assert quiz.score in quiz.children[-1].value


def test_some_of_the_curves_keep_their_numbers():
    quiz = views.CurveQuiz(range(7, 13))
    assert quiz.caption.startswith("Curve 7: ")
    quiz.number = 12
    quiz.choose(letter(12, True))
    assert quiz.score == "Right at the first try: 1 of 1 tried, of 6 in all."
    quiz.next()
    assert quiz.number == 7


def test_without_a_kernel_all_questions_are_there_with_their_answers_folded(quiz):
    bundle = quiz._repr_mimebundle_()
    assert bundle["text/markdown"].count("<details>") == 12
    assert "image/png" not in bundle
    assert bundle["text/plain"].count("What is it?") == 12


@pytest.mark.parametrize("numbers", [range(1, 13), range(7, 13), (2, 3, 5, 8)])
def test_the_gallery_numbers_the_curves_and_names_no_cause(numbers):
    shown = views.loss_curves(numbers)
    titles = [axes.get_title() or axes.get_title(loc="left") for axes in shown.picture.figure.axes]
    assert [title for title in titles if title] == [str(number) for number in numbers]
    assert all(axes.lines for axes in shown.picture.figure.axes)
    written = [text.get_text() for axes in shown.picture.figure.axes for text in axes.texts]
    assert set(written) <= {"NaN"}
    assert shown._repr_mimebundle_()["text/plain"].startswith(f"[measured] {len(numbers)} trainings")


def test_a_curve_is_said_in_words():
    assert "of the last nan" in describe(clinic.loss_curve("past_the_scaler"))
    assert "the averaged weights" in describe(clinic.loss_curve("average_in_half"))
    assert describe(clinic.loss_curve("fp32")).endswith("no loss scaling.")


def test_in_the_gallery_no_scale_is_drawn_over_a_word():
    picture = views.loss_curves(range(1, 7)).picture
    picture.png()
    words = [text for axes in picture.figure.axes for text in axes.texts]
    assert [text.get_text() for text in words] == ["NaN"]
    for text in words:
        box = text.get_window_extent()
        lines = [line for axes in picture.figure.axes for line in axes.lines]
        drawn = np.concatenate([line.get_transform().transform(line.get_path().vertices) for line in lines])
        assert not any(box.contains(x, y) for x, y in drawn)


def test_a_curve_beside_the_loss_is_spoken_of_where_there_is_one():
    assert "dotted" not in views.loss_curves(range(1, 7)).caption
    assert "dotted" in views.loss_curves(range(7, 13)).caption
