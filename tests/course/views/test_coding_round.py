"""A code round in a notebook: pressed, pointed and handed in as a learner does it."""

from __future__ import annotations

import html
import re

import pytest

from amp_lessons import views
from amp_lessons.course.interview import code_tasks as tasks
from tests.course.views.hands import Clock, press, readable


@pytest.fixture
def room():
    return views.CodingRound(10, 3, "stable_softmax", clock=Clock())


@pytest.fixture
def reviewing():
    """A review that was begun."""
    room = views.CodingRound(10, 1, tasks.REVIEW, clock=Clock())
    press(room, "Start")
    return room


def letters_of(review):
    return {cause: letter for letter, cause in review.causes.items()}


def defined(room, source):
    namespace = {}
    exec(source, namespace)
    return room.round.task.defined_in(namespace)


def test_a_task_is_shown_hinted_handed_in_and_reported(room):
    press(room, "Start")
    assert room._countdown.running
    said = readable(room._said.value)
    assert "softmax_with_logsumexp" in readable(room._page.value)
    assert room._causes.layout.display == "none"
    assert "What the check asks" in said
    assert "coding.hand_in(softmax_with_logsumexp)" in said
    press(room, "Hint")
    assert "Hint 1 of 3" in readable(room._hints.value)
    assert room._pointed.layout.display == "none"
    assert not room.hand_in(lambda scores, dim: None).passed
    room._clock.at += 90
    assert room.hand_in(defined(room, room.round.task.answer)).passed
    assert not room._countdown.running
    said = readable(room._said.value)
    assert "1:30 of 10 minutes" in said
    assert "2 times handed in" in said
    assert "Good code" in said


def test_a_review_has_numbers_that_are_not_copied_and_a_field(reviewing):
    room, review = reviewing, reviewing.round.task.review
    numbers = re.findall(r"user-select:none[^>]*> *(\d+) ", room._page.value)
    assert list(map(int, numbers)) == list(range(1, len(review.source.splitlines()) + 1))
    assert room._causes.value.count("<li>") == len(review.causes)
    assert room._pointed.layout.display == ""
    room._pointed.value = "12"
    assert "such as 12 c" in room._pointed.error
    letters = letters_of(review)
    room._pointed.value = ", ".join(f"{min(review.lines(bug))} {letters[bug.cause]}" for bug in review.bugs)
    assert room._pointed.error == ""
    assert f"{len(review.bugs)} bugs found so far" in readable(room._judged.value)
    room.hand_in(defined(room, review.mended_source))
    assert f"{len(review.bugs)} of {len(review.bugs)} found" in readable(room._said.value)


def test_a_mended_review_waits_for_the_bugs_that_are_still_to_be_named(reviewing):
    room = reviewing
    assert room.hand_in(defined(room, room.round.task.answer)).passed
    assert room._countdown.running
    press(room, "End the round")
    press(room._sure, "Yes")
    assert f"0 of {len(room.round.task.review.bugs)} found" in readable(room._said.value)


def test_a_passing_hand_in_leaves_the_keyboard(room, monkeypatch):
    moved = []
    monkeypatch.setattr("amp_lessons.course.views.widgets.coding.focus", moved.append)
    press(room, "Start")
    moved.clear()
    room.hand_in(defined(room, room.round.task.answer))
    assert moved == []


def test_a_report_of_a_round_is_saved_with_good_code(room, tmp_path):
    press(room, "Start")
    room.end()
    page = room.save(tmp_path / "round.html").read_text("utf-8")
    assert "<title>Code round</title>" in page
    assert "<h2>Good code</h2>" in page


def test_how_a_review_stands_is_said_below_the_field(reviewing):
    room, review = reviewing, reviewing.round.task.review
    letters = letters_of(review)
    first, second, *_ = review.by_line(review.bugs)
    room._pointed.value = f"{min(review.lines(first))} {letters[first.cause]}"
    room._pointed.value = f"1 {letters[second.cause]}"
    said = readable(room._judged.value)
    assert "Line 1: no bug is there." in said
    assert f"Bugs found so far: {review.place(first)}, {first.cause}." in said
    room.hand_in(defined(room, review.mended_source))
    assert "The check has passed. There are bugs that you have not named yet." in readable(room._judged.value)
    again = views.CodingRound(10, 1, tasks.REVIEW, clock=Clock())
    press(again, "Start")
    assert first.cause in readable(again._judged.value)
    assert review.source.splitlines()[3] in html.unescape(text_as_it_is(again._page.value))


def text_as_it_is(html):
    return re.sub("<[^>]+>", "", html)


def test_what_a_run_shows_comes_with_a_training_to_debug():
    room = views.CodingRound(30, 1, tasks.DEBUG, clock=Clock())
    press(room, "Start")
    said = readable(room._said.value)
    assert "A run of it shows:" in said
    for what in room.round.task.seen.numbers:
        assert what in said


def test_a_round_that_was_left_goes_on(room):
    press(room, "Start")
    press(room, "Hint")
    again = views.CodingRound(10, 3, "stable_softmax", clock=Clock())
    press(again, "Start")
    assert "was begun before" in readable(again._said.value)
    assert again.round.kept.hints == 1
