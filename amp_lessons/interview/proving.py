"""A proof: the cell that shows that an answer is true, and what came of running it."""

from __future__ import annotations

import functools
import importlib
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from amp_lessons.interview.cells import cell_of, run


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
        return "\n".join(f"{name:{width}}  {value}" for name, value in self.values.items())

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
    proofs = importlib.import_module(f"amp_lessons.interview.proofs.{topic}")
    return cell_of(getattr(proofs, name), **({} if seed is None else {"seed": seed}))


def _told(error: Exception, cell: str, question_id: str) -> str:
    """Name the line of the cell that failed, and what it raised if that was more than a false statement."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == f"<{question_id}>"]
    line = cell.splitlines()[(lines[-1] or 1) - 1].strip() if lines else ""
    said = "" if isinstance(error, AssertionError) and not str(error) else f"{type(error).__name__}: {error}"
    return ", ".join(part for part in (f"`{line}`" if line else "", said) if part)
