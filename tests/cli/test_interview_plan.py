"""``amp-lessons interview --until``: today's work, the days after it, and what is noted as done."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from amp_lessons.cli import cli
from amp_lessons.cli.interview import plan as command
from amp_lessons.course import progress
from tests.course.keep import keep

TODAY = date(2026, 12, 2)
FRIDAY = TODAY + timedelta(days=9)


class _Date(date):
    @classmethod
    def today(cls) -> date:
        return TODAY


@pytest.fixture(autouse=True)
def on_a_wednesday(monkeypatch):
    """Stop the calendar: a test that midnight passes through would see two days."""
    monkeypatch.setattr(command, "date", _Date)


def called(capsys, *words):
    status = cli.main(["interview", *words])
    return status, capsys.readouterr()


def test_a_plan_is_made_shown_and_remembered(capsys):
    status, said = called(capsys, "--until", FRIDAY.isoformat(), "--minutes", "50")
    assert status == 0
    assert f"Your interview is in 9 days, on {FRIDAY:%A, %d %B}; 50 minutes a day." in said.out
    assert "--- today, " in said.out
    assert "amp-lessons interview cards" in said.out
    assert "amp-lessons interview code --minutes" in said.out
    assert "a mock interview" in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    assert called(capsys)[1].out == said.out, "without options the plan is shown as it is kept"


def test_without_a_plan_there_is_help(capsys):
    status, said = called(capsys)
    assert status == 0
    assert "ways in" in said.out
    assert "--until DATE" in said.out


def test_what_is_done_is_noted(capsys):
    called(capsys, "--until", FRIDAY.isoformat())
    status, said = called(capsys, "--done", "10-core", "10-drills")
    assert status == 0
    assert said.out.count("[x]") == 2
    assert set(progress.read().plan.done) == {"10-core", "10-drills"}


def test_a_slip_of_done_is_taken_back(capsys):
    called(capsys, "--until", FRIDAY.isoformat())
    before = called(capsys)[1].out
    assert "--undo NAME" in called(capsys, "--done", "10-core")[1].out
    assert called(capsys, "--undo", "10-core")[1].out == before
    status, said = called(capsys, "--undo", "10-core")
    assert status == 1
    assert "'10-core' was not noted as done; nothing was" in said.err


def test_another_date_says_what_it_replaces(capsys):
    assert "replaces" not in called(capsys, "--until", FRIDAY.isoformat())[1].out
    earlier = FRIDAY - timedelta(days=3)
    said = " ".join(called(capsys, "--until", earlier.isoformat())[1].out.split())
    assert f"This replaces the plan until {FRIDAY:%A, %d %B}" in said
    assert f"amp-lessons interview --until {FRIDAY.isoformat()}" in said
    assert "replaces" not in called(capsys, "--until", earlier.isoformat())[1].out


@pytest.mark.parametrize("name", ["tomorrow", "friday", "Fri", "monday", "sunday"])
def test_a_day_of_the_week_is_the_next_one_of_its_name(capsys, name):
    called(capsys, "--until", name)
    found = date.fromisoformat(progress.read().plan.until)
    assert 1 <= (found - TODAY).days <= 7
    if name == "tomorrow":
        assert (found - TODAY).days == 1
    else:
        assert f"{found:%A}".lower().startswith(name.lower())


def test_a_missed_day_is_told(capsys):
    keep("plan_for", FRIDAY, 40, TODAY - timedelta(days=1))
    _, said = called(capsys)
    assert f"Nothing was done on {TODAY - timedelta(days=1):%d %B}" in said.out


def test_what_no_longer_fits_is_told(capsys):
    _, said = called(capsys, "--until", (TODAY + timedelta(days=1)).isoformat(), "--minutes", "20")
    assert "what does not fit any more" in said.out


def test_a_day_that_is_over_is_planned_for_no_more(capsys):
    keep("plan_for", TODAY - timedelta(days=1), 40, TODAY - timedelta(days=9))
    assert "ways in" in called(capsys)[1].out
    status, said = called(capsys, "--minutes", "30")
    assert status == 1
    assert "is over" in said.err


def test_done_asks_for_a_plan_and_for_a_name_in_it(capsys):
    called(capsys, "--until", FRIDAY.isoformat())
    status, said = called(capsys, "--done", "x")
    assert status == 1
    assert "nothing in the plan is called 'x'" in said.err
