"""Solved exercises come back: each is scheduled as a flash card is, in whole days.

To repeat one is to write it again. A cell that still holds what passed last time passes again, which shows
nothing: it does not count. Where the empty cell was checked before, it does, for then it was written anew.
"""

from __future__ import annotations

from datetime import datetime

from amp_lessons.course import progress, schedule
from amp_lessons.course.exercises import shelf
from amp_lessons.course.exercises.exercise import Exercise
from amp_lessons.course.exercises.own_code import same_code
from amp_lessons.course.progress import Learner, Review, Version, Written, moment

DUE = "due for repetition"


def due_for_repetition() -> tuple[Exercise, ...]:
    """Return the solved exercises that are due, in the order of the lessons. Raises ProgressError."""
    kept = progress.read()
    return tuple(each for each in shelf.exercises() if is_due(each.id, kept))


def is_due(exercise_id: str, kept: Learner) -> bool:
    """Say whether an exercise is solved, and due again."""
    due_at = _due_at(exercise_id, kept)
    return due_at is not None and due_at <= progress.utc_now()


def handed_in_again(exercise_id: str, source: str, kept: Learner) -> Version | None:
    """Return the version that ``source`` still is, where the exercise is due and was to be written again.

    None where it was, or where that cannot be told.
    """
    written = kept.written.get(exercise_id, Written())
    due_at, emptied_at = _due_at(exercise_id, kept), moment(written.emptied_at)
    if due_at is None or due_at > progress.utc_now() or (emptied_at is not None and emptied_at >= due_at):
        return None
    return written.newest if written.newest and same_code(written.newest.source, source) else None


def record_check(exercise_id: str, passed: bool, source: str, kept: Learner) -> None:
    """Note the outcome of a check: one more try, or a repetition.

    Of a solved exercise only what happens when it is due counts, once: then it is either known or forgotten.
    What has passed is kept, to be found again after the cell was emptied.
    """
    if not kept.of(exercise_id).solved:
        kept.record_try(exercise_id, passed)
    elif is_due(exercise_id, kept):
        kept.review(exercise_id, "good" if passed else "again")
    if passed and source:
        kept.keep_version(exercise_id, source)


def _due_at(exercise_id: str, kept: Learner) -> datetime | None:
    """Return when an exercise is due again, by the day on which it was solved, and its repetitions since."""
    record = kept.of(exercise_id)
    solved = moment(record.solved_at)
    if solved is None:
        return None
    first = Review(solved.isoformat(), "hard" if record.solution_seen else "good")
    since = [each for each in kept.reviews.get(exercise_id, ()) if each.moment > solved]
    return schedule.due_at([first, *since], whole_days=True)
