"""A proof: the cell that shows that an answer is true, made to run anywhere, and what came of running it."""

from __future__ import annotations

import ast
import copy
import functools
import importlib
import inspect
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup


@dataclass(frozen=True)
class Proof:
    """The cell that shows that an answer is true, run.

    ``values`` are what it computed, by the names that the answer uses. Where the cell failed there are none,
    ``holds`` is False, and ``failure`` says which statement is not true here.
    """

    question_id: str
    cell: str
    values: Mapping[str, Any] = field(default_factory=dict)
    failure: str = ""

    @property
    def holds(self) -> bool:
        """Whether every statement of the cell is true here."""
        return not self.failure

    @property
    def output(self) -> str:
        """What the cell came to: its values, one a line, or what failed."""
        if self.failure:
            return f"This does not hold here: {self.failure}"
        width = max(map(len, self.values), default=0)
        return "\n".join(f"{name:{width}}  {_shown(value)}" for name, value in self.values.items())

    @property
    def shown(self) -> str:
        """The cell and, below it, what it came to."""
        return f"{self.cell}\n\n{self.output}"

    def __str__(self) -> str:
        return self.shown

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": str(self), "text/markdown": self.as_markdown(), "text/html": self.as_html()}

    def as_markdown(self) -> str:
        """Render the cell and its output as two blocks of code."""
        return f"```python\n{self.cell}\n```\n\n```\n{self.output}\n```"

    def as_html(self) -> Markup:
        """Render the cell and its output; where they are wider than the page, the arrow keys scroll them."""
        block = '<pre tabindex="0" role="region" aria-label="{}" style="overflow-x:auto">{}</pre>'
        return Markup(block + block).format("the proof", self.cell, "what it came to", self.output)


def _shown(value: Any) -> str:
    """Say a number as one would: four digits are enough to read."""
    return f"{value:.4g}" if isinstance(value, float) and not value.is_integer() else str(value)


@functools.cache
def prove_cell(question_id: str, seed: int | None = None) -> Proof:
    """Run the proof of the question called ``question_id``; one with numbers drawn by ``seed`` takes that.

    The global random state is left as it was, and warnings are not shown: proofs provoke them.
    """
    import torch  # a question can be read without it

    cell = proof_cell(question_id, seed)
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        try:
            return Proof(question_id, cell, run(cell, question_id))
        except Exception as error:
            return Proof(question_id, cell, failure=_told(error, cell, question_id))


def proof_cell(question_id: str, seed: int | None = None) -> str:
    """Return the cell that proves the answer of ``question_id``: the body of the function of that name."""
    topic, _, name = question_id.partition(".")
    proofs = importlib.import_module(f"amp_lessons.course.interview.proofs.{topic}")
    return cell_of(getattr(proofs, name), **({} if seed is None else {"seed": seed}))


def _told(error: Exception, cell: str, question_id: str) -> str:
    """Name the line of the cell that failed, and what it raised if that was more than a false statement."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == f"<{question_id}>"]
    line = cell.splitlines()[(lines[-1] or 1) - 1].strip() if lines else ""
    said = "" if isinstance(error, AssertionError) and not str(error) else f"{type(error).__name__}: {error}"
    return ", ".join(part for part in (f"`{line}`" if line else "", said) if part)


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
    for node in _statements(module):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias for alias in node.names if (alias.asname or alias.name.partition(".")[0]) in used]
            if names:
                shown = copy.copy(node)  # the tree is read for other proofs, too
                shown.names = names
                yield ast.unparse(shown)
        else:
            own += [name for name in _defined(node) if name in used and name != function.name]
    if own:
        yield f"from {module.__name__} import {', '.join(sorted(own))}"


@functools.cache
def _statements(module: Any) -> list[ast.stmt]:
    return _tree(inspect.getsource(module)).body


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    return []
