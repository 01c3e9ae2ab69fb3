"""Work for groups: each group, or learner, gets its own variant of a patient, of drills, of an estimate.

A seed for each, so that no two have the same variant while there are others; the teacher gets the answers.
"""

from __future__ import annotations

import difflib
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from amp_lessons._base.arguments import require_whole
from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.course import clinic, interview

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


_TRIES = 100  # so many seeds in a row without a new variant: then all count as handed out
_LARGEST_SEED = 9999  # what a teacher reads out, and a learner types


@dataclass(frozen=True)
class Handed:
    """What one group gets; ``shared_with`` is the group that has the same, 0 while variants last."""

    group: int
    variant: Variant
    shared_with: int = 0


def hand_out(work: Work, groups: int, seed: int) -> tuple[Handed, ...]:
    """Draw a variant for each of so many groups, counted from 1.

    The same ``seed`` draws the same, and more groups change nothing for those before them. Once variants
    are used up, they are handed out anew.
    """
    require_whole(groups, "groups")
    return tuple(itertools.islice(_handed(work, seed), groups))


def _handed(work: Work, seed: int) -> Iterator[Handed]:
    seeds = random.Random(f"{seed} {work.id}")
    first: dict[str, int] = {}
    this_round: set[str] = set()
    for group in itertools.count(1):
        variant = _new(work, seeds, this_round)
        if variant is None:
            this_round.clear()
            variant = _new(work, seeds, this_round)
            assert variant is not None  # nothing is handed out in this round
        this_round.add(variant.task)
        yield Handed(group, variant, first.get(variant.task, 0))
        first.setdefault(variant.task, group)


def _new(work: Work, seeds: random.Random, handed: set[str]) -> Variant | None:
    """Draw until a variant is none of those that were ``handed``; None if they seem to be all."""
    for _ in range(_TRIES):
        variant = work.drawn(seeds.randint(1, _LARGEST_SEED))
        if variant.task not in handed:
            return variant
    return None
