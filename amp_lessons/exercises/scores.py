"""What a learner has done of each lesson, of its core and of what is deeper, and what is due of all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from amp_lessons import quizzes
from amp_lessons.exercises import shelf
from amp_lessons.exercises.exercise import Exercise
from amp_lessons.exercises.repetition import is_due
from amp_lessons.keeping import answers, cores, practice, progress, schedule
from amp_lessons.keeping.answers import Answers
from amp_lessons.keeping.cores import Cores
from amp_lessons.keeping.practice import Practice
from amp_lessons.keeping.progress import Progress
from amp_lessons.lessons import shipped


@dataclass(frozen=True)
class Kept:
    """All that the learner's file holds, read once; nothing at first."""

    progress: Progress = field(default_factory=lambda: Progress({}))
    answers: Answers = field(default_factory=lambda: Answers({}))
    practice: Practice = field(default_factory=lambda: Practice({}))
    cores: Cores = field(default_factory=lambda: Cores({}))

    @property
    def message(self) -> str:
        """What the learner should know about the file, usually nothing."""
        read = (self.progress, self.answers, self.practice, self.cores)
        return " ".join(each.message for each in read if each.message)


@dataclass(frozen=True)
class Part:
    """What a learner has done of a part of a lesson: of its exercises and of its questions.

    An exercise is ``tried`` when it was checked or its solution seen. Of its questions, ``right`` were right
    at the first answer, of the ``answered`` ones.
    """

    exercises: int
    questions: int
    tried: int
    solved: int
    answered: int
    right: int

    @property
    def unanswered(self) -> int:
        """How many questions have no answer yet."""
        return self.questions - self.answered

    @property
    def untried(self) -> int:
        """How many exercises were not tried yet."""
        return self.exercises - self.tried


@dataclass(frozen=True)
class Score:
    """What was done of a lesson; ``done_at`` is when its core was done (UTC, ISO 8601), else empty."""

    lesson: str
    core: Part
    deeper: Part
    done_at: str = ""


def read() -> Kept:
    """Read all that is kept. Raises ProgressError."""
    return Kept(progress.read(), answers.read(), practice.read(), cores.read())


def score(lesson: str, kept: Kept) -> Score:
    """Return what was done of a lesson, by its number, ``"03"``.

    Raises FileNotFoundError where the lessons did not come, ValueError where there is no such lesson.
    """
    core = shipped.core_code(lesson)
    asked = {each.id: _asks(core, each.id) for each in quizzes.of_lesson(lesson)}
    set_ = {each.id: _sets(core, each.id) for each in shelf.exercises() if each.lesson == lesson}
    parts = (
        _part([id for id in set_ if set_[id] is here], [id for id in asked if asked[id] is here], kept)
        for here in (True, False)
    )
    return Score(lesson, *parts, kept.cores.done_at.get(lesson, ""))


def end_core(lesson: str, kept: Kept) -> tuple[Score, str]:
    """Return the score of a lesson whose core was run to its end, and what the learner should know.

    The core counts as done from now on if each of its questions was answered and each of its exercises tried.
    That is honest because the cell that calls this is the core's last: whoever has answered all questions and
    runs it has been through the core. That somebody has understood it, nothing here claims.
    Raises ProgressError, and what ``score`` raises.
    """
    found = score(lesson, kept)
    if found.done_at or found.core.unanswered or found.core.untried:
        return found, ""
    said = cores.record(lesson)
    return score(lesson, Kept(kept.progress, kept.answers, kept.practice, cores.read())), said


def _asks(code: str, id: str) -> bool:
    """Return whether these cells ask a question; those about curves are asked by one view."""
    return f'views.Quiz("{id}")' in code or (id.startswith("curves.") and "views.CurveQuiz(" in code)


def _sets(code: str, id: str) -> bool:
    return f'views.ExerciseCard("{id}")' in code


def _part(exercises: Iterable[str], questions: Iterable[str], kept: Kept) -> Part:
    records = [kept.progress.of(id) for id in exercises]
    first = [kept.answers.first.get(id) for id in questions]
    given = [answer.right for answer in first if answer is not None]
    return Part(
        exercises=len(records),
        questions=len(first),
        tried=sum(bool(each.tries or each.solution_seen) for each in records),
        solved=sum(each.solved for each in records),
        answered=len(given),
        right=sum(given),
    )


def due_exercises(kept: Kept) -> list[Exercise]:
    """Return the exercises that are due for repetition, in the order of the lessons."""
    return [each for each in shelf.exercises() if is_due(each.id, kept.progress.of(each.id), kept.practice)]


def due_cards(kept: Kept) -> int:
    """Count the interview's cards that are due: what was practised, and is no exercise."""
    exercises = {each.id for each in shelf.exercises()}
    cards = [reviews for id, reviews in kept.practice.reviews.items() if id not in exercises]
    due = (schedule.due_at(reviews) for reviews in cards)
    return sum(when is not None and when <= practice.utc_now() for when in due)
