"""What is solved and what is not: the catalogue beside the learner's progress."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from amp_lessons.exercises import shelf
from amp_lessons.exercises.exercise import Exercise
from amp_lessons.keeping import progress
from amp_lessons.keeping.progress import Record
from amp_lessons.text import tables


@dataclass(frozen=True)
class Overview:
    """Every exercise with its record, in the order of the lessons."""

    rows: tuple[tuple[Exercise, Record], ...]
    message: str = ""

    @property
    def solved(self) -> int:
        """How many exercises are solved."""
        return sum(record.solved for _, record in self.rows)

    @property
    def next_exercise(self) -> Exercise | None:
        """The first exercise that is not solved, to go on with."""
        return next((exercise for exercise, record in self.rows if not record.solved), None)

    def __str__(self) -> str:
        return "\n".join(filter(None, [self._heading(), tables.as_text(_HEAD, self._table()), self.message]))

    __repr__ = __str__

    def _heading(self) -> str:
        goes_on = f"; next: {self.next_exercise.id}" if self.next_exercise else ""
        return f"{self.solved} of {len(self.rows)} exercises solved{goes_on}"

    def _table(self) -> list[list[str]]:
        return [[e.title, e.lesson, "yes" if r.solved else "no", so_far(r)] for e, r in self.rows]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        message = f"<p>{escape(self.message)}</p>" if self.message else ""
        return {
            "text/plain": str(self),
            "text/markdown": "\n\n".join(
                [f"**{self._heading()}**", tables.as_markdown(_HEAD, self._table()), self.message]
            ),
            "text/html": tables.as_html(_HEAD, self._table(), caption=self._heading()) + message,
        }


_HEAD = ("exercise", "lesson", "solved", "so far")


def so_far(record: Record) -> str:
    """Say in words what a record holds; nothing where nothing was done."""
    parts = [f"solved {record.solved_at[:10]}"] if record.solved_at else []
    for count, what in ((record.tries, ("try", "tries")), (record.hints, ("hint", "hints"))):
        parts += [f"{count} {what[count != 1]}"] if count else []
    return ", ".join(parts + (["solution seen"] if record.solution_seen else []))


def overview() -> Overview:
    """Return every exercise with what the learner has done about it. Raises ProgressError."""
    found = progress.read()
    return Overview(tuple((e, found.of(e.id)) for e in shelf.exercises()), found.message)
