"""What a code round may ask for, and drawing it: code to write, a loop to review, a training to debug."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field, replace
from typing import Any

from amp_lessons._base.arguments import require
from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.course import clinic
from amp_lessons.course.exercises import Exercise, shelf
from amp_lessons.course.interview.coding.review import LOOP_ID, Review, review

REVIEW, DEBUG = "review", "debug"
_SHORT = ("stable_softmax", "running_variance", "stochastic_rounding", "importance_weights", REVIEW)
_MIDDLE = ("training_step", "online_softmax", "group_quantize", "resumable_scaler", LOOP_ID, REVIEW, DEBUG)
_LONG = ("loss_scaler", "two_optimizers", "fp8_linear", "ddp_step", "sharded_masters", REVIEW)
TASKS = {10: _SHORT, 30: _MIDDLE, 45: _LONG}
"""What rounds of so many minutes ask for: ids of exercises, a review, or a patient that nobody names."""

_BUGS = {10: (3, 3), 30: (4, 5), 45: (6, 7)}  # in a review of so many minutes


@dataclass(frozen=True)
class CodeTask:
    """What one round asks for: ``text`` says it, ``page`` is what there is to begin with.

    ``exercise`` is the one whose check decides; ``names`` are what the page defines. ``answer`` is good code,
    and ``why`` says what is good about it.
    """

    id: str
    title: str
    text: str
    page: str
    names: tuple[str, ...]
    exercise: Exercise = field(repr=False)
    hints: tuple[str, ...] = field(repr=False)
    answer: str = field(repr=False)
    why: str = field(repr=False)
    review: Review | None = field(default=None, repr=False)
    patient: clinic.Patient | None = field(default=None, repr=False)

    @property
    def asks(self) -> str:
        """What the check asks, as a list."""
        return self.exercise.asks

    @property
    def seen(self) -> clinic.Observed | None:
        """What a run of a training to debug shows, in a second or two; None for other tasks."""
        return self.patient.observe() if self.patient else None

    def defined_in(self, namespace: dict[str, Any]) -> Any:
        """Return what the check takes of what code has defined. Raises KeyError for a missing name."""
        found = tuple(namespace[name] for name in self.names)
        return found[0] if len(found) == 1 else found


def known_tasks() -> tuple[str, ...]:
    """Return the ids of everything that may be asked for, each once."""
    return tuple(dict.fromkeys(id for ids in TASKS.values() for id in ids))


def task(minutes: int, seed: int, id: str = "") -> CodeTask:
    """Return what a round asks for: drawn by ``seed`` for so many minutes, or the one called ``id``.

    Raises ValueError for minutes that no round has, and for an unknown id, TypeError for a seed that is no
    whole number.
    """
    require(seed, int, "seed", "a whole number")
    if minutes not in TASKS:
        raise ValueError(f"a round has {', '.join(map(str, TASKS))} minutes, not {minutes!r}")
    if id and id not in known_tasks():
        raise ValueError(f"no round asks for {id!r}; {did_you_mean(id, known_tasks())}")
    rng = random.Random(f"code {minutes} {seed}")
    chosen = id or rng.choice(TASKS[minutes])
    if chosen == REVIEW:
        return _reviewing(review(seed, rng.randint(*_BUGS[minutes])))
    return _debugging(seed) if chosen == DEBUG else _task(shelf.find(chosen))


def minutes_for(id: str) -> int:
    """Return how many minutes a task has where nobody says: the fewest with which it is drawn."""
    return next(minutes for minutes, ids in TASKS.items() if id in ids)


def _task(exercise: Exercise, **other: Any) -> CodeTask:
    """Return what an exercise asks for, but for what is other here."""
    asked = CodeTask(
        exercise.id,
        exercise.title,
        exercise.task,
        exercise.stub,
        exercise.names,
        exercise,
        exercise.hints,
        exercise.solution_source,
        exercise.explanation,
    )
    return replace(asked, **other)


def _reviewing(drawn: Review) -> CodeTask:
    places = map(drawn.place, drawn.by_line(drawn.bugs))
    hints = (
        f"There are {len(drawn.bugs)} of them.",
        f"Look at these places: {'; '.join(places)}.",
        "Their causes: " + "; ".join(sorted(bug.cause for bug in drawn.bugs)) + ".",
    )
    return _task(
        shelf.find(LOOP_ID),
        id=REVIEW,
        title="A review of a training loop",
        text="A colleague asks for your review. The loop below is to make one update, clipped to `max_norm`, "
        "for every `accumulation_steps` batches, in fp16 or bf16. It runs, nothing is raised, and it has "
        "three to seven bugs. Name each by its line and its cause, then mend the loop.",
        page=drawn.source,
        hints=hints,
        answer=drawn.mended_source,
        review=drawn,
    )


def _debugging(seed: int) -> CodeTask:
    """Draw a patient, and take its name off: what its functions are called says what is seen of it."""
    ill = random.Random(f"debug {seed}").choice(clinic.patients(seed))
    suffix = ill.id.removeprefix("heal")
    named = {name: name.removesuffix(suffix) for name in ill.exercise.names}
    right = next(each for each in ill.diagnoses if each.right)
    return _task(
        ill.exercise,
        id=DEBUG,
        title="A training to debug",
        text=f"Somebody's training runs, and is wrong. They report: “{ill.symptom}” Find the cause, and mend "
        "the code; keep what it defines and its arguments.",
        page=_renamed(ill.source, named),
        names=tuple(named.values()),
        answer=_renamed(ill.mended_source, named),
        why=f"The cause: {right.text}. {ill.exercise.explanation}",
        patient=ill,
    )


def _renamed(source: str, named: dict[str, str]) -> str:
    for old, new in named.items():
        source = re.sub(rf"\b{old}\b", new, source)
    return source
