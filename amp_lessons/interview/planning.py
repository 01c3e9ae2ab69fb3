"""What a mock interview will ask: drawn by its seed, from its level, and cut to its minutes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from amp_lessons import exercises
from amp_lessons.exercises import Exercise
from amp_lessons.interview.bank import QUESTIONS
from amp_lessons.interview.estimates import Estimate
from amp_lessons.interview.questions import LEVELS, Question

# Minutes: two to answer, one to think or to compare with the rubric, two for what follows.
_QUESTION, _ESTIMATE = 5, 5
# Difficulties of the code that is asked for; an interview asks for less than an afternoon.
_DIFFICULTIES = {"entry": (1, 2, 3), "senior": (2, 3, 4), "staff": (3, 4, 5)}
_FEW_MINUTES = 25  # in less there is no time for code


@dataclass(frozen=True)
class Asked:
    """One thing that the interviewer asks.

    ``points`` are what a good answer covers, ``answer`` is a model one, and ``question_id`` names the
    question of the bank that it is, if it is one. ``kind`` says how it is answered.
    """

    kind: Literal["question", "estimate", "code"]
    text: str
    points: tuple[str, ...]
    topic: str
    lesson: str
    question_id: str = ""
    estimate: Estimate | None = field(default=None, repr=False)
    exercise: Exercise | None = field(default=None, repr=False)
    follows: str = ""
    model_answer: str = field(default="", repr=False)

    @property
    def heading(self) -> str:
        """The topic in words, and whether this follows from the question before."""
        topic = self.topic.replace("_", " ")
        return f"{topic}, follow-up" if self.follows else topic

    @property
    def answer(self) -> str:
        """What a good candidate says; where the proof has to run for its numbers, that happens now."""
        if self.estimate is not None:
            return self.estimate.answer
        if self.question_id:
            return next(each.answer for each in QUESTIONS if each.id == self.question_id)
        return self.model_answer


def planned(level: str, minutes: int, seed: int) -> Iterator[Asked]:
    """Yield a warm-up, questions on different topics, a number to find on paper, at last code to write."""
    rng = random.Random(f"{level} {minutes} {seed}")
    task = _task(level, minutes, rng)
    left = minutes - (task.minutes if task else 0)
    wanted = max(1, left // _QUESTION)
    yield from _questions(level, wanted, rng)
    if task is not None:
        yield asked_for_code(task)


def _questions(level: str, wanted: int, rng: random.Random) -> Iterator[Asked]:
    estimates = [each for each in QUESTIONS if each.asks_for_a_number]
    spoken = [each for each in QUESTIONS if not each.asks_for_a_number]
    warm_up = [each for each in spoken if each.level == LEVELS[max(0, LEVELS.index(level) - 1)]]
    first = rng.choice(warm_up or spoken)
    yield asked_question(first)
    others = _spread([each for each in spoken if each != first], level, rng)
    number = wanted - 1 - (wanted > 2)  # the first was one, and the estimate is another
    for each in others[:number]:
        yield asked_question(each)
    if wanted > 2:
        yield asked_estimate(rng.choice(estimates), rng.randrange(1000))


def _spread(found: list[Question], level: str, rng: random.Random) -> list[Question]:
    """Shuffle questions so that topics take turns; those of the level come first in each."""
    rng.shuffle(found)
    found.sort(key=lambda each: abs(LEVELS.index(each.level) - LEVELS.index(level)))  # stable
    by_topic: dict[str, list[Question]] = {}
    for each in found:
        by_topic.setdefault(each.topic, []).append(each)
    topics = rng.sample(list(by_topic), k=len(by_topic))
    rounds = range(max(map(len, by_topic.values()), default=0))
    return [by_topic[topic][i] for i in rounds for topic in topics if i < len(by_topic[topic])]


def _task(level: str, minutes: int, rng: random.Random) -> Exercise | None:
    """Draw code to write, or code to mend, that fits into half of the time."""
    if minutes < _FEW_MINUTES:
        return None
    fitting = [
        each
        for each in exercises.catalog()
        if each.difficulty in _DIFFICULTIES[level] and each.minutes <= minutes / 2
    ]
    return rng.choice(fitting) if fitting else None


def asked_question(each: Question, follows: str = "") -> Asked:
    """Return what the interviewer asks with a question of the bank; one for a number takes the bank's own."""
    if each.asks_for_a_number:
        return asked_estimate(each, 0, follows)
    return Asked("question", each.question, each.points, each.topic, each.lesson, each.id, follows=follows)


def asked_estimate(each: Question, seed: int, follows: str = "") -> Asked:
    """Return what the interviewer asks with a question for a number, drawn by ``seed``."""
    drawn = Estimate(each, seed)
    return Asked(
        "estimate", drawn.question, each.points, each.topic, each.lesson, each.id, drawn, follows=follows
    )


def asked_for_code(exercise: Exercise) -> Asked:
    """Return what the interviewer asks with an exercise."""
    what = "Mend" if exercise.is_patient else "Write"
    text = f"{what} code: {exercise.title} (exercise {exercise.id}, lesson {exercise.lesson})."
    points = ("code that passes its check",)
    answer = f"exercises.solution({exercise.id!r}) shows one, and other good ways."
    return Asked("code", text, points, "coding", exercise.lesson, exercise=exercise, model_answer=answer)
