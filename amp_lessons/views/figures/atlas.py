"""Operations × devices, each cell saying in a word and a colour what autocast does."""

from __future__ import annotations

import html
from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from amp_lessons.autocast import UNLISTED, Operation
from amp_lessons.views.base.picture import Picture, sentence_html
from amp_lessons.views.base.style import INK, QUIET, RULE_COLOURS, house_style, tint

DEVICE_NAMES = {"cuda": "CUDA", "cpu": "CPU", "mps": "MPS", "xpu": "XPU"}
ROWS_IN_A_PICTURE = 14
_NAME_SHARE = 0.32
_CELL_STYLE = "padding:3px 10px;text-align:left;border:1px solid #ffffff"


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


def atlas_html(found: Sequence[Operation], caption: str) -> str:
    """Return all of the operations as a table that can be read, searched and scrolled, below its caption."""
    head = "".join(f'<th scope="col" style="{_CELL_STYLE}">{name}</th>' for name in DEVICE_NAMES.values())
    body = "".join(_row_html(operation) for operation in found)
    return (
        f"{sentence_html(caption)}"
        '<div role="region" aria-label="Table of operations" tabindex="0" '
        f'style="max-height:420px;max-width:900px;overflow:auto;background:#ffffff;color:{INK}">'
        '<table class="amp-atlas" style="border-collapse:collapse;font-size:13px;line-height:1.4;width:100%">'
        f'<thead><tr><th scope="col" style="{_CELL_STYLE}">operation</th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _row_html(operation: Operation) -> str:
    cells = "".join(_cell_html(operation.rules[device]) for device in DEVICE_NAMES)
    return f'<tr><th scope="row" style="{_CELL_STYLE}">{html.escape(operation.name)}</th>{cells}</tr>'


def _cell_html(rule: str) -> str:
    shade = mpl.colors.to_hex(_shade(rule))
    return f'<td style="{_CELL_STYLE};background:{shade};color:{INK}">{html.escape(rule)}</td>'


def _shade(rule: str) -> tuple[float, float, float]:
    return tint(RULE_COLOURS[rule], 0.07 if rule == UNLISTED else 0.3)
