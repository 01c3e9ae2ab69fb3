"""The questions: data in ``*.yaml`` beside this file, one file per topic."""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any

import yaml

from amp_lessons._base.entries import LOADER
from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.course.interview.proving import Proof
from amp_lessons.course.interview.questions import FollowUp, Question

# In the order of the lessons; what belongs to no single one comes last.
TOPICS = (
    "formats",
    "autocast",
    "loss_scaling",
    "training_loop",
    "speed_and_memory",
    "debugging",
    "real_models",
    "many_gpus",
    "fp8",
    "language_models",
    "system_design",
    "estimation",
)


def _read(topic: str) -> list[Question]:
    text = resources.files(__name__).joinpath(f"{topic}.yaml").read_text("utf-8")
    return [_question(topic, entry) for entry in yaml.load(text, LOADER)]


def _question(topic: str, entry: dict[str, Any]) -> Question:
    """Make a question of what the file says; lists become tuples, and one name stands for two fields."""
    said: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()
    }
    said |= {"question_template": said.pop("question"), "answer_template": said.pop("answer")}
    said |= {"topic": topic, "id": f"{topic}.{said['id']}"}
    said["follow_ups"] = tuple(_follow_up(said["id"], each) for each in said["follow_ups"])
    return Question(**said)


def _follow_up(after: str, entry: str | dict[str, Any]) -> str | FollowUp:
    if isinstance(entry, str):
        return entry
    return FollowUp(after, entry["question"], entry["answer"], tuple(entry["points"]))


QUESTIONS: tuple[Question, ...] = tuple(question for topic in TOPICS for question in _read(topic))
LESSONS = tuple(sorted({each.lesson for each in QUESTIONS}))  # those that teach the answer to a question


@functools.cache
def _by_id() -> dict[str, Question]:
    return {question.id: question for question in QUESTIONS}


def question(id: str) -> Question:
    """Return the question called ``id``, for example ``"loss_scaling.why"``.

    Raises KeyError for an unknown one; the message names the nearest ones.
    """
    try:
        return _by_id()[id]
    except KeyError:
        raise KeyError(f"no question is called {id!r}; {did_you_mean(id, _by_id())}") from None


def follow_ups(question_id: str) -> tuple[Question | FollowUp, ...]:
    """Return what an interviewer asks after a question: others of the bank, or what follows this one alone.

    Raises KeyError for an unknown question; the message names the nearest ones.
    """
    asked = question(question_id).follow_ups
    return tuple(each if isinstance(each, FollowUp) else question(each) for each in asked)


def prove(question_id: str) -> Proof:
    """Run the cell that shows that the answer to a question is true, once per process.

    Raises KeyError for an unknown question; the message names the nearest ones.
    """
    return question(question_id).prove()
