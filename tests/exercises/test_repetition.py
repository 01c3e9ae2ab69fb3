"""Solved exercises come back after days, and only what is done then counts."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from amp_lessons import exercises, views
from amp_lessons.exercises import repetition
from amp_lessons.keeping import practice, progress

ID = "decode_bits"


def days_ago(days):
    return practice.utc_now() - timedelta(days=days)


def solve(days, **record):
    """Let the exercise have been solved so many days ago."""
    progress.record_try(ID, True)
    content = json.loads(progress.path().read_text())
    content["exercises"][ID] |= {"solved_at": days_ago(days).isoformat(), **record}
    progress.path().write_text(json.dumps(content))


def due():
    return [each.id for each in exercises.due_for_repetition()]


def test_what_is_not_solved_is_never_due():
    assert due() == []
    progress.record_try(ID, False)
    assert due() == []


def test_it_is_due_after_two_days_and_then_after_eleven():
    solve(days=1)
    assert due() == []
    solve(days=2)
    assert due() == [ID]
    practice.record(ID, "good", days_ago(0))
    assert due() == []
    solve(days=13)
    progress.change_section(practice.SECTION, lambda _: None)
    practice.record(ID, "good", days_ago(11))
    assert due() == [ID]


def test_whoever_has_seen_the_solution_repeats_it_sooner():
    solve(days=1, solution_seen=True)
    assert due() == [ID]


def test_a_check_counts_when_it_is_due_and_once():
    solve(days=1)
    for _ in range(2):
        assert repetition.record_check(ID, True) == ""
    assert practice.read().of(ID) == ()
    solve(days=2)
    for passed in (False, True, True):
        repetition.record_check(ID, passed)
    assert [review.grade for review in practice.read().of(ID)] == ["again"]
    assert progress.read().of(ID).tries == 1


def test_a_check_of_a_solved_exercise_is_a_repetition():
    solve(days=5)
    solution = exercises.shelf.find(ID).solution
    assert exercises.check(ID, solution).passed
    assert [review.grade for review in practice.read().of(ID)] == ["good"]
    assert due() == []


def test_a_damaged_file_is_named_by_the_check_that_finds_it(progress_home):
    progress_home.mkdir()
    for damage in ("{", '{"schema": 1, "exercises": {}, "practice": 7}'):
        progress.path().write_text(damage)
        assert "progress.damaged-" in repetition.record_check(ID, False)
        assert repetition.record_check(ID, False) == ""


def test_solving_it_anew_begins_anew():
    solve(days=30)
    practice.record(ID, "again", days_ago(20))
    progress.reset(ID)
    solve(days=1)
    assert due() == []


def test_the_card_and_the_overview_say_so():
    card = views.ExerciseCard(ID)
    assert repetition.DUE not in card.status
    solve(days=2)
    card.refresh()
    assert "It is due for repetition: empty the cell" in card.status
    assert str(exercises.overview()).count(repetition.DUE) == 1
    practice.record(ID, "good")
    card.refresh()
    assert repetition.DUE not in card.status


def test_a_stored_card_is_the_same_for_everyone():
    before = views.ExerciseCard(ID)._repr_mimebundle_()
    solve(days=2)
    after = views.ExerciseCard(ID)._repr_mimebundle_()
    assert before["text/markdown"] == after["text/markdown"]
    assert before["text/plain"] == after["text/plain"]


@pytest.mark.parametrize("edited", ["yesterday", ""])
def test_a_day_that_somebody_has_edited_is_no_trouble(edited):
    solve(days=2, solved_at=edited)
    assert due() == []
