"""Whether two pieces of code are the same but for names, words and layout."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

_TOO_SHORT_TO_TELL = 60  # nodes of a tree: so little code comes out alike by itself


def same_as_any(statements: Sequence[ast.stmt], sources: Iterable[str]) -> bool:
    """Whether the statements are one of ``sources``; of very short code nobody can say so."""
    shape = _shape(statements)
    if shape.count("(") < _TOO_SHORT_TO_TELL:
        return False
    return any(shape == _shape(ast.parse(source).body) for source in sources)


def same(one: Sequence[ast.stmt], source: str) -> bool:
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
