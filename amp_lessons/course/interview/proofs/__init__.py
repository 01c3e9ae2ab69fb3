"""Proofs of the answers in the bank: one module per topic, one function per question, of the same name.

A proof takes nothing (an estimate takes ``seed``), runs in about a second, and asserts each technical
statement of its answer; the answer's ``{placeholders}`` name its variables. Its body is shown to learners as
a cell, so it reads like one: plain PyTorch or the course's instruments, comments that say why.

Here is what makes a cell of such a function, runs it, and keeps on disk what it has computed until the
package or the machine changes. Answers and exports read what is kept; ``prove`` always runs.
"""

from __future__ import annotations

import ast
import copy
import functools
import hashlib
import importlib
import inspect
import json
import platform
import string
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

import amp_lessons
from amp_lessons._base import files
from amp_lessons._base.text.tables import Shown
from amp_lessons._base.text.words import superscripts
from amp_lessons.course import progress

_PACKAGE = Path(amp_lessons.__file__).parent


@dataclass(frozen=True, repr=False)
class Proof(Shown):
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


def placeholders(*templates: str) -> tuple[str, ...]:
    """Return what templates want filled, each once: ``name``, ``name.attribute`` or ``name[key]``."""
    parsed = (piece for template in templates for piece in string.Formatter().parse(template))
    return tuple(dict.fromkeys(name for _, name, _, _ in parsed if name is not None))


def fill(template: str, values: Mapping[str, Any]) -> str:
    """Return ``template`` with a value in place of each ``{name}`` or ``{name:format}``, ``…`` if none.

    Exponents are raised, those of the values too.
    """
    filled = "".join(
        text + ("" if name is None else format(values[name], spec or "") if name in values else "…")
        for text, name, spec, _ in string.Formatter().parse(template)
    )
    return superscripts(filled)


@functools.cache
def prove(question_id: str, names: tuple[str, ...], seed: int | None = None) -> Proof:
    """Run the proof of the question called ``question_id``; one with numbers drawn by ``seed`` takes that.

    ``names`` are those of the values that its texts want. The global random state is left as it was, and
    warnings are not shown: proofs provoke them.
    """
    import torch  # a question can be read without it

    cell = proof_cell(question_id, seed)
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        try:
            variables = run(cell, question_id)
            return Proof(question_id, cell, {name: _value(name, variables) for name in names})
        except Exception as error:
            return Proof(question_id, cell, failure=_told(error, cell, question_id))


def _value(name: str, variables: Mapping[str, Any]) -> Any:
    """Return what a placeholder names; of a tensor, its one number."""
    value, _ = string.Formatter().get_field(name, (), variables)
    return value.item() if hasattr(value, "item") else value


def _told(error: Exception, cell: str, question_id: str) -> str:
    """Name the line of the cell that failed, and what it raised if that was more than a false statement."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == f"<{question_id}>"]
    line = cell.splitlines()[(lines[-1] or 1) - 1].strip() if lines else ""
    said = "" if isinstance(error, AssertionError) and not str(error) else f"{type(error).__name__}: {error}"
    return ", ".join(part for part in (f"`{line}`" if line else "", said) if part)


def run(cell: str, name: str) -> dict[str, Any]:
    """Run ``cell``, and return its variables; frames of what it raises are those of the file ``<name>``."""
    variables: dict[str, Any] = {"__name__": name}
    exec(compile(cell, f"<{name}>", "exec"), variables)
    return variables


def proof_cell(question_id: str, seed: int | None = None) -> str:
    """Return the cell that proves the answer of ``question_id``: the body of the function of that name."""
    topic, _, name = question_id.partition(".")
    function = getattr(importlib.import_module(f"{__name__}.{topic}"), name)
    return cell_of(function, "" if seed is None else f"seed = {seed}")


def cell_of(proof: Callable[..., None], given: str = "") -> str:
    """Return the body of ``proof`` below its docstring as a cell: imports that it needs, what is ``given``.

    Its lines are as they are written: their comments belong to the cell.
    """
    source = textwrap.dedent(inspect.getsource(proof))
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    body = textwrap.dedent("\n".join(source.splitlines()[function.body[0].end_lineno :])).strip("\n")
    imports = "\n".join(_imports(function, sys.modules[proof.__module__]))
    return "\n\n".join(filter(None, (imports, given, body)))


def _imports(function: ast.FunctionDef, module: Any) -> Iterator[str]:
    """Yield the imports of what ``function`` uses; what its module has of its own comes from there."""
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    own = used & vars(module).keys() - {function.name}
    for node in _statements(module):
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = {alias.asname or alias.name.partition(".")[0]: alias for alias in node.names}
            if used & named.keys():
                shown = copy.copy(node)  # the tree is read for other proofs, too
                shown.names = [alias for name, alias in named.items() if name in used]
                yield ast.unparse(shown)
                own -= named.keys()
    if own:
        yield f"from {module.__name__} import {', '.join(sorted(own))}"


@functools.cache
def _statements(module: Any) -> list[ast.stmt]:
    return ast.parse(inspect.getsource(module)).body


@functools.cache
def proved(question_id: str, names: tuple[str, ...], seed: int | None = None) -> Proof:
    """Return the proof of a question as it was last run; it runs now if anything has changed since then.

    What does not hold is not kept, and where nothing can be kept it runs in each process once.
    """
    cell = proof_cell(question_id, seed)
    key = hashlib.sha256("\n".join((cell, *names, _here())).encode()).hexdigest()
    with suppress(OSError, ValueError, TypeError, KeyError, progress.ProgressError):  # then it runs again
        entry = json.loads(_kept_at(question_id).read_text("utf-8"))
        if entry["key"] == key:
            return Proof(question_id, cell, entry["values"])
    proof = prove(question_id, names, seed)
    if proof.holds:
        with suppress(OSError, progress.ProgressError):  # then it runs again another time
            _kept_at(question_id).parent.mkdir(parents=True, exist_ok=True)
            files.replace(_kept_at(question_id), json.dumps({"key": key, "values": proof.values}))
    return proof


def _kept_at(question_id: str) -> Path:
    return progress.home() / "proofs" / f"{question_id}.json"


@functools.cache
def _here() -> str:
    """Say what the last digits of a result may depend on beside the cell: the package and the machine."""
    import numpy
    import torch

    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*")):
        if path.suffix in {".py", ".json", ".yaml"}:
            digest.update(path.read_bytes())
    versions = f"{sys.version} {torch.__version__} {numpy.__version__}"
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{digest.hexdigest()} {versions} {platform.machine()} {capability} {torch.cuda.is_available()}"
