"""What the course can be asked about: its predictions and its exercises. PyTorch is not loaded for it."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

import yaml

from amp_lessons.course.quizzes import Question, questions


@dataclass(frozen=True)
class Task:
    """An exercise, as far as a room shows it."""

    id: str
    title: str
    lesson: str


@functools.cache
def predictions() -> dict[str, dict[str, Question]]:
    """Return the questions of each lesson, by the lesson's number ("03") and the question's id."""
    folder = resources.files("amp_lessons.course.quizzes")
    found = {
        path.name[:2]: [entry["id"] for entry in json.loads(path.read_text("utf-8"))]
        for path in folder.iterdir()
        if path.name.endswith(".json")
    }
    return {lesson: {id: questions()[id] for id in found[lesson]} for lesson in sorted(found)}


@functools.cache
def lesson_of(question_id: str) -> str:
    """Return the number of the lesson that asks a question."""
    return next(lesson for lesson, asked in predictions().items() if question_id in asked)


@functools.cache
def tasks() -> dict[str, Task]:
    """Return the exercises of lessons by id, in their order; those in place 0 are asked in interviews alone.

    ``amp_lessons.exercises`` knows them too, and loads PyTorch: two hundred MiB that a class can use better.
    """
    folders = [
        each
        for each in (resources.files("amp_lessons") / "course" / "exercises").iterdir()
        if _is_exercise(each)
    ]
    fronts = {each.name: front for each in folders if (front := _front_matter(each))["place"]}
    ordered = sorted(fronts, key=lambda id: (fronts[id]["lesson"], fronts[id]["place"]))
    return {id: Task(id, fronts[id]["title"], fronts[id]["lesson"]) for id in ordered}


def _is_exercise(folder: resources.abc.Traversable) -> bool:
    return not folder.name.startswith("_") and (folder / "card.md").is_file()


def _front_matter(folder: resources.abc.Traversable) -> dict[str, Any]:
    front: dict[str, Any] = yaml.safe_load((folder / "card.md").read_text("utf-8").split("---\n")[1])
    return front
