"""A question: its answers, what is kept of them, and what can be read without a kernel."""

import pytest

from amp_lessons.course import progress
from amp_lessons.course.quizzes import Choice, Question, question, questions
from amp_lessons.course.views import Quiz
from tests.course.keep import keep


def asked():
    return Question("t.q", "2 + 2?", (Choice("3", "One short."), Choice("4", "Count them.", right=True)))


def says(quiz):
    """Return what a quiz says below its answers, and the signs on these."""
    signs = [each._dom_classes for each in quiz.children[1:-2]]
    return quiz.children[-2].value, [set(each) & {"amp-right", "amp-wrong"} for each in signs]


def test_the_next_day_the_first_answer_is_shown_and_can_be_put_away():
    floor = question("scaling.floor")
    wrong = next(k for k, choice in enumerate(floor.choices) if not choice.right)
    Quiz("scaling.floor").choose("abcd"[wrong])
    later = Quiz("scaling.floor")
    said, signs = says(later)
    assert f"Your first answer, on {progress.read().answers['scaling.floor'].at[:10]}. Not quite." in said
    assert signs == [{"amp-wrong"} if k == wrong else set() for k in range(len(floor.choices))]
    assert later.chosen is None, "a stored page must not hold whose answer it was"
    later.children[-1].click()
    assert says(later) == ("", [set()] * len(floor.choices))
    assert later.children[-1].layout.display == "none"
    right = floor.choices.index(floor.answer)
    later.choose("abcd"[right])
    said, signs = says(Quiz("scaling.floor"))
    assert f"It was not right. You found the right one later. Yes. {floor.answer.why}" in said
    assert [bool(each) for each in signs] == [k in (wrong, right) for k in range(len(floor.choices))]
    assert f"{floor.answer.text} ← found on" in Quiz("scaling.floor").stand_in()


def test_an_answer_kept_by_an_older_version_is_told_without_a_sign():
    keep("answer", "scaling.floor", True)
    said, signs = says(Quiz("scaling.floor"))
    assert "It was right." in said
    assert not any(signs)


def test_without_a_kernel_the_answer_can_be_unfolded():
    shown = Quiz(asked())._repr_mimebundle_()
    assert shown["text/plain"] == "2 + 2?\na) 3\nb) 4"
    text = shown["text/markdown"]
    assert text.index("b) 4") < text.index("<details>") < text.index("Count them.")


@pytest.mark.parametrize("rights", [(False, False), (True, True)])
def test_a_question_has_exactly_one_right_answer(rights):
    with pytest.raises(ValueError, match="right"):
        Question("t.q", "?", tuple(Choice("x", "y", right) for right in rights))


def test_an_unknown_question_names_the_nearest():
    with pytest.raises(KeyError, match=r"scaling\.floor"):
        question("scaling.flor")


def test_the_questions_of_the_course_explain_every_choice():
    for id, q in questions().items():
        assert 2 <= len(q.choices) <= 4, id
        assert len({choice.text for choice in q.choices}) == len(q.choices), id
        assert all(len(choice.why.split()) >= 4 for choice in q.choices), id
