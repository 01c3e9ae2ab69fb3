"""``amp-lessons interview --until``: today's work, the days after it, and what is noted as done."""

from __future__ import annotations

import sys
from datetime import date, timedelta

import pytest

from amp_lessons.cli.interview import plan as command
from amp_lessons.course import progress
from amp_lessons.course.interview.plan import Item
from tests.course.keep import keep

TODAY = date(2026, 12, 2)


class _Date(date):
    @classmethod
    def today(cls) -> date:
        return TODAY


@pytest.fixture(autouse=True)
def on_a_wednesday(monkeypatch):
    """Stop the calendar: a test that midnight passes through would see two days. Two sections are to read."""
    monkeypatch.setattr(command, "date", _Date)
    parts = [Item(f"10-{name}", f"lesson 10, {name}", 15, "amp-lessons lab") for name in ("core", "end")]
    monkeypatch.setattr(sys.modules[Item.__module__], "_reading", lambda kept: iter(parts))


SESSION = """
interview --until 2026-12-06 --minutes 50
interview
interview --done 10-core
interview --undo 10-core
interview --undo 10-core
interview --done x
interview --until 2026-12-05
interview --until 2026-12-03 --minutes 20
""".strip().splitlines()


def test_a_plan_is_made_remembered_marked_and_replaced(session, golden):
    golden("interview_plan.txt", session(*SESSION))


def test_without_a_plan_there_is_help_and_a_day_that_is_over_is_planned_for_no_more(session):
    assert "--until DATE" in session("interview")
    keep("plan_for", TODAY - timedelta(days=1), 40, TODAY - timedelta(days=9))
    assert "ways in" in session("interview")
    assert session("interview --minutes 30").endswith("is over; today is 2026-12-02\n=> 1")


@pytest.mark.parametrize("name", ["tomorrow", "friday", "Fri", "monday", "sunday"])
def test_a_day_of_the_week_is_the_next_one_of_its_name(session, name):
    session(f"interview --until {name}")
    found = date.fromisoformat(progress.read().plan.until)
    assert 1 <= (found - TODAY).days <= 7
    day = f"{TODAY + timedelta(days=1):%A}" if name == "tomorrow" else name
    assert f"{found:%A}".lower().startswith(day.lower())


def test_a_missed_day_is_told(session):
    keep("plan_for", TODAY + timedelta(days=9), 40, TODAY - timedelta(days=1))
    assert f"Nothing was done on {TODAY - timedelta(days=1):%d %B}" in session("interview")
