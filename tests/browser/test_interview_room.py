"""The interview room, lesson 10, by keyboard: cards, drills, a clock, code that is handed in."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from amp_lessons import interview
from amp_lessons.course.interview import drills
from amp_lessons.course.interview.code_tasks import task

pytestmark = pytest.mark.thorough

NOTEBOOK = "notebooks/10_interview_room.ipynb"
WHY = interview.question("loss_scaling.why")


def turn(view):
    """Turn the card, and wait until the first point has the focus, which a key pressed before would meet."""
    view.get_by_role("button", name="Turn the card").press("Enter")
    first = view.get_by_role("checkbox").first
    expect(first).to_be_focused()
    return first


def test_a_card_is_turned_proved_ticked_and_graded_by_keyboard(lesson):
    view = lesson.page.locator(".amp-cards")  # by no button: each is hidden at times
    expect(view).to_contain_text(WHY.question)
    turn(view).press("Space")
    first = view.get_by_role("checkbox", name=WHY.points[0])
    expect(first).to_be_checked()
    view.get_by_role("button", name="Show the proof").press("Enter")
    expect(view.get_by_role("region", name="the proof")).to_be_visible()
    view.get_by_role("button", name="good: in 10 minutes").press("Enter")
    expect(view.get_by_role("button", name="Turn the card")).to_be_focused()
    expect(view).not_to_contain_text(WHY.question)
    expect(view).to_contain_text("9 new ones for today")


def test_a_drill_is_answered_by_keyboard_and_the_next_one_follows(lesson):
    view = lesson.page.locator(".amp-drills")
    first, second = list(drills(0, 8))[:2]
    view.get_by_role("button", name="Start").press("Enter")
    expect(view.get_by_role("timer", name="time left")).to_contain_text("left")
    view.get_by_role("button", name=first.question.answer.text).press("Enter")
    expect(view).to_contain_text("1 of 1 right and in time. There are 8 in all.")
    view.get_by_role("button", name="Next drill").press("Enter")
    expect(view).to_contain_text(second.question.text.replace("`", ""))


def start(view, heading):
    """Start, and agree that the report below ``heading`` goes away, where a test before has left one."""
    view.get_by_role("button", name="Start").press("Enter")
    if view.get_by_role("heading", name=heading).count():
        expect(view.get_by_role("button", name="Keep it")).to_be_focused()
        view.get_by_role("button", name="Begin anew").press("Enter")


@pytest.fixture
def room(lesson):
    view = lesson.view_with(lesson.button("End it here"))
    start(view, "To repeat")
    yield view
    if view.get_by_role("button", name="End it here").is_enabled():
        end(view)


def reveal(room):
    """Show what a good answer covers, and wait for the focus that it takes, from another view, too."""
    room.get_by_role("button", name="Show what a good answer covers").press("Enter")
    expect(room.get_by_role("checkbox").first).to_be_focused()


def end(room):
    """End the interview, be sure of it, and wait until it has ended: the next may only start then."""
    room.get_by_role("button", name="End it here").press("Enter")
    room.get_by_role("button", name="Yes").press("Enter")
    expect(room.get_by_role("button", name="End it here")).to_be_disabled()


def test_a_mock_interview_ticks_and_asks_for_the_point_that_was_left_out(lesson, room):
    asked = interview.Mock("senior", 45, 0).asked
    expect(room).to_contain_text("45 minutes left")
    clock = room.get_by_role("timer", name="time left")
    expect(clock).to_contain_text(re.compile("4[34]:[0-9][0-9] left"))  # no longer 45:00
    expect(room.get_by_role("button", name="Show what a good answer covers")).to_be_focused()
    reveal(room)
    covered = room.get_by_role("checkbox", name=asked.points[0])
    covered.press("Space")
    expect(covered).to_be_checked()
    turn(lesson.page.locator(".amp-cards"))
    lesson.wait_idle()
    assert lesson.serious_axe_violations() == []
    room.get_by_role("button", name="Next question").press("Enter")
    expect(room).to_contain_text(f"You left this out: “{asked.points[1]}”")
    end(room)
    expect(room.get_by_role("heading", name="To repeat")).to_be_visible()
    expect(room.locator(".amp-countdown")).to_be_hidden()
    assert lesson.errors == []


@pytest.fixture
def coding(lesson):
    view = lesson.view_with(lesson.button("End the round"))
    start(view, "How it went")
    expect(view.get_by_role("button", name="Hint")).to_be_focused()
    yield view
    view.get_by_role("button", name="End the round").press("Enter")
    view.get_by_role("button", name="Yes").press("Enter")
    expect(view.get_by_role("heading", name="The bugs")).to_be_visible()


def test_a_review_is_pointed_at_by_keyboard_and_copied_without_its_numbers(lesson, coding):
    review = task(10, 1, "review").review
    bug = review.bugs[0]
    expect(coding.get_by_role("timer", name="time left")).to_contain_text("left")
    expect(coding).to_contain_text(bug.cause)
    field = coding.get_by_label("a bug: line and cause")
    field.fill(review.typed(bug))
    field.press("Enter")
    expect(coding).to_contain_text("1 bug found so far")
    page = coding.get_by_role("region", name="The page")
    copied = page.evaluate(
        "pre => { getSelection().selectAllChildren(pre); return getSelection().toString() }"
    )
    assert copied.strip() == review.source.strip()
    coding.get_by_role("button", name="Hint").press("Enter")
    expect(coding).to_contain_text("Hint 1 of 3: There are 3 of them.")
    lesson.wait_idle()
    assert lesson.serious_axe_violations() == []
    assert lesson.errors == []


def test_a_hand_in_that_passes_leaves_the_keyboard_in_its_cell(open_notebook, write_notebook):
    given = 'from amp_lessons import views\n\ncoding = views.CodingRound(10, 3, "stable_softmax")\ncoding'
    handed_in = "exec(coding.round.task.answer)\ncoding.hand_in(softmax_with_logsumexp)"
    notebook = open_notebook(write_notebook(given, handed_in))
    keyboard, (first, second) = notebook.page.keyboard, notebook.page.locator(".cm-content").all()
    first.click()
    keyboard.press("Control+Enter")
    view = notebook.view_with(notebook.button("End the round"))
    view.get_by_role("button", name="Start").press("Enter")
    expect(view.get_by_role("button", name="Hint")).to_be_focused()
    second.click()
    keyboard.press("Control+Enter")
    expect(view.get_by_role("heading", name="How it went")).to_be_visible()
    notebook.wait_idle()
    inside = "document.activeElement.closest('.jp-Cell')?.innerText.includes('coding.hand_in')"
    assert notebook.page.evaluate(inside), "the page has moved the keyboard"
    view.get_by_role("button", name="Start").press("Enter")
    expect(view.get_by_role("button", name="Keep it")).to_be_focused()
    keyboard.press("Enter")
    expect(view.get_by_role("heading", name="How it went")).to_be_visible()
    view.get_by_role("button", name="Save the report to print it").press("Enter")
    expect(view).to_contain_text("Saved: ")
