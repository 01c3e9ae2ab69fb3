"""A training step under a loss scale as a picture: its phases, and which line of code performs which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from amp_lessons._base.drawing.axes import sheet
from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import ACCENT, INK, QUIET, SMALL, ZONES, house_style, tint
from amp_lessons.course.views.base.number_line import draw_chip
from amp_lessons.course.views.widgets.stills import Still


@dataclass(frozen=True)
class Phase:
    """A phase: its name, what it does, and the dtype of what it makes."""

    name: str
    does: str
    dtype: str = ""


# Lines of code, and the phases of ``scaling.PHASES`` that each of them performs.
LINES = {
    "torch.autocast": (Phase("forward", "output", "fp16"),),
    "scaler.scale(loss).backward()": (
        Phase("scale", "loss × scale", "fp32"),
        Phase("backward", "gradients × scale", "fp16"),
    ),
    "scaler.step(optimizer)": (
        Phase("unscale", "gradients ÷ scale", "fp32"),
        Phase("check", "inf or NaN?"),
        Phase("step", "if there is none"),
    ),
    "scaler.update()": (Phase("update", "the scale"),),
}
SKIP = Phase("skip", "if there is one")
_PLACES = [phase for phases in LINES.values() for phase in phases]


def scaled_step() -> Still:
    """Show the phases of a training step with a ``GradScaler``, and which line of code performs which."""
    caption = (
        "The loss is multiplied by the scale, and with it the gradients of the backward pass. scaler.step "
        "divides them by the scale and looks for inf and NaN: it steps if there is none, else it skips. "
        "scaler.update halves the scale after a skip, and doubles it after many clean steps in a row."
    )
    return Still(scaled_step_picture(), caption, "The phases of a training step under a loss scale.")


def scaled_step_picture() -> Picture:
    """Draw the phases in a row, on a phone one below the other."""
    return Picture(_in_a_row(), narrow=lambda: Picture(_one_below_the_other()))


_COLUMN = 9 / len(_PLACES)  # inches, as all that follows
_MIDDLE, _STEPS_Y, _SKIPS_Y = 1.07, 0.72, 1.42


def _in_a_row() -> Figure:
    with house_style():
        figure = Figure(figsize=(9, 1.95))
        axes = sheet(figure, 9, 1.95)
        column = 0
        for code, phases in LINES.items():
            left, column = column, column + len(phases)
            ends = [left * _COLUMN + 0.06, column * _COLUMN - 0.06]
            axes.plot(ends, [0.38, 0.38], color=QUIET, lw=1)
            _write_code(axes, sum(ends) / 2, 0.22, code, ha="center")
        centres = {phase.name: ((k + 0.5) * _COLUMN, _MIDDLE) for k, phase in enumerate(_PLACES)}
        centres["step"], centres["skip"] = ((centres["step"][0], y) for y in (_STEPS_Y, _SKIPS_Y))
        for phase in (*_PLACES, SKIP):
            x, y = centres[phase.name]
            _draw_box(axes, x, y, phase)
            axes.text(x, y + 0.28, phase.does, ha="center", va="center", fontsize=SMALL)
            if phase.dtype:
                draw_chip(axes, x, y + 0.55, phase.dtype)
        for one, other in _WAYS:
            _draw_arrow(axes, centres[one], centres[other])
    return figure


_WAYS = (
    ("forward", "scale"),
    ("scale", "backward"),
    ("backward", "unscale"),
    ("unscale", "check"),
    ("check", "step"),
    ("check", "skip"),
    ("step", "update"),
    ("skip", "update"),
)
_ROW = 0.36


def _one_below_the_other() -> Figure:
    height = _ROW * (len(LINES) + len(_PLACES) + 1) + 0.1
    with house_style():
        figure = Figure(figsize=(3.5, height))
        axes = sheet(figure, 3.5, height)
        y = _ROW / 2
        for code, phases in LINES.items():
            _write_code(axes, 0.08, y + 0.05, code)
            for phase in (*phases, SKIP) if phases[-1].name == "step" else phases:
                y += _ROW
                _draw_box(axes, 0.62, y, phase)
                axes.text(1.22, y, phase.does, va="center", fontsize=SMALL)
                if phase.dtype:
                    draw_chip(axes, 3.15, y, phase.dtype)
            y += _ROW
    return figure


_HALF = (0.44, 0.12)  # of a box, wide and high


def _draw_box(axes: Axes, x: float, y: float, phase: Phase) -> None:
    colour = ZONES["overflowed"].colour if phase is SKIP else ACCENT
    corner, size = (x - _HALF[0], y - _HALF[1]), (2 * _HALF[0], 2 * _HALF[1])
    look: dict[str, Any] = {"fc": tint(colour), "ec": colour, "lw": 1.2}
    axes.add_patch(FancyBboxPatch(corner, *size, boxstyle="round,pad=0.03", **look))
    axes.text(x, y, phase.name, ha="center", va="center", fontweight="bold")


def _draw_arrow(axes: Axes, one: tuple[float, float], other: tuple[float, float]) -> None:
    edge = _HALF[0] + 0.05
    ends = (one[0] + edge, one[1]), (other[0] - edge, other[1])
    axes.add_patch(FancyArrowPatch(*ends, arrowstyle="-|>", mutation_scale=10, color=QUIET))


def _write_code(axes: Axes, x: float, y: float, code: str, **style: Any) -> None:
    axes.text(x, y, code, va="center", family="DejaVu Sans Mono", fontsize=SMALL, color=INK, **style)
