"""Pick a scale by hand for eight or four bits, then let rows and blocks have scales of their own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from torch import Tensor

from amp_lessons import fp8
from amp_lessons._base.arguments import require
from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import ACCENT, GRID, INK, house_style, tint
from amp_lessons._base.text.words import COMPUTED_MARK, power, relative, share
from amp_lessons.course.material import tensors
from amp_lessons.course.views.base.controls import ControlValue, Slider, dropdown, row
from amp_lessons.course.views.base.moving import FateBars, MovingView
from amp_lessons.course.views.base.number_line import draw_zones, powers_of_two, two_to
from amp_lessons.formats import FORMATS, FloatFormat
from amp_lessons.fp8 import Placement, Quantized

ELEMENTS = ("fp8_e4m3", "fp8_e5m2", "fp4_e2m1")
BY_HAND = "by hand"
WAYS = (BY_HAND, *fp8.granularities(FORMATS[ELEMENTS[0]]))
_WAY_WORDS = {
    BY_HAND: "one for the tensor, by hand",
    **{way: f"one per {way}, from its largest" for way in WAYS[1:]},
}
LARGEST_OUTLIER = 20
_BEYOND = 12  # how much further than needed the slider goes, to either side


class ScaleView(MovingView):
    """A tensor against the window of a small format.

    By hand one multiplier moves the whole tensor; otherwise whoever shares a scale gets the one that its
    largest magnitude asks for. An outlier can be put into the middle of the tensor.
    """

    exponent = ControlValue[int]("_slider", "The exponent of the multiplier that was picked by hand.")
    way = ControlValue[str]("_way", "Who shares a scale: one of ``WAYS``, the first being by hand.")
    outlier = ControlValue[int](
        "_outlier", "How many times the largest an outlier is, as an exponent; 0: none."
    )
    format = ControlValue[str]("_format", "The name of the format of the elements.")

    def __init__(
        self,
        tensor: Tensor | None = None,
        format: str = "fp8_e4m3",
        way: str = BY_HAND,
        exponent: int = 0,
        outlier: int = 0,
    ) -> None:
        """Show ``tensor`` (float, at least one dimension; for None a made-up gradient) times 2^``exponent``.

        Up to some 50,000 elements a move is answered at once. Raises TypeError or ValueError for a tensor of
        other than finite numbers.
        """
        shown = tensors.gradient_like() if tensor is None else tensor
        self._tensor = (
            require(shown, Tensor, "tensor", "a tensor such as torch.randn(64, 512)").detach().float()
        )
        if not self._tensor.dim():
            raise ValueError("tensor has at least one dimension; a single number needs no scale")
        fitting = fp8.fitting_exponent(self._tensor, FORMATS["fp8_e4m3"])
        self._middle = tuple(size // 2 for size in self._tensor.shape)
        self._largest = self._tensor.abs().max()
        self._slider = Slider(
            "Multiply by", min(0, fitting) - _BEYOND, max(0, fitting) + _BEYOND, exponent, words=_multiplier
        )
        self._outlier = Slider("Outlier", 0, LARGEST_OUTLIER, outlier, words=_outlier_words)
        self._way = dropdown("scale", [(_WAY_WORDS[each], each) for each in WAYS], way)
        self._format = dropdown("format", list(ELEMENTS), format)
        controls = [self._slider, row(self._way, self._format), self._outlier]
        super().__init__(
            controls, alt="Histogram of a tensor on the number line of a small format, beside errors."
        )
        self._place = lru_cache(maxsize=2 * len(WAYS))(self._find_placement)
        self._error = lru_cache(maxsize=1024)(self._find_error)
        self._refresh()  # what is wrong with the arguments is raised here, not answered
        self.follow(self._refresh, self._slider, self._outlier, self._way, self._format)

    @property
    def placement(self) -> Placement:
        """What the view shows: the tensor, and what the cast makes of it."""
        return self._place(self.way, self._exponent_of(self.way), self.outlier, self.format)

    def error_of(self, way: str) -> float:
        """Return the relative error of the tensor under a way to scale; of all but the outlier, if any."""
        return self._error(way, self._exponent_of(way), self.outlier, self.format)

    def _exponent_of(self, way: str) -> int | None:
        return self.exponent if way == BY_HAND else None

    def _find_placement(self, way: str, exponent: int | None, outlier: int, format: str) -> Placement:
        tensor, element = self._with_outlier(outlier), FORMATS[format]
        if exponent is not None:
            return fp8.place_by_hand(tensor, element, exponent)
        return fp8.place(tensor, fp8.granularities(element)[way])

    def _find_error(self, way: str, exponent: int | None, outlier: int, format: str) -> float:
        placement = self._place(way, exponent, outlier, format)
        return placement.relative_error(without=self._middle if outlier else None)

    def _with_outlier(self, exponent: int) -> Tensor:
        if not exponent:
            return self._tensor
        tensor = self._tensor.clone()
        tensor[self._middle] = self._largest * 2.0**exponent
        return tensor

    def _refresh(self) -> None:
        self._slider.disabled = self.way != BY_HAND
        picture = self.picture_of(self.format, self._axes_of_format)
        picture.update(self.placement, {way: self.error_of(way) for way in WAYS}, self.way)
        self.show(picture, self._caption_now(), mark=COMPUTED_MARK)

    def _axes_of_format(self) -> ScalePicture:
        """Draw axes that have room for the bars of every way, without an outlier."""
        placements = {way: self._place(way, self._exponent_of(way), 0, self.format) for way in WAYS}
        return ScalePicture(FORMATS[self.format], placements)

    def _caption_now(self) -> str:
        by_hand = self.way == BY_HAND
        how = f"Multiplied by {_multiplier(self.exponent)}" if by_hand else f"One scale per {self.way}"
        outlier = f" One element is {_outlier_words(self.outlier)}." if self.outlier else ""
        of_whom = " of all others" if self.outlier else ""
        return (
            f"{how}, in {self.format}: {describe(self.placement)}{outlier} "
            f"Error: {relative(self.error_of(self.way))} of the norm{of_whom}."
        )


def describe(placement: Placement) -> str:
    """Describe in two sentences what became of the elements, and what their scales take."""
    alive, made = placement.at_stake, placement.quantized
    return (
        f"{share(placement.count('underflowed'), alive)} of {alive:,} elements become zero, "
        f"{share(placement.count('subnormal'), alive)} end up subnormal, "
        f"{share(placement.count('overflowed'), alive)} saturate. {_cost(made)}"
    )


def _cost(made: Quantized) -> str:
    """Describe what the scales take beside the elements."""
    count, scale_bits = made.scales.numel(), made.cast.scale.bits
    scales = (
        f"{count:,} scales of {scale_bits} bits take"
        if count > 1
        else f"One scale of {scale_bits} bits takes"
    )
    beside = " (one more of 32 bits included)" if made.cast.has_tensor_scale else ""
    return (
        f"{scales} {made.bytes_of_scales:,.0f} bytes{beside}, "
        f"{relative(made.bytes_of_scales / made.bytes_of_values)} of what the elements take."
    )


def _multiplier(exponent: int) -> str:
    return f"{power(2, exponent)} (scale {power(2, -exponent)})"


def _outlier_words(exponent: int) -> str:
    return f"{two_to(exponent)} times the largest" if exponent else "none"


LOW, HIGH = -32, 24  # exponents in view, after scaling
LEAST_ERROR, MOST_ERROR = 1e-3, 2.0  # a tensor that is lost altogether has an error of 1


class ScalePicture(Picture):
    """A histogram on the number line of one format, beside one bar of error for each way to scale."""

    def __init__(self, element: FloatFormat, placements: Mapping[str, Placement]) -> None:
        """Draw the axes for ``element`` and the ways of these placements, with room for each of them."""
        self._ways = list(placements)
        with house_style():
            figure = Figure(figsize=(9, 3.7))
            line = figure.add_axes((0.065, 0.15, 0.585, 0.75))
            draw_zones(line, element, LOW, HIGH, named=False)
            powers_of_two(line, step=8, clipped=(LOW, HIGH))
            line.set_xlabel(f"size after scaling, on the number line of {element.name}")
            line.set_ylabel("% of elements that are not zero")
            self._line = FateBars(line, LOW, HIGH)
            self._line.name(line, overflowed="saturates")
            tallest = [self._line.update(each.fates, each.at_stake).max() for each in placements.values()]
            line.set_ylim(0, 1.2 * max(tallest))
            self._errors, self._here = self._draw_errors(figure.add_axes((0.775, 0.15, 0.205, 0.75)))
        super().__init__(figure, [*self._line.artists, self._here, *self._errors])

    def _draw_errors(self, axes: Axes) -> tuple[list[Rectangle], Rectangle]:
        axes.set(xscale="log", xlim=(LEAST_ERROR, MOST_ERROR), ylim=(len(self._ways) - 0.4, -0.6))
        axes.xaxis.set_major_locator(FixedLocator([1e-3, 1e-2, 1e-1, 1]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda error, _: f"{100 * error:g} %"))
        axes.set_yticks(range(len(self._ways)), self._ways)
        axes.set_title("error by who shares a scale", fontsize=10, loc="right")
        axes.set_xlabel("of the norm")
        axes.grid(axis="x", color=GRID)
        axes.set_axisbelow(True)
        here = axes.axhspan(-0.46, 0.46, facecolor=tint(ACCENT), edgecolor=ACCENT, lw=1.2)
        bars = axes.barh(range(len(self._ways)), 0, left=LEAST_ERROR, height=0.56, color=INK)
        return list(bars), here

    def update(self, placement: Placement, errors: Mapping[str, float], way: str) -> None:
        """Move the bars to ``placement`` and to the error of each way, and mark the one that is shown."""
        self._line.update(placement.fates, placement.at_stake)
        self._here.set_y(self._ways.index(way) - 0.46)
        for bar, name in zip(self._errors, self._ways, strict=True):
            bar.set_width(min(max(errors[name], LEAST_ERROR), MOST_ERROR) - LEAST_ERROR)
