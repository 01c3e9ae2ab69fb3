"""All exercises, in the order of the lessons."""

from __future__ import annotations

from amp_lessons.exercises import accumulate_gradients, clip_gradients, train_with_amp
from amp_lessons.exercises.results import Exercise

EXERCISES: tuple[Exercise, ...] = (
    train_with_amp.EXERCISE,
    clip_gradients.EXERCISE,
    accumulate_gradients.EXERCISE,
)


def find(exercise_id: str) -> Exercise:
    """Return an exercise by its id. Raises ValueError for an unknown one, naming those there are."""
    for exercise in EXERCISES:
        if exercise.id == exercise_id:
            return exercise
    known = ", ".join(exercise.id for exercise in EXERCISES)
    raise ValueError(f"there is no exercise {exercise_id!r}; there are: {known}")
