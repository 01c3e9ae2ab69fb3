"""What a learner has done of each lesson, of its core and of what is deeper, and what is due of all."""

from __future__ import annotations

from dataclasses import dataclass, replace

from amp_lessons.course import progress, schedule
from amp_lessons.course.exercises import shelf
from amp_lessons.course.exercises.exercise import Exercise
from amp_lessons.course.exercises.repetition import is_due
from amp_lessons.course.lessons import shipped, tasks
from amp_lessons.course.progress import Learner, ProgressError


@dataclass(frozen=True)
class Part:
    """What a learner has done of a part of a lesson: of its exercises and of its questions.

    An exercise is ``tried`` when it was checked or its solution seen. Of its questions, ``right`` were right
    at the first answer, of the ``answered`` ones, and of ``found`` the right one was chosen at some time.
    """

    exercises: int
    questions: int
    tried: int
    solved: int
    answered: int
    right: int
    found: int

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


def score(lesson: str, kept: Learner) -> Score:
    """Return what was done of a lesson, by its number, ``"03"``.

    Raises FileNotFoundError where the lessons did not come, ValueError where there is no such lesson.
    """
    core, below = shipped.parts_of(lesson)
    deeper = shipped.code_of(cell for section in below for cell in section)
    parts = part_of(lesson, shipped.code_of(core), kept), part_of(lesson, deeper, kept)
    return Score(lesson, *parts, kept.cores.get(lesson, ""))


def part_of(lesson: str, code: str, kept: Learner) -> Part:
    """Return what was done of what these cells of a lesson ask for."""
    records = [kept.of(id) for id in tasks.exercises_in(code)]
    first = [kept.answers.get(id) for id in tasks.questions_in(lesson, code)]
    given = [answer for answer in first if answer is not None]
    return Part(
        exercises=len(records),
        questions=len(first),
        tried=sum(each.tried for each in records),
        solved=sum(each.solved for each in records),
        answered=len(given),
        right=sum(each.right for each in given),
        found=sum(each.found for each in given),
    )


def end_core(lesson: str, kept: Learner) -> tuple[Score, str]:
    """Return the score of a lesson whose core was run to its end, and what the learner should know.

    The core counts as done from now on if each of its questions was answered and each of its exercises tried.
    That is honest because the cell that calls this is the core's last: whoever has answered all questions and
    runs it has been through the core. That somebody has understood it, nothing here claims.
    Raises what ``score`` raises.
    """
    found = score(lesson, kept)
    if found.done_at or found.core.unanswered or found.core.untried:
        return found, ""
    done_at = ""

    def record(now: Learner) -> None:
        nonlocal done_at
        now.end_core(lesson)
        done_at = now.cores[lesson]

    try:
        said = progress.change(record)
        return replace(found, done_at=done_at), said
    except ProgressError as error:
        return found, str(error)


def due_exercises(kept: Learner) -> list[Exercise]:
    """Return the exercises that are due for repetition, in the order of the lessons."""
    return [each for each in shelf.exercises() if is_due(each.id, kept)]


def due_cards(kept: Learner) -> int:
    """Count the interview's cards that are due: what was practised, and is no exercise."""
    exercises = {each.id for each in (*shelf.exercises(), *shelf.interview_tasks())}
    cards = [reviews for id, reviews in kept.reviews.items() if id not in exercises]
    due = (schedule.due_at(reviews) for reviews in cards)
    return sum(when is not None and when <= progress.utc_now() for when in due)
