"""All exercises, in the order of the lessons."""

from __future__ import annotations

import difflib
from importlib import import_module

from amp_lessons.exercises.report.results import Exercise

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
    near = difflib.get_close_matches(str(exercise_id), known, n=3, cutoff=0.5)
    which = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(known)}"
    raise ValueError(f"there is no exercise {exercise_id!r}; {which}")
