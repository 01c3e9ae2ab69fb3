"""Read a learner's notebook as data: its attempts, and what is conspicuous. Nothing of it is run.

Of each attempt: its definition, and what that mentions, and what those do; and whether it is the stub, or a
solution, but for names, words and layout.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
import symtable
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

State = Literal["written", "stub", "missing", "not python"]
Wanted: TypeAlias = dict[str, Any]  # id, names, stub, solutions, lesson: what the reading process is told

_CHECK = re.compile(r"""\bcheck\(\s*["'](\w+)["']""")
_SAID = re.compile(r": (passed|not passed|not attempted yet)")


@dataclass(frozen=True)
class Found:
    """What a notebook holds of one exercise.

    ``source`` is all that the attempt needs, ``remarks`` say what is conspicuous; ``stored`` is the verdict
    below the check in the notebook, "" for none.
    """

    exercise_id: str
    state: State
    source: str = ""
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
        return Found(wanted["id"], "not python" if broken else "missing", "", remarks, stored)
    own = [each for each in definition if bound(each) & set(wanted["names"])]
    if same_code(own, wanted["stub"]):
        return Found(wanted["id"], "stub", "", remarks, stored)
    if same_as_any(own, wanted["solutions"]):
        remarks += ("the code is the card's solution, or one of its other ways, but for names and words",)
    source = "\n".join(ast.unparse(ast.fix_missing_locations(each)) for each in definition) + "\n"
    return Found(wanted["id"], "written", source, remarks, stored)


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
            if end == len(cells) or not same_code(own, wanted["stub"]):
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


_TOO_SHORT_TO_TELL = 60  # nodes of a tree: so little code comes out alike by itself


def same_as_any(statements: Sequence[ast.stmt], sources: Iterable[str]) -> bool:
    """Whether the statements are one of ``sources``; of very short code nobody can say so."""
    shape = _shape(statements)
    if shape.count("(") < _TOO_SHORT_TO_TELL:
        return False
    return any(shape == _shape(ast.parse(source).body) for source in sources)


def same_code(one: Sequence[ast.stmt], source: str) -> bool:
    """Whether the statements do what the unchanged ``source`` does."""
    return _shape(one) == _shape(ast.parse(source).body)


def _shape(statements: Sequence[ast.stmt]) -> str:
    """Write a tree without its imports and docstrings, and with names numbered as they first come."""
    known: dict[str, str] = {}
    own = [each for each in statements if not isinstance(each, ast.Import | ast.ImportFrom)]
    tree = ast.parse("\n".join(map(ast.unparse, own)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            _drop_docstring(node)
    for node in ast.walk(tree):
        for field in ("id", "arg", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                setattr(node, field, known.setdefault(name, f"n{len(known)}"))
    return ast.dump(tree)


def _drop_docstring(node: ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef) -> None:
    first = node.body[0]
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        node.body = node.body[1:] or [ast.Pass()]


def needed(names: Iterable[str], statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements, in their order, without which ``names`` could not be defined and used.

    Of several that bind a name the last counts, as in a notebook that was run from top to bottom. What a
    statement does to an object without binding a name (``table.append(1)``) is not followed.
    """
    single = [part for statement in statements for part in _parts(statement)]
    binding = {name: place for place, statement in enumerate(single) for name in bound(statement)}
    kept: set[int] = set()
    waiting = list(names)
    while waiting:
        place = binding.get(waiting.pop())
        if place is None or place in kept:
            continue
        kept.add(place)
        waiting += _mentioned(single[place])
    return [single[place] for place in sorted(kept)]


def _parts(statement: ast.stmt) -> list[ast.stmt]:
    """Take an import apart: one name of it may be needed, and the others not."""
    if isinstance(statement, ast.Import):
        return [ast.Import([alias]) for alias in statement.names]
    if isinstance(statement, ast.ImportFrom):
        return [ast.ImportFrom(statement.module, [alias], statement.level) for alias in statement.names]
    return [statement]


def bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds at the top of a notebook."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    return {symbol.get_name() for symbol in _table(statement).get_symbols() if symbol.is_assigned()}


def _mentioned(statement: ast.stmt) -> set[str]:
    table = _table(statement)
    found = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced()}
    for inner in _inner(table):
        found |= {symbol.get_name() for symbol in inner.get_symbols() if symbol.is_global()}
    return found - set(dir(builtins))


def _table(statement: ast.stmt) -> symtable.SymbolTable:
    return symtable.symtable(ast.unparse(statement), "<submission>", "exec")


def _inner(table: symtable.SymbolTable) -> Iterable[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _inner(child)


_MAGIC = re.compile(r"^(\s*)[%!?].*$|^(\s*)\S.*\?$", re.MULTILINE)


class UnreadableNotebookError(ValueError):
    """The file is no notebook."""


@dataclass(frozen=True)
class Cell:
    """A cell of code: its id ("" where it has none), its source, and what stands below it as text."""

    id: str
    source: str
    shown: str

    @property
    def statements(self) -> list[ast.stmt]:
        """What the cell does, statement by statement; nothing of a cell that is not Python."""
        try:
            return ast.parse(self.code).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return []

    @property
    def is_python(self) -> bool:
        """Whether it can be parsed."""
        try:
            ast.parse(self.code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        return True

    @property
    def code(self) -> str:
        """The source, with nothing in place of what is IPython's and not Python's."""
        if self.source.lstrip().startswith("%%"):
            return ""
        try:
            ast.parse(self.source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return _MAGIC.sub(lambda found: (found[1] or found[2] or "") + "pass", self.source)
        return self.source


def cells_of(text: str) -> list[Cell]:
    """Return the cells of code. Raises UnreadableNotebookError for what is no notebook."""
    try:
        return list(_cells(json.loads(text)))
    except (ValueError, RecursionError, TypeError, AttributeError, KeyError) as error:
        raise UnreadableNotebookError(f"this is no notebook: {error}"[:200]) from error


def _cells(notebook: dict[str, Any]) -> Iterator[Cell]:
    for cell in notebook["cells"]:
        if cell.get("cell_type") == "code":
            shown = "\n".join(map(_text_of, cell.get("outputs", [])))
            yield Cell(str(cell.get("id", "")), _joined(cell.get("source", "")), shown)


def _text_of(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    return _joined(data.get("text/plain", "")) or _joined(output.get("text", ""))


def _joined(text: Any) -> str:
    return "".join(map(str, text)) if isinstance(text, list) else str(text)
