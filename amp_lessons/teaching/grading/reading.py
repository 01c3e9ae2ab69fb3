"""Read a learner's notebook as data: its attempts, and what is conspicuous. Nothing of it is run.

Of each attempt: its definition, and what that mentions, and what those do; and whether it is the stub, or a
solution, but for names, words and layout.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import json
import re
import symtable
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from amp_lessons.course.exercises import shelf
from amp_lessons.course.exercises.exercise import Exercise, cell_id

_CHECK = re.compile(r"""\bcheck\(\s*["'](\w+)["']""")
_DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
_NOT_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)
_SAID = re.compile(r": (passed|not passed|not attempted yet)")


@dataclass(frozen=True)
class Found:
    """What a notebook holds of one exercise.

    ``state`` is "written", "stub", "missing" or "not python". ``source`` is all that the attempt needs,
    ``remarks`` say what is conspicuous; ``stored`` is the verdict below the check, "" for none.
    """

    exercise_id: str
    state: str
    source: str = ""
    remarks: tuple[str, ...] = ()
    stored: str = ""


def read(paths: Sequence[str], exercise_ids: Sequence[str]) -> dict[str, Any]:
    """Read the notebooks of one learner: of which "lessons" they are, what is "found", and their "problems".

    Of several attempts at an exercise the first one counts.
    """
    lessons: set[str] = set()
    found: dict[str, Found] = {}
    problems = []
    for path in map(Path, paths):
        try:
            cells = cells_of(path.read_text("utf-8", errors="replace"))
        except (UnreadableNotebookError, OSError) as error:
            problems.append(f"{path.name}: {error}")
            continue
        wanted = list(map(shelf.find, exercise_ids))
        here = {each.lesson for each in wanted if any(_belongs(cell, each.id) for cell in cells)}
        lessons |= here
        for each in (found_of(cells, exercise) for exercise in wanted if exercise.lesson in here):
            if each.exercise_id not in found or found[each.exercise_id].state != "written":
                found[each.exercise_id] = each
            elif each.state == "written":
                problems.append(f"{path.name}: a second attempt at {each.exercise_id}, which was left out")
    return {"lessons": list(lessons), "found": list(map(asdict, found.values())), "problems": problems}


def _belongs(cell: Cell, exercise_id: str) -> bool:
    return cell.id in (cell_id(exercise_id, "stub"), cell_id(exercise_id, "check")) or _checks(
        cell, exercise_id
    )


def _checks(cell: Cell, exercise_id: str) -> bool:
    """Whether the cell calls the check; one that only has the check's id may hold anything by now."""
    return exercise_id in _CHECK.findall(cell.source)


def found_of(cells: list[Cell], exercise: Exercise) -> Found:
    """Return what the cells hold of an exercise."""
    checks = [place for place, cell in enumerate(cells) if _checks(cell, exercise.id)]
    said = [_SAID.search(cells[place].shown) for place in checks]
    stored = next((each[1] for each in reversed(said) if each), "")
    remarks = tuple(_about_checks(cells, checks, exercise))
    definition = _definition(cells, checks, exercise)
    if definition is None:
        broken = any(_belongs(cell, exercise.id) and cell.tree is None for cell in cells)
        names = " and ".join(exercise.names)
        remarks += (f"cells mention the exercise, and nothing was found that defines {names}",)
        return Found(exercise.id, "not python" if broken else "missing", "", remarks, stored)
    own = [each for each in definition if bound(each) & set(exercise.names)]
    if same_as_any(own, [exercise.stub], least=0):
        return Found(exercise.id, "stub", "", remarks, stored)
    if same_as_any(own, [exercise.solution_source, *(way.source for way in exercise.other_ways)]):
        remarks += ("the code is the card's solution, or one of its other ways, but for names and words",)
    source = "\n".join(ast.unparse(ast.fix_missing_locations(each)) for each in definition) + "\n"
    return Found(exercise.id, "written", source, remarks, stored)


def _about_checks(cells: list[Cell], checks: list[int], exercise: Exercise) -> Iterator[str]:
    original = [cell for cell in cells if cell.id == cell_id(exercise.id, "check")]
    as_it_came = _plain(f'views.check("{exercise.id}", {", ".join(exercise.names)})')
    if not checks:
        yield "the cell with the check was removed, or calls it no more"
    elif original and not any(_plain(cell.source) == as_it_came for cell in original):
        yield f"the cell with the check was changed: {original[0].source.strip()[:120]}"


def _plain(source: str) -> str:
    return re.sub(r"[\s()]+|#.*", "", source).replace("'", '"')


def _definition(cells: list[Cell], checks: list[int], exercise: Exercise) -> list[ast.stmt] | None:
    """Return what defines the attempt: as it stood above the last check, or else wherever it stands."""
    names = set(exercise.names)
    for end in (*([checks[-1] + 1] if checks else []), len(cells)):
        statements = [each for cell in cells[:end] for each in cell.tree or ()]
        known = {name for each in statements for name in bound(each)}
        if known >= names:
            below = [each for cell in cells[end:] for each in cell.tree or ()]
            statements += [each for each in below if not bound(each) & known]
            definition = needed(names, statements)
            own = [each for each in definition if bound(each) & names]
            if end == len(cells) or not same_as_any(own, [exercise.stub], least=0):
                return definition
    return None


_TOO_SHORT_TO_TELL = 60  # nodes of a tree: so little code comes out alike by itself


def same_as_any(own: Sequence[ast.stmt], sources: Iterable[str], least: int = _TOO_SHORT_TO_TELL) -> bool:
    """Whether the statements do what one of ``sources`` does; of fewer nodes than ``least``, no."""
    shape = _shape(own)
    shapes = []
    for source in sources:
        with contextlib.suppress(SyntaxError):  # another way may be a part of something
            shapes.append(_shape(ast.parse(source).body))
    return shape.count("(") >= least and shape in shapes


def _shape(statements: Sequence[ast.stmt]) -> str:
    """Write a tree without its imports and docstrings, and with names numbered as they first come."""
    known: dict[str, str] = {}
    own = [each for each in statements if not isinstance(each, ast.Import | ast.ImportFrom)]
    tree = ast.parse("\n".join(map(ast.unparse, own)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            words = ast.get_docstring(node) is not None
            node.body = node.body[words:] or [ast.Pass()]
    for node in ast.walk(tree):
        for field in ("id", "arg", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                setattr(node, field, known.setdefault(name, f"n{len(known)}"))
    return ast.dump(tree)


def needed(names: Iterable[str], statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements, in their order, without which ``names`` could not be defined and used.

    Those are the last that binds a name anew, as in a notebook that was run from top to bottom, and what
    binds it again or changes its object afterwards (``table[k] = 1`` in a loop, ``table.append(1)``,
    ``Scaler.step = step``): tried, for it may rest on what was left out. Modules are left as they are.
    """
    single = [part for statement in statements for part in _parts(statement)]
    history: dict[str, list[tuple[int, str]]] = {}  # of each name: where it is bound or changed, and how
    for place, statement in enumerate(single):
        for name in bound(statement):
            anew = isinstance(statement, ast.Assign | ast.AnnAssign) and name not in _mentioned(statement)
            how = "anew" if anew or isinstance(statement, _DEFINITION) else "again"
            history.setdefault(name, []).append((place, how))
        for name in (_changed(statement) & history.keys()) - bound(statement):
            if not isinstance(single[history[name][-1][0]], ast.Import | ast.ImportFrom):
                history[name].append((place, "changed"))
    kept: dict[int, str] = {}
    waiting, known = [(name, len(single)) for name in names], set[tuple[str, int]]()
    while waiting:
        name, end = waiting.pop()
        if (name, end) in known or name not in history:
            continue
        known.add((name, end))
        made = [each for each in history[name] if each[0] < end] or history[name]
        first = max((i for i, (_, how) in enumerate(made) if how == "anew"), default=0)
        for place, how in made[first:]:
            kept[place] = how if kept.get(place, "changed") == "changed" else kept[place]
            later = isinstance(single[place], _DEFINITION)  # a body runs with what its names are at the end
            waiting += [(each, len(single) if later else place) for each in _mentioned(single[place])]
    return [
        _tried(single[place]) if how == "changed" else single[place] for place, how in sorted(kept.items())
    ]


def _changed(statement: ast.stmt) -> set[str]:
    """Return the names whose objects a statement changes, as far as that can be seen."""
    found: set[str] = set()
    for node in ast.walk(statement) if not isinstance(statement, _DEFINITION) else ():
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            found.add(_root(node))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            of = node.value.func
            if isinstance(of, ast.Attribute):
                found.add(_root(of))
            elif isinstance(of, ast.Name) and of.id == "setattr" and node.value.args:
                found.add(_root(node.value.args[0]))
    return found


def _root(node: ast.expr) -> str:
    """Return the name that stands before attributes and indices; "" for none."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _tried(statement: ast.stmt) -> ast.stmt:
    body = textwrap.indent(ast.unparse(statement), "    ")
    return ast.parse(f"try:\n{body}\nexcept Exception:\n    pass").body[0]


def _parts(statement: ast.stmt) -> list[ast.stmt]:
    """Take an import apart: one name of it may be needed, and the others not."""
    if isinstance(statement, ast.Import):
        return [ast.Import([alias]) for alias in statement.names]
    if isinstance(statement, ast.ImportFrom):
        return [ast.ImportFrom(statement.module, [alias], statement.level) for alias in statement.names]
    return [statement]


def bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds at the top of a notebook."""
    symbols = _table(statement).get_symbols()
    return {each.get_name() for each in symbols if each.is_assigned() or each.is_imported()}


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


_CELL_MAGIC = re.compile(r"\s*%%(\w+).*\n?")
# A line of IPython's, with the name that is given what it says: here an empty list.
_MAGIC = re.compile(r"^([ \t]*)([\w, ]+=[ \t]*)?(?:[%!?].*|[\w.]+\?+)$", re.MULTILINE)


class UnreadableNotebookError(ValueError):
    """The file is no notebook."""


@dataclass(frozen=True)
class Cell:
    """A cell of code: its id ("" where it has none), its source, and what stands below it as text."""

    id: str
    source: str
    shown: str

    @functools.cached_property
    def tree(self) -> list[ast.stmt] | None:
        """What the cell does, statement by statement; None for a cell that is neither Python nor IPython."""
        with contextlib.suppress(*_NOT_PYTHON):
            return ast.parse(self.source).body
        magic = _CELL_MAGIC.match(self.source)
        if magic:  # of time, capture and the like the body is run; another's is text, and mostly no Python
            body = "" if magic[1] in ("writefile", "file") else self.source[magic.end() :]
            return Cell(self.id, body, "").tree
        plain = _MAGIC.sub(
            lambda found: f"{found[1]}{found[2]}[]" if found[2] else f"{found[1]}pass", self.source
        )
        with contextlib.suppress(*_NOT_PYTHON):
            return ast.parse(plain).body
        return None


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
