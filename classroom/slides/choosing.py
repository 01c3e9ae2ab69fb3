"""What of a lesson goes on slides, by rule: no lesson is marked for it, and a new one needs nothing.

Its headings with the words below them, the surprise (the code alone, then with what it prints), predictions
and tasks without what is folded away below them, and pictures. So an answer is on no slide before its
question, and those of predictions are on none. What else a lesson says, a teacher says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

_FOLDED = re.compile(r"<details>.*?</details>", re.DOTALL)
_LINKS = re.compile(r"^\[Open in Colab\].*$", re.MULTILINE)
_BESIDE = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]+\)")  # a link to what lies beside the lesson
_BOLD = re.compile(r"^\*\*.+?\*\*", re.MULTILINE)


def slides(lesson: NotebookNode) -> Iterator[NotebookNode]:
    """Yield a cell for each slide, in the lesson's order; each is one of the lesson's, or less of it."""
    for number, cell in enumerate(lesson.cells):
        if cell.cell_type == "markdown":
            if number == 0 or cell.source.startswith("#"):
                yield _heading(cell)
        elif cell.id == "surprise":
            yield _shown(cell, outputs=[])
            yield _shown(cell, outputs=cell.outputs)
        elif not cell.id.endswith("-check"):  # what an exercise's check says of an empty cell
            yield from _shown_result(cell)


def _heading(cell: NotebookNode) -> NotebookNode:
    """Leave out links that lead nowhere from a slide; of the answers for an interview leave the questions."""
    text = _BESIDE.sub(r"\1", _LINKS.sub("", cell.source))
    if cell.id == "interview":
        text = "\n\n".join([text.splitlines()[0], *_BOLD.findall(text)])
    return new_markdown_cell(text)


def _shown_result(cell: NotebookNode) -> Iterator[NotebookNode]:
    for output in cell.outputs:
        data = output.get("data", {})
        told = data.get("text/markdown", "")
        if _FOLDED.search(told):
            yield from map(new_markdown_cell, _questions(_FOLDED.sub("", told)))
        elif "image/png" in data:
            told = {
                "image/png": {"alt": data["text/plain"]}
            }  # the caption, which the picture has below itself
            picture = NotebookNode(
                output, data=NotebookNode({"image/png": data["image/png"]}), metadata=NotebookNode(told)
            )
            yield _shown(cell, outputs=[picture], source="")


def _questions(told: str) -> list[str]:
    """Part what a view asks one after the other: each question begins in bold."""
    return [each for each in re.split(r"^(?=\*\*)", told, flags=re.MULTILINE) if each.strip()]


def _shown(cell: NotebookNode, outputs: list[NotebookNode], source: str | None = None) -> NotebookNode:
    return NotebookNode(cell, outputs=outputs, source=cell.source if source is None else source)
