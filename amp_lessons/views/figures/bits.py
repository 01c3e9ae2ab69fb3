"""One number in many formats: the bits of each, coloured by field, and what rounding did to the number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import compress
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from amp_lessons.formats import FloatFormat, Representation
from amp_lessons.text.words import power_of_two, short
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.representations import describe_error, describe_significand, describe_value
from amp_lessons.views.base.style import ACCENT, FIELD_COLOURS, INK, QUIET, ZONES, house_style, tint
from amp_lessons.views.figures.chips import draw_chip

# Everything below is in inches, from the upper left corner
WIDTH, ROW, TOP = 9.0, 0.29, 1.75
CHIP, BORDER, VALUE, ERROR = 0.65, 2.33, 4.9, 6.75  # BORDER: where exponents end and mantissas begin
BIT, GAP = 0.105, 0.05  # a bit's width, and what lies between two fields
DIGIT_AREA_PT2 = 38
# The number taken apart: one line for what it is, one for its parts, one for their names
IS_Y, PARTS_Y, NAMES_Y = 0.28, 0.72, 0.98
PARTS = (1.2, 1.75, 2.9)
BELOW, HERE, ABOVE = 5.1, 6.75, 8.4  # a value between its neighbours
ASKED_Y, SPACING_Y = 0.38, 0.14


def bits_picture(
    representations: Sequence[Representation], chosen: Representation, value: float | Fraction
) -> Picture:
    """Draw ``chosen`` taken apart, among its neighbours, and below it all ``representations`` of it."""
    height = TOP + ROW * (len(representations) + 0.4)
    with house_style():
        figure = Figure(figsize=(WIDTH, height))
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(height, 0))
        axes.set_axis_off()
        _draw_decoded(axes, chosen)
        _draw_neighbours(axes, chosen, value)
        _draw_header(axes)
        for i, representation in enumerate(representations):
            y = TOP + ROW * (i + 0.5)
            if representation.format is chosen.format:
                axes.axhspan(y - ROW / 2, y + ROW / 2, color=tint(ACCENT), lw=0, zorder=-1)
            _draw_row(axes, y, representation)
        _draw_bits(axes, representations)
    return Picture(figure)


def _draw_decoded(axes: Axes, chosen: Representation) -> None:
    fields, float_format = chosen.fields, chosen.format
    draw_chip(axes, CHIP, IS_Y, float_format.name)
    value = describe_value(chosen, fields.value)
    said = value if fields.kind in ("inf", "nan") else f"{fields.kind}: {value}"
    axes.text(PARTS[0], IS_Y, said, va="center", fontsize=12, fontweight="bold")
    if fields.kind not in ("normal", "subnormal"):
        return
    power = max(fields.exponent, int(float_format.has_zero))
    parts = {
        "sign": "−1" if fields.sign else "+1",
        "exponent": rf"2$^{{{power}\,−\,{float_format.bias}}}$",
        "mantissa": describe_significand(chosen),
    }
    for x, field in zip(PARTS, _fields(float_format), strict=False):
        colour = FIELD_COLOURS[field]
        axes.text(x, PARTS_Y, parts[field], va="center", fontsize=13, color=colour, fontweight="bold")
        axes.text(x, NAMES_Y, field, va="center", fontsize=8.5, color=colour)
        if x > PARTS[0]:
            axes.text(x - 0.12, PARTS_Y, "×", va="center", ha="center", fontsize=13)


def _draw_neighbours(axes: Axes, chosen: Representation, value: float | Fraction) -> None:
    """Draw the value between its neighbours on a line of its own, and what was asked for as a triangle."""
    float_format, here = chosen.format, chosen.fields.value
    if not math.isfinite(here):
        return
    axes.plot([BELOW - 0.35, ABOVE + 0.35], [PARTS_Y, PARTS_Y], color=QUIET, lw=1, zorder=0)
    below, above = float_format.next_down(here), float_format.next_up(here)
    for x, neighbour in ((BELOW, below), (HERE, here), (ABOVE, above)):
        _draw_neighbour(axes, x, neighbour, bold=x == HERE)
    words = f"neighbours, spacing {power_of_two(float_format.spacing(here))}"
    axes.text(HERE, SPACING_Y, words, ha="center", va="center")
    asked = _position(value, below, here, above)
    if asked:
        x = HERE + asked * (ABOVE - HERE)
        axes.plot([x], [PARTS_Y - 0.17], marker="v", color=ACCENT, ms=8)
        axes.text(x, ASKED_Y, "what you typed", ha="center", va="center", fontsize=8.5, color=ACCENT)


def _draw_neighbour(axes: Axes, x: float, value: float | None, bold: bool) -> None:
    """Draw a tick with its value below it, or say that no value is there."""
    style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8.5}
    if value is None:
        axes.text(x, NAMES_Y, "nothing", color=QUIET, **style)
        return
    axes.plot([x, x], [PARTS_Y - 0.12, PARTS_Y + 0.12], color=INK, lw=3 if bold else 1.5)
    axes.text(x, NAMES_Y, short(value), fontweight="bold" if bold else "normal", **style)


def _position(value: float | Fraction, below: float | None, here: float, above: float | None) -> float | None:
    """Return where ``value`` lies between the neighbours, −1 to 1, ``here`` at 0; None outside or at it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    offset = Fraction(value) - Fraction(here)
    neighbour = above if offset > 0 else below
    if not offset or neighbour is None or not math.isfinite(neighbour):
        return None
    share = offset / abs(Fraction(neighbour) - Fraction(here))
    return float(share) if abs(share) <= 1 else None


def _draw_header(axes: Axes) -> None:
    y = TOP - 0.16
    style: dict[str, Any] = {"va": "center", "fontsize": 8.5}
    axes.text(BORDER - 8 * BIT - 2 * GAP, y, "s", ha="right", color=FIELD_COLOURS["sign"], **style)
    axes.text(BORDER - GAP, y, "exponent", ha="right", color=FIELD_COLOURS["exponent"], **style)
    axes.text(BORDER, y, "mantissa", color=FIELD_COLOURS["mantissa"], **style)
    axes.text(VALUE, y, "value", color=QUIET, **style)
    axes.text(ERROR, y, "relative error", color=QUIET, **style)
    axes.plot([0.1, WIDTH - 0.1], [TOP - 0.02] * 2, color=QUIET, lw=0.8)


def _draw_row(axes: Axes, y: float, representation: Representation) -> None:
    draw_chip(axes, CHIP, y, representation.format.name)
    axes.text(VALUE, y, short(representation.fields.value), va="center", fontsize=9.5)
    colour, weight = _STRESS.get(representation.outcome, (INK, "normal"))
    axes.text(
        ERROR, y, describe_error(representation), va="center", fontsize=9.5, color=colour, weight=weight
    )


_STRESS = {
    "underflow": (ZONES["underflowed"].colour, "bold"),
    "overflow": (ZONES["overflowed"].colour, "bold"),
}


def _draw_bits(axes: Axes, representations: Sequence[Representation]) -> None:
    """Draw a box with its digit for every bit; the exponents of all formats end at ``BORDER``."""
    bits = [
        (x, TOP + ROW * (i + 0.5), field, digit)
        for i, representation in enumerate(representations)
        for x, field, digit in _placed_bits(representation)
    ]
    corners = np.array([(x, y) for x, y, _, _ in bits])[:, None] + BIT * _BOX
    colours = [
        FIELD_COLOURS[field] if digit == "1" else tint(FIELD_COLOURS[field]) for *_, field, digit in bits
    ]
    axes.add_collection(PolyCollection(list(corners), facecolors=colours, edgecolors="white", linewidths=0.6))
    for digit, colour in (("0", INK), ("1", "white")):
        x, y = np.array([(x + BIT / 2, y) for x, y, _, each in bits if each == digit]).reshape(-1, 2).T
        axes.scatter(x, y, s=DIGIT_AREA_PT2, marker=f"${digit}$", color=colour, lw=0)


_BOX = np.array([(0, -1), (1, -1), (1, 1), (0, 1)])  # in widths of a bit, which is half as wide as high


def _placed_bits(representation: Representation) -> Iterator[tuple[float, str, str]]:
    """Yield where each bit of a code begins, its field and its digit."""
    float_format = representation.format
    x = BORDER - GAP - BIT * float_format.exponent_bits - (GAP + BIT) * float_format.signed
    for field, digits in zip(
        _fields(float_format), float_format.pattern(representation.fields.bits).split(), strict=True
    ):
        for digit in digits:
            yield x, field, digit
            x += BIT
        x += GAP


def _fields(float_format: FloatFormat) -> list[str]:
    present = (float_format.signed, True, float_format.mantissa_bits > 0)
    return list(compress(FIELD_COLOURS, present))
