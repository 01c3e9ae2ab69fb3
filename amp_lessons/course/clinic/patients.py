"""Patients: the exercises whose folders hold a case, each in as many variants as there are seeds."""

from __future__ import annotations

import random
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.course.exercises import shelf
from amp_lessons.course.exercises.exercise import Exercise
from amp_lessons.course.exercises.patients.case import Case, Diagnosis, Observed, Sighting, drawn, written


@dataclass(frozen=True)
class Patient:
    """Code that runs, and is wrong; ``seed`` picks its clothes, and the model and data that it runs on.

    Seed 0 is the code in the lesson. The ``title`` is how it looks, not what it has; ``symptom`` is what
    somebody would report, in one sentence. It is ``silent`` if nothing is raised, PyTorch does not warn, and
    no loss becomes inf or NaN. ``seen_at`` says where somebody met this mistake: for after the diagnosis,
    which it gives away. ``exercises.check`` takes the ``id``.
    """

    id: str
    title: str
    silent: bool
    symptom: str
    seen_at: tuple[Sighting, ...]
    exercise: Exercise
    case: Case
    seed: int = 0

    @property
    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """What it may be, one of them right, in an order that the seed draws."""
        told = list(self.case.diagnoses)
        random.Random(f"{self.id} {self.seed}").shuffle(told)
        return tuple(told)

    @property
    def source(self) -> str:
        """The broken code."""
        return self._written(self.exercise.stub)

    @property
    def mended_source(self) -> str:
        """The same code, mended."""
        return self._written(self.exercise.solution_source)

    @property
    def broken(self) -> Any:
        """What the broken code defines: what ``exercises.check`` takes."""
        return self._defined(self.source)

    @property
    def mended(self) -> Any:
        """What the mended code defines."""
        return self._defined(self.mended_source)

    def observe(self, code: Any = None) -> Observed:
        """Run ``code``, or the broken code where there is none, and return what shows of it.

        It takes seconds at most, and starts anew each time: the same code shows the same on one machine. The
        random numbers stay those of whoever looks.
        """
        with torch.random.fork_rng(devices=[]):
            return self.case.observe(self.broken if code is None else code, self.seed)

    def shows(self, observed: Observed) -> bool:
        """Whether a run shows the symptom: that of the broken code does, that of a mended one does not."""
        return self.case.shows(observed)

    def __repr__(self) -> str:
        return f"Patient({self.id!r}, seed={self.seed}, {self.title!r})"

    def _written(self, source: str) -> str:
        return written(source, drawn(self.case.choices, self.seed))

    def _defined(self, source: str) -> Any:
        namespace: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source, f"<{self.id}>", "exec"), namespace)
        return self.exercise.defined_in(namespace)


def patients(seed: int = 0) -> tuple[Patient, ...]:
    """Return all patients, in the order of the lesson."""
    return tuple(patient(each.id, seed) for each in shelf.exercises() if each.is_patient)


def patient(id: str, seed: int = 0) -> Patient:
    """Return one patient, in the variant of ``seed``. Raises ValueError for an unknown id."""
    known = {each.id: each for each in shelf.exercises() if each.is_patient}
    if id not in known:
        raise ValueError(f"there is no patient {id!r}; {did_you_mean(id, known)}")
    case: Case = import_module(f"amp_lessons.course.exercises.{id}.patient").CASE
    return Patient(id, known[id].title, case.silent, case.symptom, case.seen_at, known[id], case, seed)
