"""What has variants drawn by a seed: patients, drills and estimates, with the teacher's answers."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from amp_lessons import clinic, interview
from amp_lessons.text.nearest import did_you_mean

_LETTERS = "abcdefgh"

# What stays the same for every group, in the order of how often a teacher meets it.
WITHOUT_VARIANTS = (
    "predictions (views.Quiz): their answers are what the lesson's own next cell shows",
    "exercises written from a stub: the check draws its own cases, and the task is one",
    "the twelve loss curves: a drill asks for some of them, in another order",
    "interview questions without a number; a mock interview draws among them by its own seed",
)


@dataclass(frozen=True)
class Variant:
    """One variant of a piece of work: ``task`` is what a group sees of it, and tells it from the others.

    ``answers`` are the teacher's, line by line. ``cells`` are those of a learner's notebook.
    """

    seed: int
    task: str
    answers: tuple[str, ...]
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Work:
    """Something to hand out. ``drawn`` makes the variant of a seed, the same each time."""

    id: str
    title: str
    lesson: str
    drawn: Callable[[int], Variant]


def all_work() -> tuple[Work, ...]:
    """Return all that has variants, in the order of the lessons."""
    return tuple(_all().values())


def work(id: str) -> Work:
    """Return one piece of work by its id. Raises ValueError for an unknown one, which names the nearest."""
    if id not in _all():
        raise ValueError(f"nothing called {id!r} has variants; {did_you_mean(id, _all())}")
    return _all()[id]


def _all() -> dict[str, Work]:
    patients = [Work(each.id, each.title, "06", _patient(each.id)) for each in clinic.patients()]
    estimates = [
        Work(each.id, each.id.partition(".")[2].replace("_", " "), "10", _estimate(each.id))
        for each in interview.QUESTIONS
        if each.asks_for_a_number
    ]
    drills = Work("drills", "eight drills of fifty seconds", "10", _drills)
    return {each.id: each for each in (*patients, drills, *estimates)}


def _patient(id: str) -> Callable[[int], Variant]:
    def drawn(seed: int) -> Variant:
        patient = clinic.patient(id, seed)
        told = zip(_LETTERS, patient.diagnoses, strict=False)
        diagnosis = next(f"{letter}) {each.text}" for letter, each in told if each.right)
        compared = difflib.ndiff(patient.source.splitlines(), patient.mended_source.splitlines())
        mending = (line for line in compared if line[0] in "-+")
        shown = f'from amp_lessons import views\n\nviews.Patient("{id}", seed={seed})'
        checked = f'views.check("{id}", {", ".join(patient.exercise.names)})'
        return Variant(seed, patient.source, (diagnosis, *mending), (shown, patient.source.strip(), checked))

    return drawn


def _drills(seed: int) -> Variant:
    asked = list(interview.drills(seed, 8))
    answers = tuple(f"{number}. {each.question.answer.text}" for number, each in enumerate(asked, start=1))
    task = "\n".join(each.question.text + each.curve for each in asked)
    shown = f"from amp_lessons import views\n\nviews.DrillView(seed={seed})"
    return Variant(seed, task, answers, (shown,))


def _estimate(id: str) -> Callable[[int], Variant]:
    def drawn(seed: int) -> Variant:
        estimate = interview.estimate(id, seed)
        near = f"{estimate.value:.4g} {estimate.unit}".strip() + f", give or take {estimate.tolerance:.0%}"
        asked = (
            "from amp_lessons import interview\n\n"
            f'drawn = interview.estimate("{id}", seed={seed})\n'
            "print(drawn.question)"
        )
        accepted = (
            f"mine = 0.0  # your number{f', in {estimate.unit}' * bool(estimate.unit)}\ndrawn.accepts(mine)"
        )
        answers = (estimate.question, near, estimate.answer)
        return Variant(seed, estimate.question, answers, (asked, accepted))

    return drawn
