"""One exercise, read from its folder: card, stub, solution and check are files, each in its own language."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from amp_lessons.course.exercises.report import rendering
from amp_lessons.course.exercises.report.results import OtherWay

_SECTIONS = (rendering.ASKS, "Hint 1", "Hint 2", "Hint 3", "Why")
_WAYS = "Other ways"  # the section that a card may end with
_WAY = re.compile(r"\s*(\S.*?)\s*^```python\n(.+?)^```\s*", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Exercise:
    """One exercise: what to write, and the way to the answer.

    ``lesson`` is the number of the notebook it belongs to ("04"), ``place`` its place in there, from 1; with
    place 0 it stands in none, interviews alone ask for it, and the lesson is the one that explains it;
    ``difficulty`` runs from 1 to 5; ``minutes`` is what a learner should plan for. ``names`` are what the
    stub defines, in the order in which a check takes them. ``asks`` is a list, as ``task`` may hold one:
    what is given, what is to be returned, what is checked, with every figure. ``other_ways`` are good
    answers too.
    """

    id: str
    title: str
    lesson: str
    place: int
    difficulty: int
    minutes: int
    names: tuple[str, ...]
    task: str
    asks: str
    hints: tuple[str, str, str]
    explanation: str
    stub: str
    solution_source: str
    other_ways: tuple[OtherWay, ...] = ()

    @property
    def is_patient(self) -> bool:
        """Whether the stub runs, and is wrong: the learner mends it instead of writing it."""
        return self.id.startswith("heal_")

    @property
    def solution(self) -> Any:
        """Return what the solution defines: one object, or a tuple in the order of ``names``."""
        return self.defined_in(vars(self._module("solution")))

    def defined_in(self, namespace: Mapping[str, Any]) -> Any:
        """Return what a check takes of the names that a cell has defined: one object, or a tuple of them."""
        found = tuple(namespace[name] for name in self.names)
        return found[0] if len(found) == 1 else found

    @functools.cached_property
    def meets_autocast(self) -> bool:
        """Whether autocast is on in an attempt, or in what its check makes of it."""
        return self._mentions("autocast")

    @property
    def meets_optimizers(self) -> bool:
        """Whether an optimizer is made in an attempt, or by its check."""
        return self.is_patient or self._mentions("optim")

    def _mentions(self, word: str) -> bool:
        check = inspect.getsource(self._module("check"))
        return any(word in source for source in (self.stub, self.solution_source, check))

    def _module(self, name: str) -> ModuleType:
        return import_module(f"{__package__}.{self.id}.{name}")

    def __repr__(self) -> str:
        return f"Exercise({self.id!r}, lesson {self.lesson}, {self.title!r})"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        facts = f"difficulty {self.difficulty} of 5, about {self.minutes} minutes"
        return rendering.card_bundle(self.title, facts, self.task, self.asks)


def cell_id(exercise_id: str, part: str) -> str:
    """Return the id of the notebook's cell that holds a part of an exercise: card, stub or check."""
    return f"{exercise_id.replace('_', '-')}-{part}"


def read(folder: Path) -> Exercise:
    """Read the exercise in ``folder``, whose name is its id. Raises ValueError for an incomplete card."""
    front, (task, asks, *hints, explanation), ways = _read_card(folder / "card.md")
    stub = (folder / "stub.py").read_text("utf-8")
    return Exercise(
        id=folder.name,
        names=_names_defined(stub),
        task=task,
        asks=asks,
        hints=(hints[0], hints[1], hints[2]),
        explanation=explanation,
        stub=stub,
        solution_source=(folder / "solution.py").read_text("utf-8"),
        other_ways=ways,
        **front,
    )


def _read_card(path: Path) -> tuple[dict[str, Any], list[str], tuple[OtherWay, ...]]:
    """Split a card: front matter, sections (the first, without a heading, is the task), and other ways."""
    match = re.fullmatch(r"---\n(.*?)\n---\n(.*)", path.read_text("utf-8"), re.DOTALL)
    if match is None:
        raise ValueError(f"{path} must begin with front matter between two lines of ---")
    told, *ways = re.split(rf"^## {_WAYS}$", match[2], maxsplit=1, flags=re.MULTILINE)
    task, *rest = re.split(r"^## (.+)$", told, flags=re.MULTILINE)
    if tuple(rest[::2]) != _SECTIONS:
        raise ValueError(f"{path} must have the sections {', '.join(_SECTIONS)}, not {', '.join(rest[::2])}")
    asks, *told_later = rest[1::2]
    sections = [_laid_out(task), _laid_out(asks), *(" ".join(text.split()) for text in told_later)]
    return _front_matter(match[1], path), sections, _read_ways(ways[0], path) if ways else ()


def _laid_out(task: str) -> str:
    """Join the lines of each paragraph and of each item that begins with ``- ``; blank lines stay."""
    lines: list[str] = []
    for line in map(str.strip, task.strip().splitlines()):
        if lines and lines[-1] and line and not line.startswith("- "):
            lines[-1] += f" {line}"
        else:
            lines.append(line)
    return "\n".join(lines)


def _read_ways(text: str, path: Path) -> tuple[OtherWay, ...]:
    """Read the ways of a card: for each a heading, what distinguishes it, and its code."""
    before, *rest = re.split(r"^### (.+)$", text, flags=re.MULTILINE)
    found = [(title, _WAY.fullmatch(body)) for title, body in zip(rest[::2], rest[1::2], strict=True)]
    if before.strip() or not found or any(match is None for _, match in found):
        raise ValueError(
            f"{path}: under ## {_WAYS} stand a ### heading, some sentences and a ```python block"
        )
    return tuple(OtherWay(title, " ".join(match[1].split()), match[2]) for title, match in found if match)


_FIELDS = {"title": str, "lesson": str, "place": int, "difficulty": int, "minutes": int}


def _front_matter(text: str, path: Path) -> dict[str, Any]:
    import yaml  # only cards need it, and importing this package must stay quick

    front = yaml.safe_load(text)
    if {name: type(value) for name, value in front.items()} != _FIELDS:
        wanted = ", ".join(f"{name} ({kind.__name__})" for name, kind in _FIELDS.items())
        raise ValueError(f"the front matter of {path} must hold {wanted}")
    return dict(front)


def _names_defined(source: str) -> tuple[str, ...]:
    """List the functions, classes and variables that a stub defines, in order."""
    names: list[str] = []
    for statement in ast.parse(source).body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            names.append(statement.name)
        elif isinstance(statement, ast.Assign):
            names += [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return tuple(names)
