"""What is solved, answered and due: what there is to do, beside the learner's progress."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from amp_lessons import quizzes
from amp_lessons.exercises import shelf
from amp_lessons.exercises.exercise import Exercise
from amp_lessons.exercises.repetition import DUE, is_due
from amp_lessons.keeping import answers, practice, progress, schedule
from amp_lessons.keeping.practice import Practice
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


@dataclass(frozen=True)
class Score:
    """What a learner has done of one lesson, and what is due of all; ``message`` names a damaged file.

    Of its questions, ``right`` were right at the first answer, of the ``answered`` ones. ``due`` are the
    exercises to repeat, ``due_cards`` counts the interview's cards.
    """

    exercises: int
    questions: int
    solved: int = 0
    answered: int = 0
    right: int = 0
    due: tuple[Exercise, ...] = ()
    due_cards: int = 0
    message: str = ""

    @property
    def unanswered(self) -> int:
        """How many questions have no answer yet."""
        return self.questions - self.answered


def untouched(lesson: str) -> Score:
    """Return the score of a lesson, by its number, of which nothing has been done."""
    return Score(exercises=len(_of(lesson)), questions=len(quizzes.of_lesson(lesson)))


def score(lesson: str) -> Score:
    """Return what the learner has done of a lesson, by its number, ``"03"``. Raises ProgressError."""
    done, practised, answered = progress.read(), practice.read(), answers.read()
    every = shelf.exercises()
    asked = [each.id for each in quizzes.of_lesson(lesson)]
    first = [answered.first[id].right for id in asked if id in answered.first]
    return replace(
        untouched(lesson),
        solved=sum(done.of(each.id).solved for each in _of(lesson)),
        answered=len(first),
        right=sum(first),
        due=tuple(each for each in every if is_due(each.id, done.of(each.id), practised)),
        due_cards=_due_cards(practised, {each.id for each in every}),
        message=" ".join(filter(None, [done.message, practised.message, answered.message])),
    )


def _of(lesson: str) -> list[Exercise]:
    return [each for each in shelf.exercises() if each.lesson == lesson]


def _due_cards(practised: Practice, exercise_ids: set[str]) -> int:
    """Count what is practised and due, and no exercise."""
    cards = [reviews for id, reviews in practised.reviews.items() if id not in exercise_ids]
    due = (schedule.due_at(reviews) for reviews in cards)
    return sum(when is not None and when <= practice.utc_now() for when in due)
