"""All exercises, in the order of the lessons."""

from __future__ import annotations

from importlib import import_module

from amp_lessons.exercises.report.results import Exercise
from amp_lessons.text.nearest import did_you_mean

_IDS = (
    "decode_bits",
    "round_to_bfloat16",
    "predict_dtypes",
    "fp32_island",
    "largest_safe_scale",
    "loss_scaler",
    "train_with_amp",
    "clip_gradients",
    "accumulate_gradients",
    "two_optimizers",
    "resume_training",
    "time_step",
    "activation_bytes",
)

EXERCISES: tuple[Exercise, ...] = tuple(
    import_module(f"amp_lessons.exercises.{exercise_id}.check").EXERCISE for exercise_id in _IDS
)


def find(exercise_id: str) -> Exercise:
    """Return an exercise by its id. Raises ValueError for an unknown one, naming the nearest."""
    known = {exercise.id: exercise for exercise in EXERCISES}
    if exercise_id in known:
        return known[exercise_id]
    raise ValueError(f"there is no exercise {exercise_id!r}; {did_you_mean(exercise_id, known)}")
