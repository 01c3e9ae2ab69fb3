"""What the room knows while a class lasts. It is kept in memory alone: to end the class is to forget it.

Learners are told apart by the login that the hub vouches for; it never leaves this module.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

from amp_lessons.course.quizzes import Question, questions
from classroom.room import course, names

_LETTERS = "abcdefgh"


class NotTakingPartError(Exception):
    """Something was sent by somebody who has not joined, or whose class has ended."""


class UnknownError(Exception):
    """A question, an answer or an exercise that the course does not have; the message names it."""


@dataclass
class Learner:
    """One person who takes part: what they answered, at first and now, and what they solved."""

    name: str | None = None
    first: dict[str, int] = field(default_factory=dict)
    now: dict[str, int] = field(default_factory=dict)
    solved: set[str] = field(default_factory=set)


class Room:
    """The state of one class, from the first who joins to its end."""

    def __init__(self) -> None:
        """Begin empty, as after every restart."""
        self._begun = secrets.token_hex(4)  # a page that knew the room before a restart must look again
        self._changes = 0
        self._learners: dict[str, Learner] = {}
        self._opened: Question | None = None
        self._revealed = False

    @property
    def version(self) -> str:
        """What changes whenever something does."""
        return f"{self._begun}.{self._changes}"

    # --- what learners do

    def join(self, login: str, name: str | None = None) -> None:
        """Add a participant, under the name they chose or without one; what they did before stays.

        Raises NameRefusedError for a name that cannot be shown, or that somebody else has.
        """
        shown = None if name is None else names.chosen(name)
        others = (each.name for other, each in self._learners.items() if other != login)
        if shown is not None and any(each is not None and names.same(shown, each) for each in others):
            raise names.NameRefusedError("somebody in this class has that name already; choose another")
        self._learners.setdefault(login, Learner()).name = shown
        self._changed()

    def leave(self, login: str) -> None:
        """Forget somebody, with all that they answered and solved; nothing happens to who is not there."""
        if self._learners.pop(login, None) is not None:
            self._changed()

    def vote(self, login: str, question_id: str, choice: object) -> None:
        """Note an answer; a second one to the same question replaces it. Raises the errors above."""
        learner = self._of(login)
        choices = _question(question_id).choices
        if type(choice) is not int or not 0 <= choice < len(choices):
            raise UnknownError(f"{question_id} has answers 0 to {len(choices) - 1}")
        learner.first.setdefault(question_id, choice)
        learner.now[question_id] = choice
        self._changed()

    def solve(self, login: str, exercise_id: str) -> None:
        """Note that somebody solved an exercise. Raises the errors above."""
        learner = self._of(login)
        if exercise_id not in course.tasks():
            raise UnknownError("the course has no such exercise")
        learner.solved.add(exercise_id)
        self._changed()

    # --- what the teacher does

    def open(self, question_id: str) -> None:
        """Show the answers to a prediction, as they come; not which is right. Raises UnknownError."""
        self._opened, self._revealed = _question(question_id), False
        self._changed()

    def reveal(self) -> None:
        """Reveal which answer of the open prediction is right."""
        self._revealed = self._opened is not None
        self._changed()

    def close(self) -> None:
        """Show no prediction; the answers stay."""
        self._opened, self._revealed = None, False
        self._changed()

    def end(self) -> None:
        """End the class: forget everybody and everything."""
        self._learners.clear()
        self.close()

    # --- what is seen

    def board(self) -> dict[str, Any]:
        """Return what everybody in the class sees."""
        everybody = self._learners.values()
        return {
            "version": self.version,
            "taking_part": len(everybody),
            "named": sorted(each.name for each in everybody if each.name is not None),
            "prediction": None if self._opened is None else self._prediction(self._opened),
            "exercises": [self._task(each) for each in course.tasks().values() if self._solved(each.id)],
        }

    def answered(self) -> dict[str, int]:
        """Return how many have answered each prediction, for the teacher; not what they answered."""
        counts: dict[str, int] = {}
        for learner in self._learners.values():
            for question_id in learner.now:
                counts[question_id] = counts.get(question_id, 0) + 1
        return counts

    def _prediction(self, question: Question) -> dict[str, Any]:
        answers = [
            (learner.first[question.id], learner.now[question.id])
            for learner in self._learners.values()
            if question.id in learner.now
        ]
        choices = [
            {
                "letter": _LETTERS[i],
                "text": choice.text,
                "first": sum(first == i for first, _ in answers),
                "now": sum(now == i for _, now in answers),
                "right": choice.right if self._revealed else None,
            }
            for i, choice in enumerate(question.choices)
        ]
        return {
            "id": question.id,
            "lesson": course.lesson_of(question.id),
            "text": question.text,
            "answered": len(answers),
            "changed": any(first != now for first, now in answers),
            "choices": choices,
            "why": question.answer.why if self._revealed else None,
        }

    def _task(self, task: course.Task) -> dict[str, Any]:
        solvers = self._solved(task.id)
        return {
            "title": task.title,
            "lesson": task.lesson,
            "solved": len(solvers),
            "names": sorted(each.name for each in solvers if each.name is not None),
        }

    def _solved(self, exercise_id: str) -> list[Learner]:
        return [each for each in self._learners.values() if exercise_id in each.solved]

    def _of(self, login: str) -> Learner:
        try:
            return self._learners[login]
        except KeyError:
            raise NotTakingPartError from None

    def _changed(self) -> None:
        self._changes += 1


def _question(question_id: object) -> Question:
    try:
        return questions()[question_id]  # type: ignore[index]
    except (KeyError, TypeError):
        raise UnknownError("the course has no such prediction") from None
