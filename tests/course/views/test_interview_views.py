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


def test_a_card_is_turned_ticked_and_graded():
    cards = views.FlashCards(first=WHY)
    assert interview.question(WHY).question in cards._front.value
    press(cards, "Turn the card")
    assert [box.description for box in cards._rubric._points.children] == list(interview.question(WHY).points)
    tick(cards._rubric, 0, 1, 2)
    cards.grade()
    assert [review.grade for review in progress.read().reviews.get(WHY, ())] == ["good"]
    assert cards.card.id != WHY
    assert "0 to repeat now, 9 new ones for today" in cards.status


def test_the_grades_say_when_the_card_comes_back():
    cards = views.FlashCards(first=WHY)
    cards.turn()
    press(cards, "easy: in 8 days")
    assert [review.grade for review in progress.read().reviews.get(WHY, ())] == ["easy"]


def test_a_proof_is_shown_below_the_card():
    cards = views.FlashCards(first=WHY)
    cards.turn()
    press(cards, "Show the proof")
    assert "what it came to" in cards._proof.value


def test_when_nothing_is_due_the_view_says_so():
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


def test_a_stored_card_is_the_same_for_everyone():
    before = views.FlashCards(first=WHY)._repr_mimebundle_()
    Deck().grade(WHY, "good")
    after = views.FlashCards(first=WHY)._repr_mimebundle_()
    for mime in ("text/plain", "text/markdown"):
        assert before[mime] == after[mime]
    assert "<details>" in after["text/markdown"]


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


def test_drills_can_be_read_without_a_kernel():
    bundle = views.DrillView(seed=0, number=4)._repr_mimebundle_()
    assert bundle["text/markdown"].count("<details>") == 3


@pytest.fixture
def mock():
    return views.MockInterview("senior", 60, 1, clock=Clock())


def go_on(view):
    if view.asked.kind == "question":
        view.reveal()
        view.answer()
    elif view.asked.kind == "estimate":
        view._number.value = "1"
    else:
        press(view, "Give up on the code")


def test_it_is_the_interview_of_its_seed(mock):
    press(mock, "Start")
    assert mock.asked == interview.Mock("senior", 60, 1).asked
    assert "60 minutes left" in mock._said.value
    first = mock.asked
    press(mock, "Show what a good answer covers")
    assert first.answer not in mock._rubric._answer.value, "it comes last"
    tick(mock._rubric, 0)
    press(mock, "Next question")
    assert first.points[1] in mock.asked.text, "the point that was left out"
    assert "A model answer" not in mock._said.value
    mock._clock.at += 600
    go_on(mock)
    assert "asked with 50 minutes left" in mock._said.value
    assert "A model answer" in mock._said.value
    assert str(prose.as_html(first.answer)) in mock._said.value


def test_an_answer_is_taken_back(mock):
    press(mock, "Start")
    first = mock.asked
    assert mock._back.layout.display == "none"
    go_on(mock)
    press(mock, "Take the last answer back")
    assert mock.asked == first
    assert not mock.report.turns
    while mock.asked:
        go_on(mock)
    press(mock, "Take the last answer back")
    assert mock.asked is not None
    assert not mock._end.disabled


def test_the_last_grade_is_taken_back():
    cards = views.FlashCards(first=WHY)
    assert cards._back.layout.display == "none"
    cards.turn()
    cards.grade("again")
    press(cards, "Take the last grade back")
    assert cards.card.id == WHY
    assert progress.read().reviews.get(WHY, ()) == ()
    assert cards._back.layout.display == "none"


def test_it_ends_in_a_report(mock):
    press(mock, "Start")
    while mock.asked is not None:
        go_on(mock)
    assert "<h4>To repeat</h4>" in mock._said.value
    assert mock._end.disabled
    assert views.report_page(mock.report).count("<h2>") == 4


def test_a_number_that_is_none_is_asked_for_again(mock):
    press(mock, "Start")
    while mock.asked.kind != "estimate":
        go_on(mock)
    asked, labels = mock.asked, [mock._number.label]
    mock._number.value = "a lot"
    assert "is not one number" in mock._number.error
    assert mock.asked == asked
    mock._number.value = f"{asked.estimate.value}"
    assert ": near enough." in mock._said.value
    assert f"within {100 * asked.estimate.tolerance:.0f} %" in "".join(labels)
    assert mock._number.error == ""


def test_code_is_handed_in_from_a_cell(mock):
    press(mock, "Start")
    while mock.asked.kind != "code":
        go_on(mock)
    assert not mock.hand_in(lambda: None).passed
    assert mock.asked is not None
    assert mock.hand_in(mock.mock.exercise.solution).passed
    assert mock.asked is None
    assert "1 failed hand-in" in " ".join(str(mock.report).split())  # where its lines break hangs on the task


def test_handing_in_leaves_the_keyboard_in_its_cell(mock, monkeypatch):
    moved = []
    monkeypatch.setattr("amp_lessons.course.views.widgets.mock.focus", moved.append)
    press(mock, "Start")
    while mock.asked.kind != "code":
        go_on(mock)
    moved.clear()
    mock.hand_in(mock.mock.exercise.solution)
    assert moved == []
    assert mock.asked is None


def test_who_was_fast_is_offered_another_question(mock):
    press(mock, "Start")
    assert mock._more.layout.display == "none"
    while mock.asked:
        go_on(mock)
    assert "there are 60 minutes left" in mock._said.value
    press(mock, "Another question")
    assert mock.asked.kind == "question"
    assert mock._more.layout.display == "none"
    mock.end()
    assert mock._more.layout.display == "none"


def test_a_model_answer_stands_below_its_own_question(mock):
    press(mock, "Start")
    first = mock.asked
    go_on(mock)
    said = mock._said.value
    assert said.index(str(prose.as_html(first.text))) < said.index("A model answer")
    assert said.index("A model answer") < said.index(str(prose.as_html(mock.asked.text)))


def test_a_number_without_a_unit_is_asked_for_without_one(mock):
    press(mock, "Start")
    drawn = interview.question("estimation.needed_scale")
    mock.mock.asked = asked_question(drawn)
    mock._ask()
    assert mock._number.label.startswith("your number, within ")
    mock._number.value = "about 1"
    assert f"1: no, it is {interview.estimate(drawn.id, 0).value:.4g}." in mock._said.value


def test_a_round_of_system_design_comes_in_stages():
    view = views.DesignRound(clock=Clock())
    stages = interview.DESIGNS[0].stages
    press(view, "Start")
    for stage in stages:
        assert f"{stage.title}, stage" in view._said.value
        assert str(prose.as_html(interview.DESIGNS[0].brief)) in view._said.value, "its numbers are needed"
        press(view, "Show what a good answer covers")
        tick(view._rubric, 0)
        press(view, "Next question")
    assert all(f"<em>{stage.title.capitalize()}:</em>" in view._said.value for stage in stages)
    assert "<h4>To repeat</h4>" in view._said.value
