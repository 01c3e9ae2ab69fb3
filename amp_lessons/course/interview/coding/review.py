"""A review: a training loop with several bugs, drawn by a seed; each is found by its line and its cause."""

from __future__ import annotations

import difflib
import functools
import random
import re
import string
from collections.abc import Iterable
from dataclasses import dataclass

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
    for other in chosen:
        if bug.cause == other.cause or bug.id in other.hides or other.id in bug.hides:
            return False
    return broken(sorted([*chosen, bug], key=BUGS.index)) is not None
