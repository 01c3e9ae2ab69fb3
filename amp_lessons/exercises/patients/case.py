"""What a patient's folder tells of it beside its card: the symptom, the diagnoses, where it was seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from amp_lessons.exercises.patients.observed import Observed
from amp_lessons.exercises.patients.variants import Choice


@dataclass(frozen=True)
class Diagnosis:
    """One thing that may be wrong, and what of the symptom and the code speaks for it or against it."""

    text: str
    because: str
    right: bool = False


@dataclass(frozen=True)
class Sighting:
    """A public place where somebody met this mistake, and what they said of it, in our words."""

    url: str
    told: str


@dataclass(frozen=True)
class Case:
    """One patient, as the ``CASE`` in its folder's ``patient.py``.

    ``silent`` says that nothing is raised, PyTorch does not warn, and no loss becomes inf or NaN. ``symptom``
    is one sentence that a person would report, without a diagnosis. ``code`` is that of the finding which the
    stub deserves.
    ``observe`` takes whatever the exercise's check takes, and a seed which picks model and data, runs it for
    a few seconds at most, and tells what somebody would see of that run; ``shows`` says whether that is the
    symptom. ``choices`` are the pieces in which variants differ.
    """

    silent: bool
    symptom: str
    code: str
    diagnoses: tuple[Diagnosis, ...]
    seen_at: tuple[Sighting, ...]
    observe: Callable[[Any, int], Observed]
    shows: Callable[[Observed], bool]
    choices: tuple[Choice, ...] = field(repr=False)
