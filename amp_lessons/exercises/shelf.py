"""All exercises: whatever folders beside this file hold a card, in the order of the lessons."""

from __future__ import annotations

import difflib
import functools
from pathlib import Path

from amp_lessons.exercises.exercise import Exercise, read


@functools.cache
def exercises() -> tuple[Exercise, ...]:
    """Read every exercise, in the order of the lessons and of the places in them."""
    folders = (card.parent for card in Path(__file__).parent.glob("[!_]*/card.md"))
    return tuple(sorted(map(read, folders), key=lambda exercise: (exercise.lesson, exercise.place)))


def find(exercise_id: str) -> Exercise:
    """Return an exercise by its id. Raises ValueError for an unknown one, naming the nearest."""
    known = {exercise.id: exercise for exercise in exercises()}
    if exercise_id in known:
        return known[exercise_id]
    near = difflib.get_close_matches(str(exercise_id), known, n=3, cutoff=0.5)
    which = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(known)}"
    raise ValueError(f"there is no exercise {exercise_id!r}; {which}")
