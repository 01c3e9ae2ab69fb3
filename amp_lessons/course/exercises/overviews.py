"""Every exercise with what the learner has done about it, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from amp_lessons._base.text.tables import ShownAsTable, Table
from amp_lessons._base.text.words import listed
from amp_lessons.course import progress, quizzes
from amp_lessons.course.exercises import shelf
from amp_lessons.course.exercises.exercise import Exercise
from amp_lessons.course.exercises.repetition import DUE, is_due
from amp_lessons.course.lessons import shipped
from amp_lessons.course.progress import FirstAnswer, Learner, Record


@dataclass(frozen=True, repr=False)
class Overview(ShownAsTable):
    """Every exercise with its record, in the order of the lessons; ``due`` are the ids of those to repeat.

    ``answered`` has, by lesson, whether each question that has an answer was right at first.
    """

    rows: tuple[tuple[Exercise, Record], ...]
    message: str = ""
    due: frozenset[str] = frozenset()
    answered: Mapping[str, tuple[bool, ...]] = field(default_factory=dict)

    @property
    def solved(self) -> int:
        """How many exercises are solved."""
        return sum(record.solved for _, record in self.rows)

    @property
    def next_exercise(self) -> Exercise | None:
        """The first exercise that is not solved, to go on with."""
        return next((exercise for exercise, record in self.rows if not record.solved), None)

    def _table(self) -> Table:
        rows = [(e.title, e.lesson, "yes" if r.solved else "no", self._so_far(e, r)) for e, r in self.rows]
        notes = [self._questions(), *([self.message] if self.message else [])]
        return Table(("exercise", "lesson", "solved", "so far"), rows, self._heading(), notes)

    def _so_far(self, exercise: Exercise, record: Record) -> str:
        return f"{so_far(record)}, {DUE}" if exercise.id in self.due else so_far(record)

    def _heading(self) -> str:
        return f"{self.solved} of {len(self.rows)} exercises solved"

    def _questions(self) -> str:
        """Say how many questions were answered, of all and of each lesson that was begun."""
        right = [each for first in self.answered.values() for each in first]
        said = f"{len(right)} of {len(quizzes.questions())} questions answered"
        if not right:
            return f"{said}."
        lessons = [
            f"{len(first)} of {len(quizzes.of_lesson(number))} in lesson {shipped.named(number)}"
            for number, first in self.answered.items()
        ]
        return f"{said}, {sum(right)} of them right at the first answer: {listed(lessons)}."


def so_far(record: Record) -> str:
    """Say in words what a record holds; nothing where nothing was done."""
    parts = [f"solved {record.solved_at[:10]}"] if record.solved_at else []
    for count, what in ((record.tries, ("try", "tries")), (record.hints, ("hint", "hints"))):
        parts += [f"{count} {what[count != 1]}"] if count else []
    return ", ".join(parts + (["solution seen"] if record.solution_seen else []))


def overview() -> Overview:
    """Return every exercise with what the learner has done about it. Raises ProgressError."""
    kept = progress.read()
    return replace(overview_of(kept), message=kept.message)


def overview_of(kept: Learner) -> Overview:
    """Return every exercise with what is kept of it, without the message of who has read that."""
    rows = tuple((exercise, kept.of(exercise.id)) for exercise in shelf.exercises())
    due = frozenset(exercise.id for exercise, _ in rows if is_due(exercise.id, kept))
    first = {number: _first_answers(number, kept.answers) for number in quizzes.lessons()}
    return Overview(rows, "", due, {number: rights for number, rights in first.items() if rights})


def _first_answers(lesson: str, answers: Mapping[str, FirstAnswer]) -> tuple[bool, ...]:
    asked = [each.id for each in quizzes.of_lesson(lesson)]
    return tuple(answers[id].right for id in asked if id in answers)
