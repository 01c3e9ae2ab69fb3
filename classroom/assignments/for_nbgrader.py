"""nbgrader's autograding without running anybody's notebook in a kernel.

In a kernel the learner's cells run before the cell that is graded, and could replace whatever that calls, up
to what shows its result. So this takes the place of nbgrader's ``Execute``: each graded cell gets as its
output what ``amp_lessons.grading`` comes to, always a plain number, because nbgrader gives full marks where
the output of a graded cell is none.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.preprocessors import ClearMetadataPreprocessor
from nbformat.v4 import new_output
from nbgrader import preprocessors as theirs
from nbgrader.utils import is_grade

from amp_lessons.teaching.grading import Grade, grade_notebook
from amp_lessons.teaching.grading.grades import shown, writable


class GradeBehindWalls(theirs.NbGraderPreprocessor):
    """Put points and report below each graded cell."""

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Grade the notebook; all of its other cells stay as they are."""
        cells = {cell.metadata.nbgrader.grade_id: cell for cell in nb.cells if is_grade(cell)}
        for cell in cells.values():
            cell.execution_count, cell.outputs = 1, [_number(0.0)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "submitted.ipynb")
            nbformat.write(nb, path)
            for grade in grade_notebook(path, list(cells)):
                cell = cells[grade.exercise_id]
                points = grade.points * float(cell.metadata.nbgrader.points)
                cell.outputs = [new_output("stream", name="stdout", text=_said(grade)), _number(points)]
        return nb, resources


def _number(points: float) -> Any:
    return new_output("execute_result", data={"text/plain": f"{points:g}"}, execution_count=1)


def _said(grade: Grade) -> str:
    lines = [str(grade.report or f"{grade.title}: {grade.status}"), *map(shown, grade.remarks)]
    return writable("\n".join(lines)) + "\n"


def configure(config: Any) -> None:
    """Let nbgrader's converters use it. The sources hold no solutions, so none are cleared.

    nbgrader would put a line that only raises in place of each answer's cell: the signature would be lost.
    """
    config.Autograde.autograde_preprocessors = [
        GradeBehindWalls,
        ClearMetadataPreprocessor,
        theirs.LimitOutput,
        theirs.SaveAutoGrades,
        theirs.AssignLatePenalties,
        theirs.CheckCellMetadata,
    ]
    config.GenerateAssignment.preprocessors = [
        theirs.IncludeHeaderFooter,
        theirs.LockCells,
        theirs.ClearOutput,
        theirs.CheckCellMetadata,
        theirs.ComputeChecksums,
        theirs.SaveCells,
        theirs.CheckCellMetadata,
    ]
