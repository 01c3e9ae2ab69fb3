"""The report of a check, with the drawing of what the learner's code did where there is one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from amp_lessons import exercises
from amp_lessons.exercises import Report, SideBySide
from amp_lessons.exercises.report import rendering
from amp_lessons.text.words import power_of_two
from amp_lessons.views.base.picture import Picture, picture_html
from amp_lessons.views.base.style import STATUS_COLOURS
from amp_lessons.views.figures.checked import comparison_picture
from amp_lessons.views.widgets.exercise import refresh_cards
from amp_lessons.views.widgets.lesson_end import refresh_strips

SAME_WITHIN = 0.02  # what 16-bit arithmetic in another order may well change


class Checked:
    """A report and its drawing, seen together. As text it is the report alone."""

    def __init__(self, report: Report) -> None:
        """Show ``report``; its comparisons become the picture."""
        self.report = report
        drawn = tuple(each for each in report.comparisons if each.expected and each.yours)
        self.caption = " ".join(map(describe, drawn))
        self.picture: Picture | None = comparison_picture(drawn) if drawn else None

    def __repr__(self) -> str:
        return str(self.report)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {**self.report._repr_mimebundle_(), "text/html": self._html()}

    def _html(self) -> Markup:
        edge = Markup('<div style="border-left:5px solid {};padding-left:14px">{}{}</div>')
        return edge.format(STATUS_COLOURS[self.report.status], self._words(), self._drawing())

    def _words(self) -> Markup:
        """Return the report without the numbers that the drawing shows."""
        report = self.report if self.picture is None else replace(self.report, comparisons=())
        return rendering.report_html(report)

    def _drawing(self) -> Markup:
        if self.picture is None:
            return Markup("")
        alt = f"Expected beside yours. {self.caption}"
        drawing = picture_html(self.picture, self.caption, alt)
        tables = map(rendering.comparison_table, self.report.comparisons)
        numbers = Markup("").join(table.as_html() for table in tables)
        return Markup("{}<details><summary>The numbers</summary>{}</details>").format(drawing, numbers)


def check(exercise_id: str, attempt: Any, *, time_limit_s: float = 10.0) -> Checked:
    """Check an attempt with ``exercises.check``, show the report and draw the result; raises as that does."""
    checked = Checked(exercises.check(exercise_id, attempt, time_limit_s=time_limit_s))
    refresh_cards(exercise_id)
    refresh_strips()
    return checked


def describe(comparison: SideBySide) -> str:
    """Say how far the learner's numbers agree with the expected ones."""
    expected, yours = comparison.expected, comparison.yours
    what = comparison.quantity[0].upper() + comparison.quantity[1:]
    common = min(len(expected), len(yours))
    first = next((i for i in range(common) if not _same(expected[i], yours[i])), None)
    same = "; up to there it is the same." if first != 0 else "."
    if first is not None:
        values = f"{power_of_two(yours[first])} instead of {power_of_two(expected[first])}"
        return f"{what}: at {comparison.index} {first + 1} yours is {values}{same}"
    if len(expected) != len(yours):
        return f"{what}: yours ends at {comparison.index} {len(yours)}, not {len(expected)}{same}"
    return f"{what}: yours follows the expected one all the way."


def _same(expected: float, yours: float) -> bool:
    return (expected != expected and yours != yours) or math.isclose(expected, yours, rel_tol=SAME_WITHIN)
