"""What a mock interview asks: planned by its seed, from its level, cut to its minutes; and what follows."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from amp_lessons.course import clinic, exercises
from amp_lessons.course.exercises import Exercise
from amp_lessons.course.interview.bank import (
    LEVELS,
    QUESTIONS,
    TOPICS,
    FollowUp,
    Question,
    Stage,
    follow_ups,
    in_words,
    known,
    question,
)
from amp_lessons.course.interview.estimates import Estimate

# Minutes: two to answer and one to compare with the rubric; then two for what follows.
ANSWER_MINUTES, FOLLOW_UP_MINUTES = 3, 2
QUESTION_MINUTES = ANSWER_MINUTES + FOLLOW_UP_MINUTES
# Difficulties of the code that is asked for; an interview asks for less than an afternoon.
_DIFFICULTIES = {"entry": (1, 2, 3), "senior": (2, 3, 4), "staff": (3, 4, 5)}
_FEW_MINUTES = 25  # in less there is no time for code
_CODE_SHARE = 2 / 3  # of the time at most: half an hour of 45 minutes
_SEEDS = 1000
# What a sentence says that gives a reason: without one, the sentence before it is likelier to.
_REASON = re.compile(r"\b(?:because|since|so|therefore|hence)\b|:")


@dataclass(frozen=True)
class Asked:
    """One thing that the interviewer asks.

    ``points`` are what a good answer covers, ``answer`` is a model one, and ``question_id`` names the
    question of the bank that it is, if it is one. ``kind`` says how it is answered. ``minutes`` are planned
    for it: so much it weighs. What ``follows`` a question belongs to it; ``stub`` is code that is given,
    ``solution`` good code for it; ``stage`` says where in a round of system design this stands, and
    ``before`` is what holds from earlier stages. ``left_out`` is the point of an answer that this asks about.
    """

    kind: Literal["question", "estimate", "code"]
    wording: str
    points: tuple[str, ...]
    topic: str
    lesson: str
    question_id: str = ""
    estimate: Estimate | None = field(default=None, repr=False)
    exercise: Exercise | None = field(default=None, repr=False)
    follows: str = ""
    answered_by: Question | FollowUp | Stage | Estimate | None = field(default=None, repr=False)
    minutes: int = ANSWER_MINUTES
    stub: str = field(default="", repr=False)
    solution: str = field(default="", repr=False)
    stage: str = ""
    before: tuple[str, ...] = ()
    left_out: str = ""

    @property
    def text(self) -> str:
        """What is asked; the numbers of an estimate are drawn now."""
        return self.estimate.question if self.estimate else self.wording

    @property
    def heading(self) -> str:
        """The topic in words, and which stage this is or whether it follows from the question before."""
        which = self.stage or ("follow-up" if self.follows else "")
        return ", ".join(filter(None, [in_words(self.topic), which]))

    @property
    def answer(self) -> str:
        """What a good candidate says: of code to write, where a solution is."""
        if self.answered_by is not None:
            return self.answered_by.answer
        assert self.exercise is not None
        call = f"`exercises.solution({self.exercise.id!r})`"
        return f"In a cell of any lesson, {call} shows one, and other good ways."

    @property
    def sentence(self) -> str:
        """What the model answer says of the point that was left out; "" where no sentence is about it."""
        return nearest_sentence(self.left_out, self.answer) if self.left_out else ""


def nearest_sentence(point: str, answer: str) -> str:
    """Return the sentence of ``answer`` with most of the words of ``point``; "" where that is half or less.

    Words are as good as alike where their first five letters are; short ones tell nothing. Where it says no
    more than the point, the sentence behind it goes with it; where it gives no reason, the one before it.
    """
    wanted = _stems(point)
    sentences = [each for line in answer.splitlines() for each in re.split(r"(?<=[.?!])\s+(?=[^a-z])", line)]
    shared = [len(wanted & _stems(sentence)) for sentence in sentences]
    if 2 * max(shared, default=0) <= len(wanted):
        return ""
    best = shared.index(max(shared))
    if _stems(sentences[best]) <= wanted:
        return " ".join(sentences[best : best + 2])
    first = best if _REASON.search(sentences[best]) else max(0, best - 1)
    return " ".join(sentences[first : best + 1])


def _stems(text: str) -> set[str]:
    return {word[:5] for word in re.findall(r"\w+", text.lower()) if len(word) > 3 or word.isdecimal()}


def planned(level: str, minutes: int, seed: int, topics: Sequence[str] = ()) -> Iterator[Asked]:
    """Yield a warm-up, questions on different topics, a number to find on paper, at last code to write.

    With ``topics`` all of it is of these: code is of their lessons. Raises ValueError for an unknown one.
    """
    known(topics, TOPICS, "topic")
    of_topics = [each for each in QUESTIONS if not topics or each.topic in topics]
    lessons = {each.lesson for each in of_topics} if topics else set()
    rng = random.Random(" ".join([level, str(minutes), str(seed), *topics]))
    task = _task(level, minutes, rng, lessons)
    left = minutes - (task.minutes if task else 0)
    wanted = max(1, left // QUESTION_MINUTES)
    yield from _questions(level, wanted, rng, of_topics, again=bool(topics))
    if task is not None:
        yield asked_for_code(task, rng.randrange(_SEEDS))


def _questions(
    level: str, wanted: int, rng: random.Random, of_topics: list[Question], *, again: bool
) -> Iterator[Asked]:
    """Yield a question of each topic, as many as are wanted or there are topics, and a number at last.

    With ``again`` a topic gives more than one, until there are as many as are wanted.
    """
    spoken = [each for each in of_topics if not each.asks_for_a_number]
    first = rng.choice([each for each in spoken if each.level == _suited(level)[1]] or spoken)
    others = _of_each_topic([each for each in spoken if each.topic != first.topic], level, rng)
    number = wanted - 1 - (wanted > 2)  # the first was one, and the estimate is another
    while again and len(others) < number:
        left = [each for each in spoken if each not in (first, *others)]
        if not left:
            break
        others += _of_each_topic(left, level, rng)
    asked = [first, *others[:number]]
    yield from map(asked_question, asked)
    if wanted > 2:
        spoken_of = {each.topic for each in asked}
        numbers = [each for each in of_topics if each.asks_for_a_number and each.level in _suited(level)]
        fresh = [each for each in numbers if again or each.topic not in spoken_of]
        if fresh:
            yield asked_question(rng.choice(fresh), seed=rng.randrange(_SEEDS))


def _suited(level: str) -> tuple[str, str]:
    """Return the levels of what suits somebody of ``level``: that one and the one below, if there is one."""
    return level, LEVELS[max(0, LEVELS.index(level) - 1)]


def _of_each_topic(found: list[Question], level: str, rng: random.Random) -> list[Question]:
    """Draw one question of each topic, of the level where the topic has one; in a drawn order."""
    topics = list(dict.fromkeys(each.topic for each in found))
    drawn = []
    for topic in rng.sample(topics, k=len(topics)):
        of_topic = [each for each in found if each.topic == topic]
        by_level = ([each for each in of_topic if each.level == one] for one in (*_suited(level), *LEVELS))
        drawn.append(rng.choice(next(filter(None, by_level))))
    return drawn


def _task(level: str, minutes: int, rng: random.Random, lessons: set[str]) -> Exercise | None:
    """Draw code to write, or code to mend, that leaves a third of the time for questions; of ``lessons``."""
    if minutes < _FEW_MINUTES:
        return None
    fitting = [
        each
        for each in exercises.catalog()
        if each.difficulty in _DIFFICULTIES[level]
        and each.minutes <= _CODE_SHARE * minutes
        and (not lessons or each.lesson in lessons)
    ]
    return rng.choice(fitting) if fitting else None


def asked_question(each: Question, follows: str = "", seed: int = 0) -> Asked:
    """Return what the interviewer asks with a question of the bank; numbers of an estimate ``seed`` draws."""
    drawn = Estimate(each, seed) if each.asks_for_a_number else None
    return Asked(
        "estimate" if drawn else "question",
        "" if drawn else each.question,
        each.points,
        each.topic,
        each.lesson,
        each.id,
        drawn,
        follows=follows,
        answered_by=drawn or each,
        minutes=FOLLOW_UP_MINUTES if follows else ANSWER_MINUTES,
    )


def asked_for_code(exercise: Exercise, seed: int = 0) -> Asked:
    """Return what the interviewer asks with an exercise; of code to mend, ``seed`` draws the variant."""
    text = f"Write code: {exercise.title} (exercise {exercise.id}, lesson {exercise.lesson})."
    stub, solution = exercise.stub, exercise.solution_source
    if exercise.is_patient:
        patient = clinic.patient(exercise.id, seed)
        text, stub, solution = f"Mend code: {patient.symptom}", patient.source, patient.mended_source
    return Asked(
        "code",
        text,
        ("code that passes its check",),
        "coding",
        exercise.lesson,
        exercise=exercise,
        minutes=exercise.minutes,
        stub=stub,
        solution=solution,
    )


def another(level: str, asked: Sequence[Asked], seed: int, topics: Sequence[str] = ()) -> Asked | None:
    """Draw a question for who has time left after all that was planned, ``asked``; None if none is left.

    It is of the level and of a topic of which least was asked, one of ``topics`` if there are any.
    """
    known = {each.question_id for each in asked}
    of_level = [q for q in QUESTIONS if q.level == level and (not topics or q.topic in topics)]
    fresh = [q for q in of_level if q.id not in known and not q.asks_for_a_number]
    often = Counter(each.topic for each in asked)
    fewest = min((often[each.topic] for each in fresh), default=0)
    drawn = [each for each in fresh if often[each.topic] == fewest]
    return asked_question(random.Random(f"{seed} {len(asked)}").choice(drawn)) if drawn else None


def follow_up(asked: Asked, covered: tuple[int, ...], known: set[str], seed: int) -> Asked | None:
    """Return what comes after ``asked``; None where a good interviewer changes the subject.

    All of it covered: something deeper, or what people wrongly believe, to be put right. Some of it: why the
    first point that was left out is so, for its words alone were read in the rubric. None of it: nothing, for
    now one knows. ``known`` are questions that were asked, or will be. What is a follow-up itself has none.
    """
    if asked.follows or not asked.question_id or not covered:
        return None
    missed = next((point for i, point in enumerate(asked.points) if i not in covered), "")
    if not missed:
        return _deeper(asked, known, seed)
    text = f"You left this out: “{missed}”. Why is it so, and how would you check it?"
    points = ("said why, with a mechanism", "said what one would run or look up to see it")
    return _own(text, points, asked, asked.answered_by, left_out=missed)


def _deeper(asked: Asked, known: set[str], seed: int) -> Asked:
    """Ask a follow-up of the bank that is new and suits the level, or have a wrong belief put right."""
    rng, of = random.Random(f"{seed} {asked.question_id}"), question(asked.question_id)
    deeper = [
        each
        for each in follow_ups(of.id)
        if isinstance(each, FollowUp) or (each.level in _suited(of.level) and each.id not in known)
    ]
    if not deeper:
        text = f"A colleague says: “{rng.choice(of.wrong_beliefs)}” What do you answer?"
        return _own(text, ("said that it is wrong", "said why"), asked, asked.answered_by)
    each = rng.choice(deeper)
    if isinstance(each, FollowUp):
        return _own(each.question, each.points, asked, each)
    return asked_question(each, of.id, rng.randrange(_SEEDS))


def _own(text: str, points: tuple[str, ...], of: Asked, answered_by: Any, left_out: str = "") -> Asked:
    """Return what is asked about a question of the bank, whose answer says this too, and is none itself."""
    return Asked(
        "question",
        text,
        points,
        of.topic,
        of.lesson,
        follows=of.question_id,
        answered_by=answered_by,
        minutes=FOLLOW_UP_MINUTES,
        left_out=left_out,
    )
