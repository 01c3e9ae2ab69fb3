"""The part of a notebook that an attempt needs: its definition, and what that mentions, and what those do."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterable, Sequence


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
