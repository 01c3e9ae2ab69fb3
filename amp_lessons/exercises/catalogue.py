"""All exercises, in the order of the lessons."""

from __future__ import annotations

import difflib

from amp_lessons.exercises import (
    accumulate_gradients,
    activation_bytes,
    clip_gradients,
    decode_bits,
    fp32_island,
    largest_safe_scale,
    loss_scaler,
    predict_dtypes,
    resume_training,
    round_to_bfloat16,
    time_step,
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
    time_step.EXERCISE,
    activation_bytes.EXERCISE,
)


def find(exercise_id: str) -> Exercise:
    """Return an exercise by its id. Raises ValueError for an unknown one, naming the nearest."""
    known = {exercise.id: exercise for exercise in EXERCISES}
    if exercise_id in known:
        return known[exercise_id]
    near = difflib.get_close_matches(str(exercise_id), known, n=3, cutoff=0.5)
    which = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(known)}"
    raise ValueError(f"there is no exercise {exercise_id!r}; {which}")
