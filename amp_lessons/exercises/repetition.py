"""Solved exercises come back: each is scheduled as a flash card is, in whole days."""

from __future__ import annotations

from datetime import datetime, timezone

from amp_lessons.exercises import shelf
from amp_lessons.exercises.exercise import Exercise
from amp_lessons.keeping import practice, progress, schedule
from amp_lessons.keeping.practice import Practice, Review
from amp_lessons.keeping.progress import Record

DUE = "due for repetition"


def due_for_repetition() -> tuple[Exercise, ...]:
    """Return the solved exercises that are due, in the order of the lessons. Raises ProgressError."""
    done, practised = progress.read(), practice.read()
    return tuple(each for each in shelf.exercises() if is_due(each.id, done.of(each.id), practised))


def is_due(exercise_id: str, record: Record, practised: Practice) -> bool:
    """Say whether an exercise with that record is solved, and due again."""
    when = schedule.due_at(_reviews(record, practised.of(exercise_id)), whole_days=True)
    return when is not None and when <= practice.utc_now()


def record_check(exercise_id: str, passed: bool) -> str:
    """Note the outcome of a check: one more try, or a repetition; return and raise as ``record_try``.

    Of a solved exercise only what happens when it is due counts, once: then it is either known or forgotten.
    """
    done, practised = progress.read(), practice.read()
    record = done.of(exercise_id)
    said = [done.message, practised.message]  # whoever finds a damaged file is the only one to know
    if not record.solved:
        said.append(progress.record_try(exercise_id, passed))
    elif is_due(exercise_id, record, practised):
        said.append(practice.record(exercise_id, "good" if passed else "again"))
    return " ".join(filter(None, said))


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
