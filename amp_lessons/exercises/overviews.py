"""What is solved and what is not: the catalogue beside the learner's progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amp_lessons.exercises import shelf
from amp_lessons.exercises.exercise import Exercise
from amp_lessons.exercises.repetition import DUE, is_due
from amp_lessons.keeping import practice, progress
from amp_lessons.keeping.progress import Record
from amp_lessons.text.tables import Table


@dataclass(frozen=True)
class Overview:
    """Every exercise with its record, in the order of the lessons; ``due`` are the ids of those to repeat."""

    rows: tuple[tuple[Exercise, Record], ...]
    message: str = ""
    due: frozenset[str] = frozenset()

    @property
    def solved(self) -> int:
        """How many exercises are solved."""
        return sum(record.solved for _, record in self.rows)

    @property
    def next_exercise(self) -> Exercise | None:
        """The first exercise that is not solved, to go on with."""
        return next((exercise for exercise, record in self.rows if not record.solved), None)

    def __str__(self) -> str:
        return str(self._table())

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self._table()._repr_mimebundle_()

    def _table(self) -> Table:
        rows = [(e.title, e.lesson, "yes" if r.solved else "no", self._so_far(e, r)) for e, r in self.rows]
        notes = [self.message] if self.message else []
        return Table(("exercise", "lesson", "solved", "so far"), rows, self._heading(), notes)

    def _so_far(self, exercise: Exercise, record: Record) -> str:
        return f"{so_far(record)}, {DUE}" if exercise.id in self.due else so_far(record)

    def _heading(self) -> str:
        goes_on = f"; next: {self.next_exercise.id}" if self.next_exercise else ""
        return f"{self.solved} of {len(self.rows)} exercises solved{goes_on}"


def so_far(record: Record) -> str:
    """Say in words what a record holds; nothing where nothing was done."""
    parts = [f"solved {record.solved_at[:10]}"] if record.solved_at else []
    for count, what in ((record.tries, ("try", "tries")), (record.hints, ("hint", "hints"))):
        parts += [f"{count} {what[count != 1]}"] if count else []
    return ", ".join(parts + (["solution seen"] if record.solution_seen else []))


def overview() -> Overview:
    """Return every exercise with what the learner has done about it. Raises ProgressError."""
    found, practised = progress.read(), practice.read()
    rows = tuple((exercise, found.of(exercise.id)) for exercise in shelf.exercises())
    due = frozenset(exercise.id for exercise, record in rows if is_due(exercise.id, record, practised))
    return Overview(rows, " ".join(filter(None, [found.message, practised.message])), due)
