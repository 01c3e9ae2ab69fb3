"""Lay all formats on one ruler, and zoom from the whole range of fp32 into the gap between two values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import ACCENT, GRID, INK, QUIET, SMALL, dtype_colour, house_style, tint
from amp_lessons._base.text.words import number, power, power_of_two
from amp_lessons.course.views.base.controls import ControlValue, Slider, SliderWithField, row, text_field
from amp_lessons.course.views.base.number_line import draw_chip, powers_of_two
from amp_lessons.course.views.base.view import View
from amp_lessons.formats import FORMATS, FloatFormat, parse

WIDEST_BINADES = 288.0
MOST_ZOOM = 12
_FP32 = FORMATS["fp32"]
_LOWEST, _HIGHEST = (math.floor(math.log2(value)) for value in (_FP32.decode(1), _FP32.max))


class RulerView(View):
    """The positive values of every format on a logarithmic ruler, with tensors above it if there are any."""

    zoom = ControlValue[int]("_zoom", "How often the widest view has been halved.")

    def __init__(
        self, tensors: Mapping[str, Tensor] | None = None, around: str | float = "2^-12", zoom: int = 0
    ) -> None:
        """Show ``tensors`` (name → tensor, by the size of their elements) and all formats.

        The middle of the picture is ``around``, a positive number; each step of ``zoom`` halves its width.
        """
        self._sizes = {name: sizes_in_order(tensor) for name, tensor in (tensors or {}).items()}
        self._zoom = Slider(
            "Zoom", 0, MOST_ZOOM, zoom, words=lambda zoom: f"{WIDEST_BINADES / 2**zoom:.3g} binades"
        )
        self._power = Slider("Around", _LOWEST, _HIGHEST, 0, words=lambda exponent: power(2, exponent))
        self._field = text_field("or around the number", "", placeholder="2048 or 0.1", width="300px")
        super().__init__([self._zoom, self._power, row(self._field)], _alt(self._sizes))
        self._middle_chosen = SliderWithField(self._power, self._field, self._look_at, self._number_typed)
        self._look_at(_binade_of(str(around)))
        self.follow(self._refresh, self._zoom)

    @property
    def around(self) -> float | str:
        """The number in the middle. Setting it is typing it: text is welcome, and answered."""
        return 2.0**self._middle

    @around.setter
    def around(self, number: float | str) -> None:
        self._field.value = str(number)

    def _number_typed(self, text: str) -> None:
        with self.answering(self._field):
            self._look_at(_binade_of(text))

    def _look_at(self, middle: float) -> None:
        self._middle = middle
        self._middle_chosen.follow(middle)
        self._refresh()

    def _refresh(self) -> None:
        half = WIDEST_BINADES / 2 ** (self.zoom + 1)
        low, high = self._middle - half, self._middle + half
        picture = ruler_picture(low, high, list(FORMATS.values()), self._sizes)
        self.show(picture, describe(low, high))


def _binade_of(text: str) -> float:
    """Return log2 of a typed number; a ValueError says which numbers a logarithmic ruler has."""
    number = _FP32.decode(parse(text, _FP32).code)
    if not 0 < number <= _FP32.max:
        raise ValueError(
            f"“{text}” has no place on this ruler: type a positive number from {power(2, _LOWEST)} to "
            f"{power(2, _HIGHEST)}."
        )
    return math.log2(number)


def _alt(sizes: Mapping[str, np.ndarray]) -> str:
    spans = {name: (each[0], each[-1]) for name, each in sizes.items() if len(each)}
    lie = [
        f"{name} lie from {power(2, round(low))} to {power(2, round(high))}."
        for name, (low, high) in spans.items()
    ]
    return " ".join(["The values that each number format can represent, on a logarithmic ruler.", *lie])


def describe(low: float, high: float) -> str:
    """Describe which part of the ruler is in view, and how many values of each format lie there."""
    counts = {name: len(each.codes_between(2.0**low, 2.0**high)) for name, each in FORMATS.items()}
    found = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
    none = [name for name, count in counts.items() if not count]
    sentence = f"From {power_of_two(2.0**low)} to {power_of_two(2.0**high)}, values in view: {found}"
    return f"{sentence}; none in {', '.join(none)}." if none else f"{sentence}."


MOST_TICKS = 200  # more values than this in view are a band: their ticks would touch
BINS = 160
LABELS = 0.115  # the share of the width that the names on the left take
COUNTS = 0.13  # and that of the counts on the right
ROW_IN, STRIP_IN, AXIS_IN, HEADER_IN = 0.29, 0.42, 0.42, 0.24
_PLATE = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
DECIMAL_BINADES = 4.0  # so narrow a view is labelled with plain numbers


def ruler_picture(
    low: float, high: float, float_formats: Sequence[FloatFormat], tensors: Mapping[str, np.ndarray]
) -> Picture:
    """Draw the values of ``float_formats`` from 2^low to 2^high, below histograms of ``tensors``.

    Those are given as ``sizes_in_order``, so that a moving picture does not sort them again.
    """
    rows, strips = ROW_IN * len(float_formats), STRIP_IN * len(tensors)
    height = AXIS_IN + rows + strips + HEADER_IN
    with house_style():
        figure = Figure(figsize=(9, height))
        width = 1 - LABELS - COUNTS
        axes = figure.add_axes((LABELS, AXIS_IN / height, width, rows / height))
        axes.set(xlim=(low, high), ylim=(len(float_formats), 0), yticks=[])
        _label_sizes(axes, low, high)
        for row, float_format in enumerate(float_formats):
            _draw_format(axes, row + 0.5, float_format, low, high)
        figure.text(1 - COUNTS + 0.012, 1 - 0.13 / height, "values in view", fontsize=SMALL, color=QUIET)
        subnormal = any(_has_subnormals(each, low, high) for each in float_formats)
        legend = "dotted or thin: subnormal" if subnormal else ""
        figure.text(LABELS, 1 - 0.13 / height, legend, fontsize=SMALL, color=QUIET)
        if tensors:
            strip_axes = figure.add_axes(
                (LABELS, (AXIS_IN + rows) / height, width, strips / height), sharex=axes
            )
            _draw_tensors(strip_axes, tensors, low, high)
    return Picture(figure)


def _has_subnormals(float_format: FloatFormat, low: float, high: float) -> bool:
    smallest = float_format.smallest_subnormal
    return bool(smallest) and 2.0**low < float_format.smallest_normal and smallest <= 2.0**high


def _label_sizes(axes: Axes, low: float, high: float) -> None:
    if high - low <= DECIMAL_BINADES:
        sizes = [size for size in MaxNLocator(7).tick_values(2.0**low, 2.0**high) if size > 0]
        axes.set_xticks([math.log2(size) for size in sizes], [number(size, 6) for size in sizes])
        axes.set_xlim(low, high)
    else:
        powers_of_two(axes, step=2 ** max(0, math.ceil(math.log2((high - low) / 14))))
    axes.grid(axis="x", color=GRID, zorder=0)
    axes.set_axisbelow(True)


def _draw_format(axes: Axes, y: float, float_format: FloatFormat, low: float, high: float) -> None:
    codes = float_format.codes_between(2.0**low, 2.0**high)
    colour = dtype_colour(float_format.name)
    beside = axes.get_yaxis_transform()
    draw_chip(
        axes, -LABELS / (1 - LABELS - COUNTS) / 2, y, float_format.name, fontsize=SMALL, transform=beside
    )
    axes.text(1.015, y, f"{len(codes):,}", transform=beside, va="center", fontsize=9)
    axes.axhline(y, color=GRID, lw=0.8, zorder=0)
    if len(codes) > MOST_TICKS:
        _draw_bands(axes, y, float_format, low, high)
        return
    sizes = [value for value in map(float_format.decode, codes) if value > 0]
    segments = [[(math.log2(size), y - 0.32), (math.log2(size), y + 0.32)] for size in sizes]
    widths = [1.0 if size < float_format.smallest_normal else 2.0 for size in sizes]
    axes.add_collection(LineCollection(segments, colors=colour, linewidths=widths))


def _draw_bands(axes: Axes, y: float, float_format: FloatFormat, low: float, high: float) -> None:
    colour = dtype_colour(float_format.name)
    normal = math.log2(float_format.smallest_normal)
    subnormal = math.log2(float_format.smallest_subnormal or float_format.smallest_normal)
    largest = math.log2(float_format.max)
    bands = ((subnormal, normal, tint(colour), "...."), (normal, largest, colour, ""))
    for left, right, fill, hatch in bands:
        left, right = max(left, low), min(right, high)
        if left < right:
            box = Rectangle((left, y - 0.32), right - left, 0.64, fc=fill, ec=colour, hatch=hatch, lw=0.5)
            axes.add_patch(box)
    left, right = max(normal, low), min(largest, high)
    if right - left > 0.2 * (high - low):
        words = f"{2**float_format.mantissa_bits:,} per binade"
        style: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": SMALL, "color": INK}
        axes.text((left + right) / 2, y, words, bbox=_PLATE, **style)


def _draw_tensors(axes: Axes, tensors: Mapping[str, np.ndarray], low: float, high: float) -> None:
    axes.set(ylim=(len(tensors), 0), yticks=[])
    axes.tick_params(bottom=False, labelbottom=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    edges = np.linspace(low, high, BINS + 1)
    beside = axes.get_yaxis_transform()
    for place, (name, sizes) in enumerate(tensors.items()):
        counts = np.diff(np.searchsorted(sizes, edges))
        floor = np.full(BINS, place + 0.95)
        bars = floor - 0.85 * counts / max(counts.max(), 1)
        axes.stairs(bars, edges, baseline=floor, fill=True, color=ACCENT, alpha=0.75)
        axes.text(-0.015, place + 0.7, name, transform=beside, ha="right", color=INK, fontsize=9)
        axes.text(1.015, place + 0.6, f"{int(counts.sum()):,}", transform=beside, fontsize=9)
        axes.text(1.015, place + 0.92, "non-zero", transform=beside, fontsize=SMALL, color=QUIET)


def sizes_in_order(tensor: Tensor) -> np.ndarray:
    """Return log2 of the size of every element but the zeros, smallest first."""
    sizes = tensor.detach().flatten().abs().double()
    return np.sort(sizes[sizes > 0].log2().cpu().numpy())
