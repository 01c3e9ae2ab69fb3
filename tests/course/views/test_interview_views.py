"""The interview room's views: pressed as a learner presses them, and read where there is no kernel."""

from __future__ import annotations

import pytest

from amp_lessons import interview, views
from amp_lessons._base.text import prose
from amp_lessons.course import progress
from amp_lessons.course.interview import Deck
from amp_lessons.course.interview.planning import asked_question
from tests.course.views.hands import Clock, press

WHY = "loss_scaling.why"


def tick(rubric, *places):
    for place in places:
        rubric._points.children[place].value = True


def test_a_proof_is_shown_below_the_card_and_when_nothing_is_due_the_view_says_so():
    cards = views.FlashCards(first=WHY)
    press(cards, "Turn the card")
    press(cards, "Show the proof")
    assert "what it came to" in cards._proof.value
    cards = views.FlashCards(Deck("loss_scaling", new_a_day=0))
    assert cards.card is None
    assert "That is all for today" in cards._front.value


def test_trouble_with_the_file_is_told_and_the_view_lives_on(progress_home):
    cards = views.FlashCards(first=WHY)
    progress_home.mkdir()
    progress.path().write_text('{"schema": 99, "exercises": {}}')
    cards.turn()
    cards.grade("good")
    assert "newer version" in cards.status
    assert cards.card.id == WHY


def test_a_stored_card_is_the_same_for_everyone_and_drills_can_be_read():
    before = views.FlashCards(first=WHY)._repr_mimebundle_()
    Deck().grade(WHY, "good")
    after = views.FlashCards(first=WHY)._repr_mimebundle_()
    assert all(before[mime] == after[mime] for mime in ("text/plain", "text/markdown"))
    assert "<details>" in after["text/markdown"]
    drills = views.DrillView(seed=0, number=4)._repr_mimebundle_()
    assert drills["text/markdown"].count("<details>") == 3


def test_the_first_answer_counts_if_it_comes_in_time():
    clock = Clock()
    drill = views.DrillView(seed=3, number=3, clock=clock)
    letters = "abcdefgh"
    clock.at += 500  # reading what comes is not answering it
    press(drill, "Start")
    assert drill._countdown.state["left_s"] == 50
    drill.choose(letters[drill.drill.right])
    drill.next()
    clock.at += 51
    drill.choose(letters[drill.drill.right])
    drill.next()
    drill.choose(letters[drill.drill.right - 1])
    drill.choose(letters[drill.drill.right])
    assert drill.score == "2 of 3 right, 1 of them in time. There are 3 in all."
    assert drill.verdict.startswith("Yes.")


def test_a_curve_comes_with_its_picture():
    drill = views.DrillView(seed=0, number=4)
    drill.start()
    while not drill.drill.curve:
        assert drill._picture.value == ""
        drill.next()
    assert "<img" in drill._picture.value


@pytest.fixture
def mock():
    """A mock interview that was begun."""
    view = views.MockInterview("senior", 60, 1, clock=Clock())
    press(view, "Start")
    return view


def go_on(view, kind=None):
    """Answer what is asked; with a ``kind``, until something of that kind is asked."""
    if kind:
        while view.asked.kind != kind:
            go_on(view)
    elif view.asked.kind == "question":
        view.reveal()
        view.answer()
    elif view.asked.kind == "estimate":
        view._number.value = "1"
    else:
        press(view, "Give up on the code")


def test_it_is_the_interview_of_its_seed(mock):
    first = mock.asked
    assert first == interview.Mock("senior", 60, 1).asked
    assert "60 minutes left" in mock._said.value
    press(mock, "Show what a good answer covers")
    assert first.answer not in mock._rubric._answer.value, "it comes last"
    tick(mock._rubric, 0)
    press(mock, "Next question")
    assert first.points[1] in mock.asked.text, "the point that was left out"
    assert "A model answer" not in mock._said.value
    mock._clock.at += 600
    go_on(mock)
    assert "asked with 50 minutes left" in mock._said.value
    order = [mock._said.value.index(str(prose.as_html(each))) for each in (first.text, first.answer)]
    assert order[0] < mock._said.value.index("A model answer") < order[1]
    assert order[1] < mock._said.value.index(str(prose.as_html(mock.asked.text)))


def test_answers_are_taken_back_it_ends_in_a_report_and_who_was_fast_is_offered_another(mock):
    first = mock.asked
    assert mock._back.layout.display == mock._more.layout.display == "none"
    go_on(mock)
    press(mock, "Take the last answer back")
    assert mock.asked == first
    assert not mock.report.turns
    while mock.asked:
        go_on(mock)
    assert "<h4>To repeat</h4>" in mock._said.value
    assert "there are 60 minutes left" in mock._said.value
    assert mock._end.disabled
    assert views.report_page(mock.report).count("<h2>") == 4
    press(mock, "Take the last answer back")
    assert mock.asked is not None
    assert not mock._end.disabled
    go_on(mock)
    press(mock, "Another question")
    assert mock.asked.kind == "question"
    assert mock._more.layout.display == "none"
    mock.end()
    assert mock._more.layout.display == "none"


def test_a_number_that_is_none_is_asked_for_again(mock):
    go_on(mock, "estimate")
    asked, label = mock.asked, mock._number.label
    mock._number.value = "a lot"
    assert "is not one number" in mock._number.error
    assert mock.asked == asked
    mock._number.value = f"{asked.estimate.value}"
    assert ": near enough." in mock._said.value
    assert f"within {100 * asked.estimate.tolerance:.0f} %" in label
    assert mock._number.error == ""


def test_a_number_without_a_unit_is_asked_for_without_one(mock):
    drawn = interview.question("estimation.needed_scale")
    mock.mock.asked = asked_question(drawn)
    mock._ask()
    assert mock._number.label.startswith("your number, within ")
    mock._number.value = "about 1"
    assert f"1: no, it is {interview.estimate(drawn.id, 0).value:.4g}." in mock._said.value


def test_code_is_handed_in_from_a_cell_and_leaves_the_keyboard_there(mock, monkeypatch):
    moved = []
    go_on(mock, "code")
    monkeypatch.setattr("amp_lessons.course.views.widgets.mock.focus", moved.append)
    assert not mock.hand_in(lambda: None).passed
    assert mock.asked is not None
    assert mock.hand_in(mock.mock.exercise.solution).passed
    assert mock.asked is None
    assert moved == []
    assert "1 failed hand-in" in " ".join(str(mock.report).split())  # where its lines break hangs on the task
