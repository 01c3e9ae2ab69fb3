"""What the cells of a lesson ask a learner for, in their order: questions to answer, exercises to write.

And where a learner stopped: at the task whose trace in the record is the newest. Nothing here loads PyTorch,
so that ``amp-lessons lab`` and the first cell of a morning can ask without waiting for it.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from amp_lessons.course import quizzes
from amp_lessons.course.lessons import shipped
from amp_lessons.course.lessons.shipped import Cell, heading_of
from amp_lessons.course.progress import Learner, moment

_EXERCISE = re.compile(r'views\.ExerciseCard\("(\w+)"\)')
_CURVES = re.compile(r"views\.CurveQuiz\((?:range\((\d+), (\d+)\))?\)")
_END = re.compile(r"views\.LessonEnd\(")


@dataclass(frozen=True)
class Task:
    """A cell, by its id, that asks for something; ``heading`` is the one it stands under, "" above the first.

    ``part`` is "" in the core, else the id of the heading's cell of the deeper section. The cell that ends
    the core asks for nothing but to be run: ``ends_core``.
    """

    lesson: str
    cell: str
    heading: str
    part: str = ""
    questions: tuple[str, ...] = ()
    exercises: tuple[str, ...] = ()
    ends_core: bool = False

    def done(self, kept: Learner) -> bool:
        """Return whether each question was answered and each exercise tried, or the core was ended."""
        if self.ends_core:
            return self.lesson in kept.cores
        answered = all(id in kept.answers for id in self.questions)
        return answered and all(kept.of(id).tried for id in self.exercises)

    def right(self, kept: Learner) -> bool:
        """Return whether the right answer to each question was found, and each exercise solved."""
        found = all(id in kept.answers and kept.answers[id].found for id in self.questions)
        return found and all(kept.of(id).solved for id in self.exercises)

    def stuck(self, kept: Learner) -> bool:
        """Return whether an exercise was tried and is not solved, and its solution was not seen either."""
        records = [kept.of(id) for id in self.exercises]
        return any(each.tries and not (each.solved or each.solution_seen) for each in records)

    def last_at(self, kept: Learner) -> datetime | None:
        """Return when this was worked on last, as far as that is kept."""
        moments = [kept.last_at(id) for id in (*self.questions, *self.exercises)]
        ended = moment(kept.cores.get(self.lesson)) if self.ends_core else None
        return max(filter(None, [*moments, ended]), default=None)


def questions_in(lesson: str, code: str) -> list[str]:
    """Return the questions that cells ask; those about curves are asked by one view, by number."""
    ids = [each.id for each in quizzes.of_lesson(lesson)]
    curves = [id for id in ids if id.startswith("curves.")]
    asked = [id for id in ids if f'views.Quiz("{id}")' in code]
    for first, end in _CURVES.findall(code):
        asked += curves[int(first) - 1 : int(end) - 1] if first else curves
    return asked


def exercises_in(code: str) -> list[str]:
    """Return the exercises whose cards these cells show."""
    return _EXERCISE.findall(code)


def of_lesson(number: str) -> tuple[Task, ...]:
    """Return what a lesson asks for, by its number. Raises as ``shipped.head_of`` does."""
    return _of_file(number, shipped.numbered(shipped.originals(), number))


@functools.cache
def _of_file(number: str, lesson: Path) -> tuple[Task, ...]:
    core, below = shipped.parted(shipped.cells_of(lesson))
    found = [*_in_cells(number, core)]
    for section in below:
        found += _in_cells(number, section, section[0]["id"])
    return tuple(found)


def in_section(number: str, id: str) -> list[Task]:
    """Return what a section of a lesson asks for, by the id of its heading's cell."""
    cells = {cell["id"] for cell in shipped.section(number, id)}
    return [each for each in of_lesson(number) if each.cell in cells]


def stopped_at(kept: Learner) -> tuple[Task, datetime] | None:
    """Return the task that was worked on last, and when; None where nothing was done yet."""
    if not (kept.answers or kept.records or kept.cores):
        return None
    every = (each for head in shipped.heads() for each in of_lesson(head.number))
    found = [(each, at) for each in every if (at := each.last_at(kept))]
    return max(found, key=lambda pair: pair[1], default=None)


def _in_cells(number: str, cells: list[Cell], part: str = "") -> list[Task]:
    found, heading = [], ""
    for cell in cells:
        under = heading_of(cell)
        heading = under[1].removeprefix("Deeper: ") if under else heading
        code = shipped.code_of([cell])
        questions, exercises = tuple(questions_in(number, code)), tuple(exercises_in(code))
        ends = bool(_END.search(code))
        if questions or exercises or ends:
            found.append(Task(number, cell["id"], heading, part, questions, exercises, ends))
    return found
