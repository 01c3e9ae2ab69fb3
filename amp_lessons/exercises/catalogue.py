"""All exercises, in the order of the lessons."""

from __future__ import annotations

from amp_lessons.exercises import (
    accumulate_gradients,
    clip_gradients,
    decode_bits,
    fp32_island,
    largest_safe_scale,
    loss_scaler,
    predict_dtypes,
    resume_training,
    round_to_bfloat16,
    train_with_amp,
    two_optimizers,
)
from amp_lessons.exercises.results import Exercise

EXERCISES: tuple[Exercise, ...] = (
    decode_bits.EXERCISE,
    round_to_bfloat16.EXERCISE,
    predict_dtypes.EXERCISE,
    fp32_island.EXERCISE,
    largest_safe_scale.EXERCISE,
    loss_scaler.EXERCISE,
    train_with_amp.EXERCISE,
    clip_gradients.EXERCISE,
    accumulate_gradients.EXERCISE,
    two_optimizers.EXERCISE,
    resume_training.EXERCISE,
)


def find(exercise_id: str) -> Exercise:
    """Return an exercise by its id. Raises ValueError for an unknown one, naming those there are."""
    for exercise in EXERCISES:
        if exercise.id == exercise_id:
            return exercise
    known = ", ".join(exercise.id for exercise in EXERCISES)
    raise ValueError(f"there is no exercise {exercise_id!r}; there are: {known}")
