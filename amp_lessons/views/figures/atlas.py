"""Operations × devices, each cell saying in a word and a colour what autocast does."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from amp_lessons.autocast import UNLISTED, Operation
from amp_lessons.text.tables import Table
from amp_lessons.views.base.picture import Picture, sentence_html
from amp_lessons.views.base.style import INK, PAPER, QUIET, RULE_COLOURS, house_style, tint

DEVICE_NAMES = {"cuda": "CUDA", "cpu": "CPU", "mps": "MPS", "xpu": "XPU"}
ROWS_IN_A_PICTURE = 14
_NAME_SHARE = 0.32
# JupyterLab aligns the cells of every table to the right, stripes its rows and makes its columns alike.
_STYLE = Markup(
    "<style>.amp-atlas [role=region] {{ max-width: 900px; max-height: 420px }} "
    ".amp-atlas [role=region] {{ background: {paper}; color: {ink} }} "
    ".amp-atlas table {{ table-layout: auto; width: max-content; min-width: 100%; border-collapse: collapse; "
    "font-size: 13px; line-height: 1.4 }} "
    ".amp-atlas caption {{ display: none }} "
    ".amp-atlas th, .amp-atlas td {{ padding: 0; text-align: left; border: 1px solid {paper}; "
    "white-space: nowrap }} "
    ".amp-atlas th, .amp-atlas td span {{ padding: 3px 10px }} "
    ".amp-atlas td span {{ display: block }}</style>"
).format(paper=PAPER, ink=INK)


def atlas_picture(found: Sequence[Operation]) -> Picture:
    """Draw the first operations; a last line says how many more there are."""
    shown, more = found[:ROWS_IN_A_PICTURE], len(found) - ROWS_IN_A_PICTURE
    lines = 1 + len(shown) + (more > 0)
    with house_style():
        figure = Figure(figsize=(9, max(0.27 * lines, 0.6)))
        axes = figure.add_axes((0.01, 0, 0.98, 1))
        axes.set_axis_off()
        axes.set_xlim(0, 1)
        axes.set_ylim(lines, 0)
        _draw_line(axes, 0, "operation", list(DEVICE_NAMES.values()), bold=True)
        for line, operation in enumerate(shown, start=1):
            _draw_line(axes, line, operation.name, [operation.rules[device] for device in DEVICE_NAMES])
        if more > 0:
            axes.text(0.005, lines - 0.5, f"… and {more} more", va="center", color=QUIET)
    return Picture(figure)


def _draw_line(axes: Axes, line: int, name: str, words: Sequence[str], bold: bool = False) -> None:
    weight = "bold" if bold else "normal"
    axes.text(0.005, line + 0.5, name, va="center", fontweight="bold")
    width = (1 - _NAME_SHARE) / len(words)
    for place, word in enumerate(words):
        left = _NAME_SHARE + place * width
        if word in RULE_COLOURS:
            cell = (left, line + 0.06), width * 0.97, 0.88
            axes.add_patch(mpl.patches.Rectangle(*cell, facecolor=_shade(word), edgecolor="none"))
        colour = QUIET if word == UNLISTED else INK
        axes.text(left + 0.01, line + 0.5, word, va="center", color=colour, fontweight=weight)


def atlas_html(found: Sequence[Operation], caption: str) -> Markup:
    """Return all of the operations as a table that can be read, searched and scrolled, below its caption."""
    rows = [
        [operation.name, *(_cell(operation.rules[device]) for device in DEVICE_NAMES)] for operation in found
    ]
    table = Table(("operation", *DEVICE_NAMES.values()), rows, "Table of operations")
    page = Markup('{}{}<div class="amp-atlas">{}</div>')
    return page.format(_STYLE, sentence_html(caption), table.as_html())


def _cell(rule: str) -> Markup:
    shade = mpl.colors.to_hex(_shade(rule))
    return Markup('<span style="background:{};color:{}">{}</span>').format(shade, INK, rule)


def _shade(rule: str) -> tuple[float, float, float]:
    return tint(RULE_COLOURS[rule], 0.07 if rule == UNLISTED else 0.3)
