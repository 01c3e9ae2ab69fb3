"""Find the attempts in a notebook, and what is conspicuous about it. Nothing of it is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from amp_lessons.grading import gate, likeness
from amp_lessons.grading.notebooks import Cell, cells_of
from amp_lessons.grading.slicing import bound, needed

State = Literal["written", "stub", "missing", "not python"]
Wanted: TypeAlias = dict[str, Any]  # id, names, stub, solutions, lesson: what the reading process is told

_CHECK = re.compile(r"""\bcheck\(\s*["'](\w+)["']""")
_SAID = re.compile(r": (passed|not passed|not attempted yet)")


@dataclass(frozen=True)
class Found:
    """What a notebook holds of one exercise.

    ``source`` is all that the attempt needs; ``held`` says what of it the gate does not let through,
    ``remarks`` what is conspicuous; ``stored`` is the verdict below the check in the notebook, "" for none.
    """

    exercise_id: str
    state: State
    source: str = ""
    held: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    stored: str = ""


def lessons_in(text: str, wanted: Sequence[Wanted]) -> set[str]:
    """Return the lessons of which the notebook has cells. Raises UnreadableNotebookError."""
    cells = cells_of(text)
    return {each["lesson"] for each in wanted if any(_belongs(cell, each["id"]) for cell in cells)}


def attempts_in(text: str, wanted: Sequence[Wanted]) -> list[Found]:
    """Return what the notebook holds of each exercise. Raises UnreadableNotebookError."""
    cells = cells_of(text)
    return [_found(cells, each) for each in wanted]


def _belongs(cell: Cell, exercise_id: str) -> bool:
    ids = [f"{exercise_id.replace('_', '-')}-{part}" for part in ("stub", "check")]
    return cell.id in ids or exercise_id in _CHECK.findall(cell.source)


def _found(cells: list[Cell], wanted: Wanted) -> Found:
    checks = [place for place, cell in enumerate(cells) if _is_check(cell, wanted["id"])]
    stored = _stored(cells, checks)
    remarks = tuple(_about_checks(cells, checks, wanted))
    definition = _definition(cells, checks, wanted)
    if definition is None:
        broken = any(_belongs(cell, wanted["id"]) and not cell.is_python for cell in cells)
        return Found(wanted["id"], "not python" if broken else "missing", "", (), remarks, stored)
    own = [each for each in definition if bound(each) & set(wanted["names"])]
    if likeness.same(own, wanted["stub"]):
        return Found(wanted["id"], "stub", "", (), remarks, stored)
    if likeness.same_as_any(own, wanted["solutions"]):
        remarks += ("the code is the card's solution, or one of its other ways, but for names and words",)
    source = "\n".join(ast.unparse(ast.fix_missing_locations(each)) for each in definition) + "\n"
    return Found(wanted["id"], "written", source, tuple(gate.complaints(definition)), remarks, stored)


def _is_check(cell: Cell, exercise_id: str) -> bool:
    """Whether the cell calls the check; one that only has the check's id may hold anything by now."""
    return exercise_id in _CHECK.findall(cell.source)


def _definition(cells: list[Cell], checks: list[int], wanted: Wanted) -> list[ast.stmt] | None:
    """Return what defines the attempt: as it stood above the last check, or else wherever it stands."""
    for end in (*([checks[-1] + 1] if checks else []), len(cells)):
        statements = [each for cell in cells[:end] for each in cell.statements]
        known = set().union(*map(bound, statements)) if statements else set()
        if known.issuperset(wanted["names"]):
            definition = needed(wanted["names"], statements)
            own = [each for each in definition if bound(each) & set(wanted["names"])]
            if end == len(cells) or not likeness.same(own, wanted["stub"]):
                return definition
    return None


def _stored(cells: list[Cell], checks: list[int]) -> str:
    """Return the verdict that the notebook shows below the last check."""
    said = [_SAID.search(cells[place].shown) for place in checks]
    return next((found[1] for found in reversed(said) if found), "")


def _about_checks(cells: list[Cell], checks: list[int], wanted: Wanted) -> Iterator[str]:
    wanted_id = f"{wanted['id'].replace('_', '-')}-check"
    original = [cell for cell in cells if cell.id == wanted_id]
    if not checks:
        yield "the cell with the check was removed, or calls it no more"
    elif original and not any(_plain(cell.source) == _plain(wanted["check"]) for cell in original):
        yield f"the cell with the check was changed: {original[0].source.strip()[:120]}"


def _plain(source: str) -> str:
    return re.sub(r"\s+|#.*", "", source).replace("'", '"')
