"""All exercises: whatever folders beside this file hold a card, in the order of the lessons.

One whose place is 0 stands in no lesson: only interviews ask for it. It is checked, hinted at and solved as
the others are, and counts in no lesson.
"""

from __future__ import annotations

import functools
from pathlib import Path

from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.course.exercises.exercise import Exercise, read


@functools.cache
def exercises() -> tuple[Exercise, ...]:
    """Read every exercise of the lessons."""
    return tuple(each for each in _all() if each.place)


@functools.cache
def interview_tasks() -> tuple[Exercise, ...]:
    """Read what interviews alone ask for."""
    return tuple(each for each in _all() if not each.place)


@functools.cache
def _all() -> tuple[Exercise, ...]:
    return exercises_in(Path(__file__).parent)


def exercises_in(folder: Path) -> tuple[Exercise, ...]:
    """Read the exercises in ``folder``, in the order of the lessons and of the places in them."""
    folders = (card.parent for card in folder.glob("[!_]*/card.md"))
    return tuple(sorted(map(read, folders), key=lambda exercise: (exercise.lesson, exercise.place)))


def find(exercise_id: str) -> Exercise:
    """Return an exercise by its id. Raises ValueError for an unknown one, naming the nearest."""
    known = {exercise.id: exercise for exercise in (*exercises(), *interview_tasks())}
    if exercise_id in known:
        return known[exercise_id]
    raise ValueError(f"there is no exercise {exercise_id!r}; {did_you_mean(exercise_id, known)}")
