"""otter's grading without running anybody's notebook in a kernel.

otter unpickles what a kernel, in which the learner's cells have run, has written. This plugin grades the
notebook with ``amp_lessons.teaching.grading`` and hands otter another one instead, in which the points stand.
"""

from __future__ import annotations

from typing import Any

from nbformat.v4 import new_code_cell, new_notebook
from otter.plugins import AbstractOtterPlugin

from amp_lessons.teaching.grading import Terms, grade_notebook


class GradeBehindWalls(AbstractOtterPlugin):
    """Replace the submission by its points; ``exercises`` in otter_config.json says which."""

    def before_execution(self, submission: Any) -> Any:
        """Return a notebook whose only cell holds points and reports, by the ids of the exercises."""
        terms = Terms(unprotected=True)  # otter runs each submission in a container of its own
        grades = grade_notebook(self.submission_path, self.plugin_config["exercises"], terms)
        points = {each.exercise_id: each.points for each in grades}
        reports = {each.exercise_id: str(each.report or each.status) for each in grades}
        cell = new_code_cell(f"points = {points!r}\nreports = {reports!r}")
        return new_notebook(cells=[cell], metadata=submission.metadata)
