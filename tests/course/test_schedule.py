"""What was practised comes back when FSRS says."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from amp_lessons.course import schedule
from amp_lessons.course.progress import GRADES, Review

START = datetime(2022, 11, 29, 12, 30, tzinfo=timezone.utc)


def reviews(grades, gaps=None):
    """Grade at the moment at which it falls due, or after so many days."""
    made, at = [], START
    for i, grade in enumerate(grades):
        at = at + timedelta(days=gaps[i]) if gaps else (schedule.due_at(made) or START)
        made.append(Review(at.isoformat(), grade))
    return made


def intervals(made, **how):
    due = [schedule.due_at(made[: i + 1], **how) for i in range(len(made))]
    return [(when - review.moment).days for when, review in zip(due, made, strict=True)]


def test_intervals_are_those_that_fsrs_publishes():
    # test_review_card in py-fsrs 6, tests/test_basic.py; the same numbers stand in ts-fsrs, FSRS-6.test.ts
    grades = ["good"] * 6 + ["again"] * 2 + ["good"] * 5
    assert intervals(reviews(grades)) == [0, 2, 11, 46, 163, 498, 0, 0, 2, 4, 7, 12, 21]


def test_the_first_minutes_are_those_that_fsrs_publishes():
    # test_good_, test_again_, test_hard_ and test_easy_learning_steps in py-fsrs, tests/test_basic.py
    waits = {grade: schedule.due_at(reviews([grade])) - START for grade in GRADES}
    assert [waits[grade].total_seconds() for grade in ("again", "hard", "good")] == [60, 330, 600]
    assert waits["easy"] >= timedelta(days=1)


def test_what_takes_long_comes_back_after_days_only_in_whatever_order_its_reviews_are_kept():
    made = reviews(["good", "again", "hard"], gaps=[0, 2, 1])
    assert intervals(made, whole_days=True)[0] == 2
    assert all(days >= 1 for days in intervals(made, whole_days=True))
    assert schedule.due_at(made[::-1]) == schedule.due_at(made)
    assert schedule.due_at([]) is None
