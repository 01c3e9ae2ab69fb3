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


def defined(room, source):
    namespace = {}
    exec(source, namespace)
    return room.round.task.defined_in(namespace)


def test_a_task_is_handed_in_reported_and_saved_and_the_keyboard_stays_where_it_is(
    room, monkeypatch, tmp_path
):
    moved = []
    press(room, "Start")
    monkeypatch.setattr("amp_lessons.course.views.widgets.coding.focus", moved.append)
    assert not room.hand_in(lambda scores, dim: None).passed
    room._clock.at += 90
    assert room.hand_in(defined(room, room.round.task.answer)).passed
    assert moved == []
    assert not room._countdown.running
    said = readable(room._said.value)
    assert all(words in said for words in ("1:30 of 10 minutes", "2 times handed in", "Good code"))
    page = room.save(tmp_path / "round.html").read_text("utf-8")
    assert "<title>Code round</title>" in page
    assert "<h2>Good code</h2>" in page


def test_a_review_has_numbers_that_are_not_copied_and_a_field(reviewing):
    room, review = reviewing, reviewing.round.task.review
    numbers = re.findall(r"user-select:none[^>]*> *(\d+) ", room._page.value)
    assert list(map(int, numbers)) == list(range(1, len(review.source.splitlines()) + 1))
    assert room._causes.value.count("<li>") == len(review.causes)
    assert room._pointed.layout.display == ""
    room._pointed.value = "12"
    assert "such as 12 c" in room._pointed.error
    room._pointed.value = ", ".join(map(review.typed, review.bugs))
    assert room._pointed.error == ""
    assert f"{len(review.bugs)} bugs found so far" in readable(room._judged.value)
    room.hand_in(defined(room, review.mended_source))
    assert f"{len(review.bugs)} of {len(review.bugs)} found" in readable(room._said.value)


def test_how_a_review_stands_is_said_below_the_field(reviewing):
    room, review = reviewing, reviewing.round.task.review
    first, second, *_ = review.by_line(review.bugs)
    room._pointed.value = review.typed(first)
    room._pointed.value = f"1 {review.typed(second).split()[1]}"
    said = readable(room._judged.value)
    assert "Line 1: no bug is there." in said
    assert f"Bugs found so far: {review.place(first)}, {first.cause}." in said
    assert room.hand_in(defined(room, review.mended_source)).passed
    assert room._countdown.running, "it waits for the bugs that are still to be named"
    assert "The check has passed. There are bugs that you have not named yet." in readable(room._judged.value)
    again = views.CodingRound(10, 1, tasks.REVIEW, clock=Clock())
    press(again, "Start")
    assert first.cause in readable(again._judged.value)
    assert review.source.splitlines()[3] in html.unescape(re.sub("<[^>]+>", "", again._page.value))


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
