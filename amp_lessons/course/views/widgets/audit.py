"""What an audit sees, while the training runs and afterwards; and its findings alone."""

from __future__ import annotations

import time

import ipywidgets
from markupsafe import Markup
from matplotlib.figure import Figure

from amp_lessons._base.arguments import require
from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import house_style
from amp_lessons._base.render import Entry, Section
from amp_lessons._base.text import prose
from amp_lessons._base.text.tables import Shown
from amp_lessons._base.text.words import MEASURED_MARK, fraction
from amp_lessons.audit import Report, Seen, Sighting
from amp_lessons.audit.page import report_of, say_format, say_worst
from amp_lessons.audit.page.drawings import (
    CURVES_IN,
    HEIGHT_IN,
    draw_layer,
    draw_map,
    draw_timeline,
    map_height_in,
)
from amp_lessons.audit.report.finding import entry_of
from amp_lessons.audit.report.losses import By, formats_of, layer_curves, loss_map, used_format
from amp_lessons.audit.report.steps import by_optimizer, remarks
from amp_lessons.audit.seen import AS_TRAINED
from amp_lessons.course.views.base.controls import ControlValue, dropdown, row
from amp_lessons.course.views.base.view import View

ALL_LAYERS = "all layers"
_BY: list[tuple[str, By]] = [("by norm", "norm"), ("by count", "count")]
_PAUSE = 10  # times as long as the last drawing took: a tenth of the training's time at most
_LEAST_PAUSE_S = 0.5


class AuditView(View):
    """The findings of an audit, its steps, and what its layers lose in a format, by count or by norm.

    Of what ``audit.watch`` gives it follows the training: it draws again at the steps that are looked at
    closely, and at the end. While a cell trains, the kernel is busy, and the controls answer afterwards.
    """

    number_format = ControlValue[str]("_format", "The format in which gradients are lost, or ``as trained``.")
    by = ControlValue[By]("_by", "How losses are measured: by count or by norm.")
    layer = ControlValue[str]("_layer", "The layer that is shown in all formats, or all layers in one.")

    def __init__(self, audit: Seen | Report) -> None:
        """Show what ``audit.watch`` gives, or its report. Raises TypeError for anything else."""
        self._audit = audit
        self._report: Report = report_of(audit)
        self._next_s = 0.0
        self._format = dropdown("format", [AS_TRAINED], AS_TRAINED)
        self._by = dropdown("lost", list(_BY), "norm")
        self._layer = dropdown("layer", [ALL_LAYERS], ALL_LAYERS)
        self._findings = ipywidgets.HTML()
        choices = [self._format, self._by, self._layer]
        self._choices = row(*choices)
        super().__init__(
            [self._findings, self._choices], alt="Loss and loss scale by step, and what each layer loses."
        )
        self.follow(self._draw, *choices)
        self.refresh()
        if isinstance(audit, Seen):
            audit.listen(self._stepped, at_end=self.refresh)

    def refresh(self, announced: bool = True) -> None:
        """Show what has been seen by now."""
        self._report = report_of(self._audit)
        self._offer()
        self._draw(announced)

    def _stepped(self, _index: int, sampled: bool) -> None:
        """Draw again, seldom enough that the training does not wait for it."""
        if self.comm is None or not sampled or time.monotonic() < self._next_s:
            return
        start = time.monotonic()
        self.refresh(announced=False)  # a screen reader would speak of nothing else
        now = time.monotonic()
        self._next_s = now + max(_LEAST_PAUSE_S, _PAUSE * (now - start))

    def _offer(self) -> None:
        """Offer the formats and layers that have been seen, and keep what was chosen."""
        formats = [(say_format(self._report, name), name) for name in formats_of(self._report)]
        layers = [ALL_LAYERS, *self._report.layers]
        with self.held():
            _set_options(self._format, formats or [(AS_TRAINED, AS_TRAINED)])
            _set_options(self._layer, [(name, name) for name in layers])

    def _draw(self, announced: bool = True) -> None:
        self._findings.value = _findings_html(self._entries())
        layer = "" if self.layer == ALL_LAYERS else self.layer
        self._choices.layout.display = "" if self._report.steps else "none"
        if not self._report.steps:
            to_come = (
                " yet; with the first one the picture comes here" if isinstance(self._audit, Seen) else ""
            )
            self.say(f"{self._report.headline}{to_come}.")
            return
        caption = describe(self._report, self.number_format, self.by, layer)
        picture = audit_picture(self._report, self.number_format, self.by, layer)
        self.show(picture, caption, mark=MEASURED_MARK, announced=announced)

    def _entries(self) -> tuple[Entry, ...]:
        return tuple(map(entry_of, self._report.findings))

    def stand_in(self) -> Markup:
        """Return the findings too, which have a place of their own above the page."""
        return Markup("{}{}").format(_findings_html(self._entries()), super().stand_in())

    def stored(self) -> dict[str, str]:
        """Return the findings as text, too."""
        stored = super().stored()
        lines = [line for each in self._entries() for line in each.lines()]
        return {**stored, "text/plain": "\n".join([stored["text/plain"], *lines])}


def _findings_html(entries: tuple[Entry, ...]) -> Markup:
    return Section("Findings", entries=entries).as_html("h4") if entries else Markup("")


def _set_options(choice: ipywidgets.Dropdown, options: list[tuple[str, str]]) -> None:
    if list(choice.options) != options:
        before = choice.value
        choice.options = options
        choice.value = before if before in dict(options).values() else options[0][1]


def describe(report: Report, number_format: str, by: By, layer: str = "") -> str:
    """Describe what the picture shows."""
    said = [f"{report.headline}."]
    for number, steps in by_optimizer(report).items():
        skipped = sum(not step.happened for step in steps)
        said.append(f"Optimizer {number + 1}: {skipped} of {len(steps)} steps skipped.")
    said += [each for each in remarks(report) if each.startswith("The loss scale")]
    if layer:
        said.append(_say_layer(report, by, layer))
    elif report.layers.values():
        name = say_format(report, number_format)
        said.append(f"In {name}, by {by}: {say_worst(loss_map(report, number_format, by, 1))}")
    return " ".join(said)


def _say_layer(report: Report, by: By, layer: str) -> str:
    """Describe what one layer loses in each format, at its worst step."""
    curves = layer_curves(report, layer, by)
    worst = {name: max(losses.values()) for name, losses in curves.items() if losses}
    said = ", ".join(f"{fraction(share)} in {say_format(report, name)}" for name, share in worst.items())
    return f"{layer} loses by {by}, at its worst step: {said}."


MOST_ROWS = 24
_TITLE = {"count": "share of the gradients' number", "norm": "share of the gradients' norm"}


def audit_picture(report: Report, number_format: str, by: By, layer: str = "") -> Picture:
    """Draw a training that has taken a step: all layers in one format or, if named, one layer in all.

    A map of a format in which nothing is lost would be an empty one, and is left out.
    """
    losses = loss_map(report, number_format, by, MOST_ROWS)
    below = CURVES_IN if layer else map_height_in(losses) if losses.most else 0
    height = HEIGHT_IN + (below if report.layers.values() else 0)
    with house_style():
        figure = Figure(figsize=(9, height))
        _draw_steps(figure, report, height)
        if layer:
            axes = figure.add_axes((0.1, 0.5 / height, 0.68, (below - 0.9) / height))
            axes.set_title(f"{layer}: {_TITLE[by]} that becomes zero", fontsize=10)
            draw_layer(axes, layer_curves(report, layer, by), used_format(report))
        elif losses.most:
            axes = figure.add_axes((0.27, 0.5 / height, 0.53, (below - 0.95) / height))
            axes.set_title(f"{_TITLE[by]} that becomes zero", fontsize=10, pad=16, loc="left")
            draw_map(axes, losses)
    return Picture(figure)


def _draw_steps(figure: Figure, report: Report, height: float) -> None:
    top = height - 0.3
    loss = figure.add_axes((0.1, (top - 1.75) / height, 0.885, 1.75 / height))
    scale = figure.add_axes((0.1, (top - 3.05) / height, 0.885, 1.15 / height), sharex=loss)
    loss.tick_params(labelbottom=False)
    draw_timeline(loss, scale, report)


class AuditFindings(Shown):
    """The verdict and the findings of an audit, in the words of its report.

    A report shows itself, whole. This is for where its numbers, which differ from run to run, are not needed.
    """

    def __init__(self, report: Report) -> None:
        """Take them from a report. Raises TypeError for anything else."""
        require(report, Report, "report", "an audit's report such as seen.report")
        self.headline: str = report.headline
        self.findings: tuple[Sighting, ...] = report.findings

    def _entries(self) -> tuple[Entry, ...]:
        return tuple(map(entry_of, self.findings))

    def __str__(self) -> str:
        return "\n".join([self.headline, *(line for each in self._entries() for line in each.lines())])

    def as_markdown(self) -> str:
        """Render for GitHub, and for notebooks without HTML."""
        verdict = f"**{prose.as_markdown(self.headline)}**"
        return "\n\n".join([verdict, "\n".join(each.as_markdown() for each in self._entries())]).strip()

    def as_html(self) -> Markup:
        """Render as HTML."""
        section = Markup(
            '<section class="amp-audit" aria-label="{0}"><p><strong>{0}</strong></p>{1}</section>'
        )
        return section.format(self.headline, _findings_html(self._entries()))
