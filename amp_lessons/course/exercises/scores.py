"""What a learner has done of each lesson, of its core and of what is deeper, and what is due of all."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from amp_lessons.course import quizzes
from amp_lessons.course.exercises import shelf
from amp_lessons.course.exercises.exercise import Exercise
from amp_lessons.course.exercises.repetition import is_due
from amp_lessons.course.keeping import answers, chosen, cores, practice, progress, schedule
from amp_lessons.course.keeping.answers import Answers
from amp_lessons.course.keeping.chosen import Chosen
from amp_lessons.course.keeping.cores import Cores
from amp_lessons.course.keeping.practice import Practice
from amp_lessons.course.keeping.progress import Progress, ProgressError
from amp_lessons.course.lessons import shipped

_CURVES = re.compile(r"views\.CurveQuiz\((?:range\((\d+), (\d+)\))?\)")


@dataclass(frozen=True)
class Kept:
    """All that the learner's file holds, read once; nothing at first."""

    progress: Progress = field(default_factory=lambda: Progress({}))
    answers: Answers = field(default_factory=lambda: Answers({}))
    practice: Practice = field(default_factory=lambda: Practice({}))
    cores: Cores = field(default_factory=lambda: Cores({}))
    chosen: Chosen = field(default_factory=Chosen)

    @property
    def message(self) -> str:
        """What the learner should know about the file, usually nothing."""
        read = (self.progress, self.answers, self.practice, self.cores, self.chosen)
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
    return Kept(progress.read(), answers.read(), practice.read(), cores.read(), chosen.read())


def score(lesson: str, kept: Kept) -> Score:
    """Return what was done of a lesson, by its number, ``"03"``.

    Raises FileNotFoundError where the lessons did not come, ValueError where there is no such lesson.
    """
    core, below = shipped.parts_of(lesson)
    deeper = shipped.code_of(cell for section in below for cell in section)
    parts = part_of(lesson, shipped.code_of(core), kept), part_of(lesson, deeper, kept)
    return Score(lesson, *parts, kept.cores.done_at.get(lesson, ""))


def part_of(lesson: str, code: str, kept: Kept) -> Part:
    """Return what was done of what these cells of a lesson ask for."""
    set_ = [each.id for each in shelf.exercises() if f'views.ExerciseCard("{each.id}")' in code]
    records = [kept.progress.of(id) for id in set_]
    first = [kept.answers.first.get(id) for id in _asked(lesson, code)]
    given = [answer.right for answer in first if answer is not None]
    return Part(
        exercises=len(records),
        questions=len(first),
        tried=sum(bool(each.tries or each.solution_seen) for each in records),
        solved=sum(each.solved for each in records),
        answered=len(given),
        right=sum(given),
    )


def _asked(lesson: str, code: str) -> list[str]:
    """Return the questions that these cells ask; those about curves are asked by one view, by number."""
    ids = [each.id for each in quizzes.of_lesson(lesson)]
    curves = [id for id in ids if id.startswith("curves.")]
    asked = [id for id in ids if f'views.Quiz("{id}")' in code]
    for first, end in _CURVES.findall(code):
        asked += curves[int(first) - 1 : int(end) - 1] if first else curves
    return asked


def end_core(lesson: str, kept: Kept) -> tuple[Score, str]:
    """Return the score of a lesson whose core was run to its end, and what the learner should know.

    The core counts as done from now on if each of its questions was answered and each of its exercises tried.
    That is honest because the cell that calls this is the core's last: whoever has answered all questions and
    runs it has been through the core. That somebody has understood it, nothing here claims.
    Raises what ``score`` raises.
    """
    found = score(lesson, kept)
    if found.done_at or found.core.unanswered or found.core.untried:
        return found, ""
    try:
        said = cores.record(lesson)
        return replace(found, done_at=cores.read().done_at[lesson]), said
    except ProgressError as error:
        return found, str(error)


def due_exercises(kept: Kept) -> list[Exercise]:
    """Return the exercises that are due for repetition, in the order of the lessons."""
    return [each for each in shelf.exercises() if is_due(each.id, kept.progress.of(each.id), kept.practice)]


def due_cards(kept: Kept) -> int:
    """Count the interview's cards that are due: what was practised, and is no exercise."""
    exercises = {each.id for each in (*shelf.exercises(), *shelf.interview_tasks())}
    cards = [reviews for id, reviews in kept.practice.reviews.items() if id not in exercises]
    due = (schedule.due_at(reviews) for reviews in cards)
    return sum(when is not None and when <= practice.utc_now() for when in due)
