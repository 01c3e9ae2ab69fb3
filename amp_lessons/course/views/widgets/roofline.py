"""The roofline of this machine, measured, and a matrix product to move under it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from amp_lessons import devices, measure
from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import GRID, INK, PAPER, QUIET, SMALL, dtype_colour, house_style
from amp_lessons._base.text.words import MEASURED_MARK, flop_rate, percent, three_digits
from amp_lessons.course.views.base.controls import (
    ControlValue,
    Slider,
    SliderWithField,
    dropdown,
    row,
    text_field,
)
from amp_lessons.course.views.base.view import View
from amp_lessons.course.views.widgets.stills import Still
from amp_lessons.formats import FORMATS, parse_whole
from amp_lessons.measure import GPUS, Promise, Rate, Roof, Survey, Timing

STEP = 16  # a multiple of what tensor cores like in every precision
LARGEST_BY_SLIDER = {"cpu": 1024, "cuda": 8192}
LARGEST_TYPED = 2**16


def roofline_of(gpu: str, product: int | None = None) -> Still:
    """Show the roofline that the data sheet of ``gpu``, one of ``measure.GPUS``, promises.

    With ``product`` also where it puts the product of two square matrices of that size, in fp32 and in fp16.
    """
    if gpu not in GPUS:
        raise ValueError(f"there is no data sheet of {gpu!r} here; there are {', '.join(GPUS)}")
    sheet = GPUS[gpu]
    said = [
        f"{roof.precision} {flop_rate(roof.flop_per_s)}, ridge at {three_digits(roof.ridge_point)}"
        for roof in sheet.roofs
    ]
    caption = (
        f"{gpu}, computed from the data sheet, not measured: {three_digits(sheet.bytes_per_s / 1e9)} GB/s; "
        f"{'; '.join(said)} FLOP per byte. Its address: measure.GPUS[{gpu!r}].source."
    )
    pair = [] if product is None else [sheet.roof(name).promise(product) for name in ("fp32", "fp16")]
    if pair:
        caption = f"{_say_pair(pair)} {caption}"
    return Still(
        roofline_picture(sheet.roofs, f"{gpu}\ncomputed from the data sheet", pair=pair),
        caption,
        "Roofline: FLOP per second over FLOP per byte.",
    )


def _say_pair(pair: list[Promise]) -> str:
    """Describe where the same product lies in both precisions, and what it gains."""
    wide, half = pair
    return (
        f"{wide.size:,} × {wide.size:,} in {wide.precision}: {three_digits(wide.intensity)} FLOP per byte, "
        f"at most {flop_rate(wide.flop_per_s)}; in {half.precision}: {three_digits(half.intensity)}, at most "
        f"{flop_rate(half.flop_per_s)}, {three_digits(half.flop_per_s / wide.flop_per_s)} times as much."
    )


class RooflineView(View):
    """Roofs and operations of this machine; choose the size of a matrix product, and it is measured."""

    on_pages = ()
    why_still = "it measures the machine that it runs on, for as long as one of its products takes"

    precision = ControlValue[str]("_precision", "The precision of the product.")

    def __init__(
        self,
        survey: Survey | None = None,
        *,
        device: str | None = None,
        size: int = 512,
        precision: str = "fp32",
    ) -> None:
        """Show ``survey``, by default one of ``device`` that is made now and takes seconds.

        The product is of two square matrices of ``size`` rows.
        """
        place = device or (survey.roofline.device if survey else devices.default_device())
        self._survey = survey or measure.survey(device=place)
        self._product: Rate | None = None
        self._size = 0
        most = LARGEST_BY_SLIDER.get(str(place).partition(":")[0], 1024)
        self._slider = Slider(
            "Matrix size", 1, most // STEP, max(1, size // STEP), words=lambda at: f"{at * STEP:,}"
        )
        self._typed = text_field("or type any", "", placeholder="511 or 1,000")
        self._precision = dropdown("product in", list(self._survey.roofline.precisions), precision)
        controls = [self._slider, row(self._typed, self._precision)]
        super().__init__(controls, alt="Roofline: FLOP per second over FLOP per byte.")
        self._chosen = SliderWithField(
            self._slider, self._typed, lambda at: self._measure(at * STEP), self._size_typed
        )
        self._begin(size)
        self.follow(lambda: self._measure(self._size), self._precision)

    @property
    def survey(self) -> Survey:
        """What the picture is drawn from; a product that beats all others raises the roof."""
        return self._survey

    @property
    def product(self) -> Rate | None:
        """The product under the star, as measured."""
        return self._product

    @property
    def size(self) -> int | str:
        """The number of rows of both matrices. Setting it is typing it: text is welcome, and answered."""
        return self._size

    @size.setter
    def size(self, size: int | str) -> None:
        self._size_typed(size)

    def _begin(self, size: int) -> None:
        """Show the product of this size; that of the survey is as good as a new one."""
        known = self._survey.square_product(size, self.precision)
        self._show()
        if known:
            self._put(known)
        else:
            self.size = size

    def _size_typed(self, size: int | str) -> None:
        with self.answering(self._typed):
            self._measure(parse_whole(size, "The matrix size", LARGEST_TYPED))

    def _measure(self, size: int) -> None:
        self.begin_work(f"{size:,} × {size:,} in {self.precision}")
        with self.answering():
            product = self._survey.measure_product(size, self.precision)
            self._survey = self._survey.with_product(product)
            self._put(product)

    def _put(self, product: Rate) -> None:
        """Move the star and the slider to this product."""
        self._product, self._size = product, product.size
        self._chosen.follow(product.size / STEP)
        self._show()

    def _show(self) -> None:
        roofline = self._survey.roofline
        where = f"measured on {roofline.device}"
        picture = roofline_picture(roofline.roofs, where, self._survey.operations, self._product)
        words = [describe_product(self._product, self._survey)] if self._product else []
        self.show(picture, " ".join([*words, describe_roofs(self._survey)]), mark=MEASURED_MARK)


def describe_product(product: Rate, survey: Survey) -> str:
    """Describe how fast a product was, and how much of what bounds it that is."""
    ridge = survey.roofline.ridge_point(product.precision)
    bound = "arithmetic" if product.intensity >= ridge else "memory"
    reached = percent(survey.fraction_of_roof(product), 1)
    return (
        f"{product.size:,} × {product.size:,} in {product.precision}: {flop_rate(product.flop_per_s)}, "
        f"{reached} of what the roof allows at {three_digits(product.intensity)} FLOP per byte, "
        f"where {bound} is the bound."
    )


def describe_roofs(survey: Survey) -> str:
    """Describe the best rates of products in all precisions, measured, and what they are on a CPU."""
    roofline = survey.roofline
    first, *others = roofline.precisions
    said = [
        f"{name} {three_digits(roofline.flop_per_s(name) / roofline.flop_per_s(first))} times"
        for name in others
    ]
    memory = three_digits(roofline.bytes_per_s(first) / 1e9)
    words = f"Measured on {roofline.device}: {first} products reach {flop_rate(roofline.flop_per_s(first))}"
    compared = f", {', '.join(said)} as much" if said else ""
    return f"{words}{compared}; memory moves {memory} GB/s.{_about_fp16(survey)}"


def _about_fp16(survey: Survey) -> str:
    roofline = survey.roofline
    on_cpu = roofline.device.startswith("cpu")
    if not on_cpu or not {"fp32", "fp16"} <= set(roofline.precisions):
        return ""
    fp32, fp16 = (_products(survey, name) for name in ("fp32", "fp16"))
    size = max(fp32.keys() & fp16.keys(), default=None)
    if size is None or (difference := fp16[size].compare(fp32[size])).verdict == "faster":
        return ""
    return (
        f" On this CPU fp16 products are not faster: {difference} at {size:,} rows. Operations that memory "
        "binds can be."
    )


def _products(survey: Survey, precision: str) -> dict[int, Timing]:
    """Return the timings of the survey's square products of one precision, by size."""
    return {
        rate.size: rate.timing
        for rate in survey.roofline.products
        if rate.precision == precision and rate.operation == "matrix product"
    }


MARKERS = {"matrix product": "o", "attention": "s", "LayerNorm": "^", "addition": "P"}
_STROKES = ("-", (0, (8, 2)), (0, (5, 2)), (0, (1.5, 1.5)), "-.")
DASHES = dict(zip(FORMATS, itertools.cycle(_STROKES)))
_LEFT, _RIGHT = 0.1, 0.765


def roofline_picture(
    roofs: Sequence[Roof],
    source: str,
    operations: Sequence[Rate] = (),
    product: Rate | None = None,
    pair: Sequence[Promise] = (),
) -> Picture:
    """Draw roofs, operations under them, and as a star the one ``product`` that is played with.

    ``source`` says where the numbers come from. ``pair`` is one product in two precisions: an arrow leads
    from the first place to the second.
    """
    points = [*operations, *([product] if product else [])]
    with house_style():
        figure = Figure(figsize=(9, 4.6))
        axes = figure.add_axes((_LEFT, 0.125, _RIGHT - _LEFT, 0.85))
        axes.set(xscale="log", yscale="log", xlabel="FLOP per byte moved", ylabel="FLOP per second")
        seen = [*(rate.intensity for rate in points), *(roof.ridge_point for roof in roofs)]
        low, high = min(0.06, *seen) / 1.6, 3 * max(*seen, 100)  # with some of the flat roofs
        # Where memory bounds, all precisions share one line: the widest lies below
        for width, roof in zip(np.linspace(4.5, 2, len(roofs)), roofs, strict=True):
            _draw_roof(axes, roof, low, high, width)
        for rate in operations:
            _draw_point(axes, rate, marker=MARKERS.get(rate.operation, "o"), ms=9, mew=0.6, zorder=4)
        if product:
            _draw_product(axes, product)
        if pair:
            _draw_pair(axes, *pair)
        axes.set_xlim(low, high)
        axes.grid(color=GRID)
        axes.set_axisbelow(True)
        axes.set_ylim(top=4 * axes.get_ylim()[1])
        _name_roofs(axes, roofs)
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _short_rate(y)))
        _explain(axes, source)
        if operations:
            _legend(axes, operations)
    return Picture(figure)


def _draw_roof(axes: Axes, roof: Roof, low: float, high: float, width: float) -> None:
    colour = dtype_colour(roof.precision)
    xs = [low, roof.ridge_point, high]
    ys = [low * roof.bytes_per_s, roof.flop_per_s, roof.flop_per_s]
    axes.plot(xs, ys, color=colour, lw=width, ls=DASHES[roof.precision], label=roof.precision)
    axes.plot(roof.ridge_point, roof.flop_per_s, "D", color=PAPER, mec=colour, mew=1.8, ms=7, zorder=3)


def _name_roofs(axes: Axes, roofs: Sequence[Roof]) -> None:
    """Name each roof at its right end; names that would touch are moved apart, none above the axes."""
    bottom, top = np.log10(axes.get_ylim())
    height = 0.085 * (top - bottom)  # of two lines of text, in decades
    ordered = sorted(roofs, key=lambda roof: roof.flop_per_s)
    places = list(
        itertools.accumulate(np.log10([each.flop_per_s for each in ordered]), lambda a, b: max(a + height, b))
    )
    for below, (roof, wanted) in enumerate(zip(reversed(ordered), reversed(places), strict=True)):
        place = min(wanted, top - (below + 0.5) * height)
        words = f"{roof.precision} {flop_rate(roof.flop_per_s)}\nridge at {three_digits(roof.ridge_point)}"
        at, colour = axes.get_yaxis_transform(), dtype_colour(roof.precision)
        ends = [1.012, 1.035], [10**place] * 2
        axes.plot(*ends, color=colour, lw=5, clip_on=False, transform=at, solid_capstyle="butt")
        axes.text(1.045, 10**place, words, transform=at, va="center", fontsize=SMALL, linespacing=1.1)


def _explain(axes: Axes, source: str) -> None:
    """Write what bounds where, and where the numbers come from."""
    style: dict[str, Any] = {"fontsize": 9, "color": QUIET, "transform": axes.transAxes, "va": "top"}
    paper = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}
    axes.text(0.015, 0.985, source, **style, fontweight="bold", bbox=paper)
    axes.text(0.015, 0.87, "where the roof slopes,\nmemory is the bound", **style)
    axes.text(0.985, 0.09, "where it is flat, arithmetic is the bound", ha="right", **style)


def _short_rate(flop_per_s: float) -> str:
    """Return a power of ten with its unit: ``100 G``, ``1 T``, ``1 P``."""
    if flop_per_s >= 1e15:
        return f"{flop_per_s / 1e15:,.0f} P"
    if flop_per_s >= 1e12:
        return f"{flop_per_s / 1e12:,.0f} T"
    return f"{flop_per_s / 1e9:g} G"


def _draw_point(axes: Axes, rate: Rate, **style: Any) -> None:
    colour = dtype_colour(rate.precision)
    axes.plot(rate.intensity, rate.flop_per_s, ls="", color=colour, mec=INK, **style)


def _draw_product(axes: Axes, product: Rate) -> None:
    _draw_point(axes, product, marker="*", ms=19, mew=1.2, zorder=5)
    axes.annotate(
        f"{product.size:,} × {product.size:,}",
        (product.intensity, product.flop_per_s),
        xytext=(0, 12),
        textcoords="offset points",
        ha="center",
        fontsize=9,
        fontweight="bold",
        zorder=6,
    )


def _draw_pair(axes: Axes, first: Promise, second: Promise) -> None:
    """Mark where the roof puts one product in two precisions, and join the two by an arrow."""
    places = [(each.intensity, each.flop_per_s) for each in (first, second)]
    arrow = {"arrowstyle": "-|>", "color": INK, "lw": 1.6, "connectionstyle": "arc3,rad=-0.5", "shrinkB": 6}
    axes.annotate("", places[1], places[0], arrowprops=arrow, zorder=5)
    for each, place in zip((first, second), places, strict=True):
        axes.plot(*place, "o", color=dtype_colour(each.precision), mec=INK, mew=1, ms=9, zorder=6)
    style: dict[str, Any] = {"textcoords": "offset points", "fontsize": 9, "color": INK}
    before = f"{first.size:,} × {first.size:,} in {first.precision}"
    after = f"in {second.precision}: half the bytes,\ntwice the FLOP per byte"
    axes.annotate(before, places[0], xytext=(9, -6), va="top", **style)
    axes.annotate(after, places[1], xytext=(-12, 16), ha="right", **style)


def _legend(axes: Axes, operations: Sequence[Rate]) -> None:
    names = dict.fromkeys(rate.operation for rate in operations)
    style: dict[str, Any] = {"ls": "", "color": PAPER, "mec": INK, "ms": 8}
    handles = [Line2D([], [], marker=MARKERS.get(name, "o"), label=name, **style) for name in names]
    handles += [
        Line2D([], [], marker="*", label="your product", **{**style, "ms": 13}),
        Line2D([], [], marker="D", label="ridge point", **{**style, "mec": QUIET, "mew": 1.8, "ms": 6}),
    ]
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(1.01, 0), fontsize=SMALL, handlelength=1.2)
