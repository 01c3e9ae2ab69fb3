"""What a code round may ask for, and drawing it: code to write, a loop to review, a training to debug.

A loop to review has three to seven bugs, drawn by a seed; each is found by its line and its cause.
"""

from __future__ import annotations

import difflib
import functools
import random
import re
import string
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from amp_lessons._base.arguments import require
from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.course import clinic
from amp_lessons.course.exercises import Exercise, shelf
from amp_lessons.course.exercises.clipped_windows.bugs import BUGS, LOOP, Bug, broken
from amp_lessons.course.exercises.patients.case import LOOP_NAMES, Choice, drawn, names, pieces, written

MOST_BUGS, FEWEST_BUGS = 7, 3
LOOP_ID = "clipped_windows"
"""The exercise whose check the mended loop has to pass."""

_CHOICES = (  # pieces first: they are written with the names that the loop has
    pieces(("optimizer.zero_grad()",), ("model.zero_grad()",), ("optimizer.zero_grad(set_to_none=True)",)),
    pieces(("enabled=dtype == torch.float16",), ("enabled=(dtype is torch.float16)",)),
    *LOOP_NAMES,
    names("i", "number", "index", "k"),
    names("outputs", "logits", "scores"),
    names("scaler", "grad_scaler", "loss_scaler"),
    names("_", "epoch"),
)


@dataclass(frozen=True)
class Pointed:
    """One thing that a reviewer has pointed at: a line, counted from 1, and a cause."""

    line: int
    cause: str


@dataclass(frozen=True)
class Review:
    """A loop with ``bugs``, in the clothes that ``seed`` draws; the seed draws the bugs as well."""

    bugs: tuple[Bug, ...]
    seed: int = 0

    @property
    def source(self) -> str:
        """The loop to be reviewed."""
        return self._written(self.bugs)

    @property
    def mended_source(self) -> str:
        """The same loop, mended."""
        return self._written(())

    def without(self, *mended: Bug) -> str:
        """Return the loop in which these bugs are mended, and the others are not."""
        return self._written(bug for bug in self.bugs if bug not in mended)

    @property
    def numbered(self) -> str:
        """The loop with its lines numbered, as a reviewer points at them."""
        return "\n".join(f"{i:3}  {line}" for i, line in enumerate(self.source.splitlines(), 1))

    @property
    def causes(self) -> dict[str, str]:
        """Every cause that any review may have, by a letter, in an order that the seed draws."""
        told = sorted({bug.cause for bug in BUGS})
        random.Random(f"causes {self.seed}").shuffle(told)
        return dict(zip(string.ascii_lowercase, told, strict=False))

    def lines(self, bug: Bug) -> frozenset[int]:
        """Return the lines, from 1, where a bug is: changed ones, and those around a gap."""
        changed, gaps = self._changed(bug)
        return frozenset(changed | {line for gap in gaps for line in (gap - 1, gap)})

    def mended_at(self, bug: Bug) -> frozenset[int]:
        """Return the lines at which a bug may be pointed: where it is, and where some would mend it."""
        plain = (broken(self.bugs) or "").splitlines()  # line by line the same, with the names of ``LOOP``
        also = {i for i, line in enumerate(plain, 1) if any(piece in line for piece in bug.also_at)}
        return self.lines(bug) | also

    def place(self, bug: Bug) -> str:
        """Say where a bug is: in a line, or between two where one is missing."""
        changed, gaps = self._changed(bug)
        return f"line {min(changed)}" if changed else f"between lines {gaps[0] - 1} and {gaps[0]}"

    def _changed(self, bug: Bug) -> tuple[set[int], list[int]]:
        """Return the lines that a bug has changed or added, and those before which one is missing."""
        left, right = self.without(bug).splitlines(), self.source.splitlines()
        changed, gaps = set[int](), list[int]()
        for what, _, _, start, stop in difflib.SequenceMatcher(None, left, right, False).get_opcodes():
            if what == "delete":
                gaps.append(start + 1)
            elif what != "equal":
                changed |= set(range(start + 1, stop + 1))
        return changed, gaps

    def typed(self, bug: Bug) -> str:
        """Return what a reviewer types who points at a bug, such as ``12 c``."""
        letter = next(letter for letter, cause in self.causes.items() if cause == bug.cause)
        return f"{min(self.lines(bug))} {letter}"

    def by_line(self, bugs: Iterable[Bug]) -> list[Bug]:
        """Return bugs in the order of their lines."""
        return sorted(bugs, key=lambda bug: min(self.lines(bug)))

    def found(self, pointed: Iterable[Pointed]) -> tuple[Bug, ...]:
        """Return the bugs that were pointed at by line and cause."""
        said = tuple(pointed)
        return tuple(
            bug
            for bug in self.bugs
            if any(each.cause == bug.cause and each.line in self.mended_at(bug) for each in said)
        )

    def judged(self, pointed: Pointed) -> str:
        """Say what there is at a line: the bug that was meant, one of another cause, or none."""
        if self.found([pointed]):
            return "found"
        there = any(pointed.line in self.lines(bug) for bug in self.bugs)
        return "a bug is there, and this is not its cause" if there else "no bug is there"

    def read(self, answer: str) -> tuple[Pointed, ...]:
        """Read answers such as ``12 c, 15 f``. Raises ValueError that says what is wrong with one."""
        parts = [part for part in re.split(r"[,;\n]+", answer.lower()) if part.strip()]
        return tuple(map(self._pointed, parts))

    def _pointed(self, part: str) -> Pointed:
        match = re.fullmatch(r"\s*(\d+)\s*([a-z])\s*", part)
        last = len(self.source.splitlines())
        if match is None or match[2] not in self.causes or not 1 <= int(match[1]) <= last:
            raise ValueError(
                f"{part.strip()!r} is no line from 1 to {last} with the letter of a cause, such as 12 c"
            )
        return Pointed(int(match[1]), self.causes[match[2]])

    def _written(self, bugs: Iterable[Bug]) -> str:
        source = broken(bugs)
        assert source is not None, "what does not fit is not drawn"
        return written(source, self._ways)

    @functools.cached_property
    def _ways(self) -> list[tuple[Choice, tuple[str, ...]]]:
        """Draw names and pieces: only those that every bug leaves where they stand."""
        sources = [LOOP, *filter(None, (broken([bug]) for bug in self.bugs))]
        return drawn((choice for choice in _CHOICES if _fits(choice, sources)), self.seed)


def _fits(choice: Choice, sources: Iterable[str]) -> bool:
    """Whether each piece stands once in each source; names may be exchanged everywhere."""
    wanted = [piece for piece in choice.ways[0] if not piece.isidentifier()]
    return all(source.count(piece) == 1 for source in sources for piece in wanted)


def review(seed: int, number: int) -> Review:
    """Draw a review with so many bugs, three to seven. Raises ValueError for another number."""
    if not FEWEST_BUGS <= number <= MOST_BUGS:
        raise ValueError(f"a review has {FEWEST_BUGS} to {MOST_BUGS} bugs, not {number}")
    rng = random.Random(f"review {seed} {number}")
    while True:
        chosen: list[Bug] = []
        for bug in rng.sample(BUGS, k=len(BUGS)):
            if len(chosen) < number and _fits_beside(bug, chosen):
                chosen = sorted([*chosen, bug], key=BUGS.index)
        if len(chosen) == number:
            return Review(tuple(chosen), seed)


def _fits_beside(bug: Bug, chosen: list[Bug]) -> bool:
    """Whether a bug has another cause than those chosen, hides none of them, and fits into the same loop."""
    if any(bug.cause == each.cause or bug.id in each.hides or each.id in bug.hides for each in chosen):
        return False
    return broken(sorted([*chosen, bug], key=BUGS.index)) is not None


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
    said = (exercise.id, exercise.title, exercise.task, exercise.stub, exercise.names)
    good = (exercise.hints, exercise.solution_source, exercise.explanation)
    return replace(CodeTask(*said, exercise, *good), **other)


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
