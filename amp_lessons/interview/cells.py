"""The body of a proof as a cell that runs anywhere, and running it."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def cell_of(proof: Callable[..., Any], **arguments: object) -> str:
    """Return the body of ``proof`` as the source of a cell, below the imports that it needs.

    What the proof returns is the cell's last line, an expression. ``arguments`` become its first lines.
    Raises ValueError unless the one ``return`` of ``proof`` is its last statement.
    """
    function = _tree(textwrap.dedent(inspect.getsource(proof))).body[0]
    assert isinstance(function, ast.FunctionDef)
    if not isinstance(function.body[-1], ast.Return) or len(list(_returns(function))) != 1:
        raise ValueError(f"{proof.__name__} must return once, at its end: that is what its cell shows")
    given = [f"{name} = {value!r}" for name, value in arguments.items()]
    blocks = ["\n".join(_imports(function, sys.modules[proof.__module__])), "\n".join(given), _body(proof)]
    return "\n\n".join(block for block in blocks if block)


def run(cell: str, name: str) -> Mapping[str, Any]:
    """Run ``cell``, whose last line is an expression, and return that line's value.

    Whatever it raises is raised; its frames are those of the file ``<name>``.
    """
    tree = _tree(cell)
    last = tree.body.pop()
    assert isinstance(last, ast.Expr)
    namespace: dict[str, Any] = {"__name__": name}
    exec(compile(tree, f"<{name}>", "exec"), namespace)
    return eval(compile(ast.Expression(last.value), f"<{name}>", "eval"), namespace)


def _tree(source: str) -> ast.Module:
    return ast.parse(source)


def _returns(function: ast.FunctionDef) -> Iterator[ast.Return]:
    """Yield the returns of ``function`` itself, not those of functions within it."""
    inner = {
        node
        for part in ast.walk(function)
        if isinstance(part, ast.FunctionDef | ast.Lambda) and part is not function
        for node in ast.walk(part)
    }
    return (node for node in ast.walk(function) if isinstance(node, ast.Return) and node not in inner)


def _body(proof: Callable[..., Any]) -> str:
    """Return the lines below the docstring, as they are written: their comments belong to the cell."""
    source = textwrap.dedent(inspect.getsource(proof))
    function = _tree(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    above = function.body[0].end_lineno or 0 if ast.get_docstring(function) else function.body[0].lineno - 1
    lines = textwrap.dedent("\n".join(source.splitlines()[above:])).strip("\n").splitlines()
    last = len(lines) - 1 - next(i for i, line in enumerate(reversed(lines)) if line.startswith("return "))
    lines[last] = lines[last].removeprefix("return ")
    return "\n".join(lines)


def _imports(function: ast.FunctionDef, module: Any) -> Iterator[str]:
    """Yield the imports of what ``function`` uses; what its module has of its own comes from there."""
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    own: list[str] = []
    for node in _tree(inspect.getsource(module)).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias for alias in node.names if (alias.asname or alias.name.partition(".")[0]) in used]
            if names:
                node.names = names
                yield ast.unparse(node)
        else:
            own += [name for name in _defined(node) if name in used and name != function.name]
    if own:
        yield f"from {module.__name__} import {', '.join(sorted(own))}"


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    return []
