"""The report of a check, with the drawing of what the learner's code did where there is one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from amp_lessons._base.drawing.axes import BESIDE, mark_not_finite
from amp_lessons._base.drawing.picture import Picture, picture_html
from amp_lessons._base.drawing.style import GRID, INK, STATUS_COLOURS, STROKES, ZONES, house_style
from amp_lessons._base.text import prose
from amp_lessons._base.text.words import power_of_two
from amp_lessons.course import exercises, progress
from amp_lessons.course.exercises import Hint, Report, SideBySide, shelf
from amp_lessons.course.progress import ProgressError
from amp_lessons.course.views.widgets.counting import count_again

# why code is refused before it comes to the task
_BEFORE = {"signature", "not_a_function", "not_a_class", "unfinished", "not_taken_along", "checker_failed"}
_ABOVE = Markup("<p>Another way to write it stands in the card above, folded.</p>")
SAME_WITHIN = 0.02  # what 16-bit arithmetic in another order may well change


class Checked:
    """A report and its drawing, seen together. As text it is the report alone.

    What to try against a mistake often is the whole answer: on a page it stands folded below a ``hint``.
    """

    def __init__(self, report: Report, hint: Hint | None = None) -> None:
        """Show ``report``; its comparisons become the picture, of a refused attempt those that differ."""
        self.report, self.hint = report, hint
        drawn = tuple(
            each
            for each in report.comparisons
            if each.expected and each.yours and (report.passed or _differ(each))
        )
        self.caption = " ".join(map(describe, drawn))
        self.picture: Picture | None = comparison_picture(drawn) if drawn else None

    def __repr__(self) -> str:
        return str(self.report)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {**self.report._repr_mimebundle_(), "text/html": self._html()}

    def _html(self) -> Markup:
        """Render the verdict, what helps, and below that what was printed and drawn; tables are folded."""
        edge = Markup('<div style="border-left:5px solid {};padding-left:14px">{}{}{}{}</div>')
        words = replace(self.report, comparisons=(), printed="")
        if self.hint is not None:
            shown = (each if each.ok else replace(each, hint="") for each in words.findings)
            words = replace(words, findings=tuple(shown))
        colour = STATUS_COLOURS[self.report.status]
        parts = (words.as_html(), self._help(), self.report.printed_html(), self._drawing())
        return edge.format(colour, *parts)

    def _help(self) -> Markup:
        """Render the hint, and below it what it leaves to find; of what has passed, another way."""
        if self.report.passed:
            return _ABOVE if shelf.find(self.report.exercise_id).other_ways else Markup("")
        if self.hint is None:
            return Markup("")
        folded = Markup("{}<details><summary>What to try</summary>{}</details>")
        cures = (prose.as_html(each.hint) for each in self.report.findings if not each.ok)
        return folded.format(self.hint.as_html(), Markup("").join(map(Markup("<p>{}</p>").format, cures)))

    def _drawing(self) -> Markup:
        """Render the picture, if there is one, with the numbers, which the words above leave out."""
        drawing, tables = Markup(""), self.report.tables
        if self.picture is not None:
            drawing = picture_html(self.picture, self.caption, f"Expected beside yours. {self.caption}")
            tables = tuple(each.table for each in self.report.comparisons)
        numbers = Markup("").join(table.as_html() for table in tables)
        folded = Markup('<details style="margin-bottom:10px"><summary>The numbers</summary>{}</details>')
        return drawing + folded.format(numbers) if numbers else drawing


class CheckStopped(KeyboardInterrupt):
    """The learner stopped a check: an interrupt, so that no cell after it runs, told in one sentence."""

    def __init__(self) -> None:
        """Say so."""
        super().__init__("You stopped the check. Nothing was counted; run the cell again when you like.")

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows in place of a traceback."""
        return [str(self)]


def check(exercise_id: str, attempt: Any, *, time_limit_s: float = 10.0) -> Checked:
    """Check an attempt with ``exercises.check``, show the report and draw the result.

    A refusal gives the exercise's next hint, unless the code did not come as far as the task.
    Raises CheckStopped, a KeyboardInterrupt, where the learner stops it, else as ``exercises.check`` does.
    """
    try:
        report = exercises.check(exercise_id, attempt, time_limit_s=time_limit_s)
    except KeyboardInterrupt:
        raise CheckStopped from None
    checked = Checked(report, _next_hint(report))
    count_again(exercise_id)
    return checked


def _next_hint(report: Report) -> Hint | None:
    """Return the hint that belongs to a refusal; None once there is none left, or nothing to give away."""
    if report.status != "not passed" or _BEFORE.intersection(each.code for each in report.findings):
        return None
    try:
        record = progress.read().of(report.exercise_id)
        given_away = record.solved or record.solution_seen
        return None if given_away else exercises.hint(report.exercise_id, record.hints + 1)
    except (ProgressError, ValueError):  # what cannot be counted, and where all hints were seen
        return None


def _differ(comparison: SideBySide) -> bool:
    """Return whether the learner's numbers are others than the expected ones, or not as many."""
    return _first_apart(comparison) is not None or len(comparison.expected) != len(comparison.yours)


def _first_apart(comparison: SideBySide) -> int | None:
    for index, (expected, yours) in enumerate(zip(comparison.expected, comparison.yours, strict=False)):
        both_nan = expected != expected and yours != yours
        if not both_nan and not math.isclose(expected, yours, rel_tol=SAME_WITHIN):
            return index
    return None


def describe(comparison: SideBySide) -> str:
    """Describe how far the learner's numbers agree with the expected ones."""
    expected, yours = comparison.expected, comparison.yours
    what = comparison.quantity[0].upper() + comparison.quantity[1:]
    first = _first_apart(comparison)
    same = "; up to there it is the same." if first != 0 else "."
    if first is not None:
        values = f"{power_of_two(yours[first])} instead of {power_of_two(expected[first])}"
        return f"{what}: at {comparison.index} {first + 1} yours is {values}{same}"
    if len(expected) != len(yours):
        return f"{what}: yours ends at {comparison.index} {len(yours)}, not {len(expected)}{same}"
    return f"{what}: yours follows the expected one all the way."


LOG_FROM_RATIO = 100  # where linear axes would press the smaller values flat


def comparison_picture(comparisons: Sequence[SideBySide]) -> Picture:
    """Draw one panel for each comparison, with the expected values under the learner's."""
    height = 2.5 * len(comparisons) + 0.3
    with house_style():
        figure = Figure(figsize=(9, height))
        every_axes = figure.subplots(len(comparisons), 1, squeeze=False)[:, 0]
        figure.subplots_adjust(left=0.085, right=0.77, top=1 - 0.4 / height, bottom=0.55 / height, hspace=0.6)
        for axes, comparison in zip(every_axes, comparisons, strict=True):
            _draw_panel(axes, comparison)
    return Picture(figure)


def _draw_panel(axes: Axes, comparison: SideBySide) -> None:
    powers = are_powers_of_two(comparison.expected)
    expected, yours = STROKES[:2]
    drawstyle = "steps-mid" if powers else "default"
    for name, values, stroke in (
        ("expected", comparison.expected, expected),
        ("yours", comparison.yours, {**yours, "marker": "o", "ms": 3.5}),
    ):
        axes.plot(range(1, len(values) + 1), values, label=name, drawstyle=drawstyle, **stroke)
    _choose_scale(axes, comparison, powers)
    colour = ZONES["overflowed"].colour
    mark_not_finite(axes, comparison.yours, 0.94, color=colour, mec=INK, ms=7, label="yours: inf or nan")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(0.5, max(len(comparison.expected), len(comparison.yours)) + 0.5)
    axes.set_xlabel(comparison.index)
    axes.set_title(comparison.quantity)
    axes.grid(axis="y", color=GRID)
    axes.legend(**BESIDE, handlelength=3.2)


def are_powers_of_two(values: Sequence[float]) -> bool:
    """Whether these are what loss scales are: they are drawn as steps between powers of two."""
    return all(value > 0 and math.frexp(value)[0] == 0.5 for value in values)


def _choose_scale(axes: Axes, comparison: SideBySide, powers: bool) -> None:
    drawn = [value for value in (*comparison.expected, *comparison.yours) if math.isfinite(value)]
    if not drawn or min(drawn) <= 0 or not (powers or max(drawn) > LOG_FROM_RATIO * min(drawn)):
        return
    axes.set_yscale("log", base=2 if powers else 10)
    if powers:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"$2^{{{round(math.log2(value))}}}$"))
