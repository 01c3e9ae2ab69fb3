"""What an interviewer asks next, which depends on what was covered."""

from __future__ import annotations

import random

from amp_lessons.interview.bank import follow_ups, question
from amp_lessons.interview.planning import Asked, asked_question
from amp_lessons.interview.questions import FollowUp, Question


def follow_up(asked: Asked, covered: tuple[int, ...], known: set[str], seed: int) -> Asked | None:
    """Return what comes after ``asked``; None where a good interviewer changes the subject.

    All of it covered: something deeper, or what people wrongly believe, to be put right. Some of it: the
    first point that was left out. None of it: nothing, for now one knows. ``known`` are questions that were
    asked, or will be. What is a follow-up itself has none.
    """
    if asked.follows or asked.kind == "code" or not covered:
        return None
    missed = [point for i, point in enumerate(asked.points) if i not in covered]
    return _about(missed[0], asked) if missed else _deeper(asked, known, seed)


def _about(point: str, asked: Asked) -> Asked:
    text = f"You have not come to this yet: {point}. What can you say about it?"
    answer = question(asked.question_id).answer
    return Asked(
        "question",
        text,
        (point,),
        asked.topic,
        asked.lesson,
        follows=asked.question_id,
        model_answer=answer,
    )


def _deeper(asked: Asked, known: set[str], seed: int) -> Asked:
    """Ask one of the follow-ups in the bank that is new, or let the candidate put a wrong belief right."""
    rng = random.Random(f"{seed} {asked.question_id}")
    of = question(asked.question_id)
    deeper = [each for each in follow_ups(of.id) if isinstance(each, FollowUp) or each.id not in known]
    if deeper:
        return _asked(rng.choice(deeper), of)
    text = f"A colleague says: “{rng.choice(of.wrong_beliefs)}” What do you answer?"
    points = ("said that it is wrong", "said why")
    return Asked("question", text, points, of.topic, of.lesson, follows=of.id, model_answer=of.answer)


def _asked(each: Question | FollowUp, of: Question) -> Asked:
    """Return what the interviewer asks after ``of``, from the bank or for it alone."""
    if isinstance(each, Question):
        return asked_question(each, follows=of.id)
    return Asked(
        "question",
        each.question,
        each.points,
        of.topic,
        of.lesson,
        follows=of.id,
        model_answer=each.answer,
    )
