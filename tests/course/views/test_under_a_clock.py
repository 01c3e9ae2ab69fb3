"""What is alike for everything that runs against a clock: how it begins and ends, and its report."""

from __future__ import annotations

import errno

import pytest

from amp_lessons import interview, views
from amp_lessons.course import progress
from tests.course.views.hands import Clock, press

# What makes it, its minutes, the button that ends it, and the command that does the same.
ROOMS = [
    (
        lambda: views.MockInterview("senior", 60, 1, clock=Clock()),
        60,
        "End it here",
        "mock --level senior --seed 1",
    ),
    (
        lambda: views.DesignRound(clock=Clock()),
        interview.DESIGNS[0].minutes,
        "End it here",
        "design pretrain",
    ),
    (
        lambda: views.CodingRound(10, 3, "stable_softmax", clock=Clock()),
        10,
        "End the round",
        "code --minutes 10 --seed 3 --task stable_softmax",
    ),
]


@pytest.fixture(params=ROOMS, ids=["mock", "design", "code"])
def case(request):
    return request.param


@pytest.fixture
def room(case):
    return case[0]()


@pytest.fixture
def over(case, room):
    press(room, "Start")
    press(room, case[2])
    press(room._sure, "Yes")
    return room


def asked_by_a_page(room):
    """Let a page that is opened later ask what is left, and return what it is told."""
    room._countdown._handle_custom_msg({"asks": "what is left"}, [])
    return room._countdown.state


def test_the_clock_runs_from_start_to_an_end_that_is_asked_for(case, room):
    _, minutes, end, _ = case
    assert not asked_by_a_page(room)["running"]
    assert progress.read().rounds == {}
    press(room, "Start")
    begun = room._countdown.state
    assert begun["left_s"] == 60 * minutes
    room._clock.at += 90
    later = asked_by_a_page(room)
    assert (later["left_s"], later["set"]) == (60 * minutes - 90, begun["set"] + 1)
    press(room, end)
    press(room._sure, "Go on")
    assert room._countdown.running
    press(room, end)
    press(room._sure, "Yes")
    assert not asked_by_a_page(room)["running"]
    assert room._end.disabled


def test_a_report_is_saved_whatever_the_view_is_called(over, tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.chdir(tmp_path)
    press(over._file, "Save the report to print it")
    (saved,) = tmp_path.glob("*.html")
    assert saved.read_text("utf-8") == views.report_page(over.report)
    assert str(saved) in over._file._said.value
    assert over.save("mine.html") == tmp_path / "mine.html"
    monkeypatch.setattr("amp_lessons._base.files.replace", full)
    press(over._file, "Save the report to print it")
    assert "is full" in over._file._said.value


def test_without_a_kernel_it_says_what_it_is_and_where_else_it_runs(case, room):
    shown = room._repr_mimebundle_()
    for text in (shown["text/plain"], shown["text/markdown"], str(room.stand_in())):
        assert f"amp-lessons interview {case[3]}" in text
        assert room._what() in text
