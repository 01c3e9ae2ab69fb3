"""Solved exercises come back: each is scheduled as a flash card is, in whole days.

To repeat one is to write it again. A cell that still holds what passed last time passes again, which shows
nothing: it does not count. Where the empty cell was checked before, it does, for then it was written anew.
"""

from __future__ import annotations

from datetime import datetime, timezone

from amp_lessons.course.exercises import shelf
from amp_lessons.course.exercises.exercise import Exercise
from amp_lessons.course.exercises.own_code import same_code
from amp_lessons.course.keeping import practice, progress, schedule, written
from amp_lessons.course.keeping.practice import Practice, Review
from amp_lessons.course.keeping.progress import Record
from amp_lessons.course.keeping.written import Version

DUE = "due for repetition"


def due_for_repetition() -> tuple[Exercise, ...]:
    """Return the solved exercises that are due, in the order of the lessons. Raises ProgressError."""
    done, practised = progress.read(), practice.read()
    return tuple(each for each in shelf.exercises() if is_due(each.id, done.of(each.id), practised))


def is_due(exercise_id: str, record: Record, practised: Practice) -> bool:
    """Say whether an exercise with that record is solved, and due again."""
    when = _due_at(exercise_id, record, practised)
    return when is not None and when <= practice.utc_now()


def handed_in_again(exercise_id: str, source: str) -> tuple[Version | None, str]:
    """Return the version that ``source`` still is, where the exercise is due and was to be written again.

    None where it was, or where that cannot be told. With it comes what is to be said of a damaged progress
    file, empty if nothing is: whoever finds one is the only one to know. Raises ProgressError.
    """
    done, practised, kept = progress.read(), practice.read(), written.of(exercise_id)
    said = " ".join(filter(None, (done.message, practised.message, kept.message)))
    due_at, emptied_at = _due_at(exercise_id, done.of(exercise_id), practised), _moment(kept.emptied_at)
    if due_at is None or due_at > practice.utc_now():
        return None, said
    if kept.newest is None or (emptied_at is not None and emptied_at >= due_at):
        return None, said
    return (kept.newest if same_code(kept.newest.source, source) else None), said


def record_empty(exercise_id: str) -> str:
    """Note that the empty cell of an exercise was checked; return and raise as ``record_try``.

    That is of interest only where the exercise is due: what is written then is written anew.
    """
    done, practised = progress.read(), practice.read()
    said = [done.message, practised.message]
    if is_due(exercise_id, done.of(exercise_id), practised):
        said.append(written.record_empty(exercise_id))
    return " ".join(filter(None, said))


def record_check(exercise_id: str, passed: bool, source: str = "") -> str:
    """Note the outcome of a check: one more try, or a repetition; return and raise as ``record_try``.

    Of a solved exercise only what happens when it is due counts, once: then it is either known or forgotten.
    What has passed is kept, to be found again after the cell was emptied.
    """
    done, practised = progress.read(), practice.read()
    record = done.of(exercise_id)
    said = [done.message, practised.message]  # whoever finds a damaged file is the only one to know
    if not record.solved:
        said.append(progress.record_try(exercise_id, passed))
    elif is_due(exercise_id, record, practised):
        said.append(practice.record(exercise_id, "good" if passed else "again"))
    if passed and source:
        said.append(written.record_version(exercise_id, source))
    return " ".join(filter(None, said))


def _due_at(exercise_id: str, record: Record, practised: Practice) -> datetime | None:
    return schedule.due_at(_reviews(record, practised.of(exercise_id)), whole_days=True)


def _reviews(record: Record, repetitions: tuple[Review, ...]) -> list[Review]:
    """Return the day on which an exercise was solved, and its repetitions since then."""
    solved = _moment(record.solved_at)
    if solved is None:
        return []
    first = Review(solved.isoformat(), "hard" if record.solution_seen else "good")
    return [first, *(each for each in repetitions if each.moment > solved)]


def _moment(text: str | None) -> datetime | None:
    """Return a moment as progress keeps it, None where somebody has edited it to something else."""
    try:
        return datetime.fromisoformat(text).astimezone(timezone.utc) if text else None
    except ValueError:
        return None
