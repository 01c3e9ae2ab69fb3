"""A lesson as a learner gets it: nothing was run yet, so nothing is given away.

The course's own notebooks are stored with what their cells show, for readers on GitHub. To a learner that
would be the answer below each question, and the verdict below each check. In a fresh lesson one line stands
where a cell will show a view: how to run the cell, and what for. What is for readers elsewhere is left out:
links that open the lesson on Colab and Kaggle, and the cell that installs the course there. So is what is
for its authors: assertions that hold the lesson to what it says.
"""

from __future__ import annotations

import ast
import json
import platform
import re
from pathlib import Path
from typing import Any

Notebook = dict[str, Any]

# That line is printed text: a notebook with anything richer that was not run here counts as not trusted, and
# JupyterLab takes style sheets out of all of it. Copies of before have it with this in its metadata.
_RUN = "Run this cell (Shift+Enter) to "
_ONCE_TO_COME = "amp_lessons_to_come"
_INSTALLS = "install"  # the id of the cell that does so on Colab and Kaggle
_OPENS_ELSEWHERE = re.compile(r"\n*^\[Open in Colab\]\(.*$", re.MULTILINE)
_TEACHES = "teaches"  # a tag: what is asserted in this cell a learner shall read
_VIEW = re.compile(r"\bviews\.(\w+)\(")
_WHAT_FOR = {
    "AuditFindings": "see what the audit has found",
    "CurveQuiz": "diagnose loss curves",
    "CodingRound": "get a task and a clock",
    "DesignRound": "get a system to build, stage by stage",
    "DrillView": "get a drill",
    "ExerciseCard": "see the exercise and get its hints",
    "FlashCards": "get flash cards",
    "LessonEnd": "see what you have done here, and what comes next",
    "Map": "see what you have done, and what comes next",
    "MockInterview": "get a mock interview",
    "Patient": "see how this patient is doing, and diagnose it",
    "Quiz": "answer a question",
    "SymptomTree": "begin with a symptom",
    "check": "have your code checked",
    "format_table": "see a table",
    "source_table": "see a table",
}


def text_of(stored: Path) -> str:
    """Return what the file of a fresh lesson holds, made of the notebook ``stored``."""
    fresh = _of_this_machine(without_outputs(json.loads(stored.read_text(encoding="utf-8"))))
    return json.dumps(fresh, indent=1, ensure_ascii=False) + "\n"


def without_outputs(notebook: Notebook) -> Notebook:
    """Return a notebook with nothing run: of what its cells show, only that there will be something."""
    return {**notebook, "cells": [_not_run(cell) for cell in notebook["cells"]]}


def _of_this_machine(notebook: Notebook) -> Notebook:
    """Return a notebook without what opens or installs it elsewhere, and with its kernel's language in full.

    JupyterLab completes that when the kernel starts; the lesson would count as changed by who only reads it.
    """
    cells = [taught(_opened_here(cell)) for cell in notebook["cells"] if cell.get("id") != _INSTALLS]
    metadata = {**notebook.get("metadata", {}), "language_info": _language()}
    return {**notebook, "cells": cells, "metadata": metadata}


def _opened_here(cell: dict[str, Any]) -> dict[str, Any]:
    text = "".join(cell.get("source", ""))
    if cell.get("cell_type") != "markdown" or not _OPENS_ELSEWHERE.search(text):
        return cell
    return {**cell, "source": _OPENS_ELSEWHERE.sub("", text)}


def taught(cell: Any) -> Any:
    """Return a cell as a reader gets it: assertions are the lesson's tests, but where they teach."""
    if cell.get("cell_type") != "code" or _TEACHES in cell.get("metadata", {}).get("tags", ()):
        return cell
    text = "".join(cell["source"])
    try:
        tests = _assertions(ast.parse(text))
    except SyntaxError:  # a magic
        return cell
    lines = {number for each in tests for number in range(each.lineno, (each.end_lineno or 0) + 1)}
    kept = [line for number, line in enumerate(text.splitlines(), start=1) if number not in lines]
    if not lines:
        return cell
    given = "\n".join(kept).strip("\n")
    as_stored = given if isinstance(cell["source"], str) else given.splitlines(keepends=True)
    return type(cell)({**cell, "source": as_stored})


def _assertions(code: ast.Module) -> list[ast.stmt]:
    """Return the assertions in code, and whole blocks of them, such as a loop that only asserts."""
    found: list[ast.stmt] = []
    for node in ast.walk(code):
        for name in ("body", "orelse"):
            body = getattr(node, name, None)
            found += [each for each in body if _asserts(each)] if isinstance(body, list) else []
    return found


def _asserts(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.For | ast.If) and not statement.orelse:
        return all(map(_asserts, statement.body))
    return isinstance(statement, ast.Assert)


def _language() -> dict[str, Any]:
    """Return what an IPython kernel of this Python says of its language."""
    return {
        "name": "python",
        "version": platform.python_version(),
        "mimetype": "text/x-python",
        "codemirror_mode": {"name": "ipython", "version": 3},
        "pygments_lexer": "ipython3",
        "nbconvert_exporter": "python",
        "file_extension": ".py",
    }


def is_to_come(value: Any) -> bool:
    """Return whether a part of a notebook is the line that stands where a view will be."""
    if not isinstance(value, dict) or "output_type" not in value:
        return False
    text = value.get("text", "")
    printed = "".join(text) if isinstance(text, list) else str(text)
    return printed.startswith(_RUN) or _ONCE_TO_COME in (value.get("metadata") or {})


def _not_run(cell: dict[str, Any]) -> dict[str, Any]:
    if cell.get("cell_type") != "code":
        return cell
    return {**cell, "execution_count": None, "outputs": _to_come(cell)}


def _to_come(cell: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the line that stands in a cell that will show a view; a cell that prints has none."""
    views = _VIEW.findall("".join(cell["source"]))
    shown = [kind for output in cell["outputs"] for kind in output.get("data", {})]
    if not views or not shown:
        return []
    line = f"{_RUN}{_what_for(views[-1], shown)}."
    return [{"output_type": "stream", "name": "stdout", "text": line}]


def _what_for(view: str, shown: list[str]) -> str:
    """Describe what a cell is run for, by its last view and the MIME types of what stands stored."""
    if view in _WHAT_FOR or not any(kind.startswith("image/") for kind in shown):
        return _WHAT_FOR.get(view, "see what it shows")
    return "get a picture with controls" if view[0].isupper() else "see a picture"
