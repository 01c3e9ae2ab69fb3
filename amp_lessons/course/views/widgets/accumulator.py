"""Pick an accumulator for a sum of products: its bits, how often it is emptied, how long the sum is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from amp_lessons import fp8
from amp_lessons._base.drawing.axes import BESIDE
from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import ACCENT, INK, PAPER, QUIET, ZONES, house_style
from amp_lessons._base.text.words import COMPUTED_MARK, relative
from amp_lessons.course.views.base.controls import ControlValue, Slider, dropdown, row
from amp_lessons.course.views.base.moving import MovingLines, MovingMark, MovingView
from amp_lessons.course.views.base.number_line import LEAST_ERROR, errors_by_count
from amp_lessons.fp8 import Accumulation
from amp_lessons.fp8.accumulators import FP32_BITS

# DeepSeek-V3 Technical Report, https://arxiv.org/abs/2412.19437, section 3.3.2: "a maximum relative error of
# nearly 2%" for "two random matrices with K = 4096"; of which sign they were is not said.
DEEPSEEK = fp8.RECIPES["deepseek_v3"].accumulation
REPORTED = ("reported by DeepSeek-V3, on a\nHopper GPU: nearly 2 % at most", 4096, 0.02)
FEWEST_BITS = 4
_TO_COMPARE = (Accumulation(DEEPSEEK.bits), DEEPSEEK)  # what was found on Hopper, and its cure
SIGNS = {"of both signs": False, "all positive": True}
_SHORTEST_INTERVAL = 5  # 2^5 products, what one instruction adds
_NEVER = 13


class AccumulatorView(MovingView):
    """Sums of products of E4M3 numbers, added up in few bits, against exact ones."""

    on_pages = ("_bits", "_interval", "_signs")

    length = ControlValue[int]("_length", "The inner dimension, as an exponent of two.")
    bits = ControlValue[int]("_bits", "Significant bits of the accumulator; 24 are fp32.")
    interval = ControlValue[int]("_interval", "After 2 to the power of how many products it is emptied.")
    signs = ControlValue[str]("_signs", "Whether products have both signs or are all positive.")

    def __init__(
        self,
        length: int = 12,
        bits: int | None = DEEPSEEK.bits,
        interval: int = _NEVER,
        signs: str = "of both signs",
    ) -> None:
        """Add up 2^``length`` products in ``bits`` (None: fp32), promoted to fp32 every 2^``interval``.

        The longest interval, 13, stands for never; ``signs`` is one of ``SIGNS``.
        """
        self._sums = lru_cache(maxsize=None)(lambda name: fp8.long_sums(positive=SIGNS[name]))
        self._errors = lru_cache(maxsize=None)(lambda name, how: self._sums(name).errors(how))
        exponents = [length.bit_length() - 1 for length in self._sums(signs).lengths]
        self._length = Slider(
            "Inner dimension", exponents[0], exponents[-1], length, words=lambda power: f"{2**power:,}"
        )
        self._bits = Slider("Accumulator", FEWEST_BITS, FP32_BITS, bits or FP32_BITS, words=_bits_words)
        self._interval = Slider("Promotion", _SHORTEST_INTERVAL, _NEVER, interval, words=_interval_words)
        self._signs = dropdown("products", list(SIGNS), signs)
        controls = [self._length, self._bits, self._interval, row(self._signs)]
        super().__init__(controls, alt="Relative error of sums of products against the inner dimension.")
        self._refresh()
        self.follow(self._refresh, self._length, self._bits, self._interval, self._signs)

    @property
    def accumulation(self) -> Accumulation:
        """What the sums are added up in."""
        if self.bits == FP32_BITS:
            return fp8.FP32
        return Accumulation(self.bits, None if self.interval == _NEVER else 2**self.interval)

    @property
    def error(self) -> float:
        """The relative error of the sums of the length that is picked."""
        return self._error_of(self.accumulation)

    def _error_of(self, accumulation: Accumulation) -> float:
        return self._errors(self.signs, accumulation)[self._sums(self.signs).lengths.index(2**self.length)]

    def _refresh(self) -> None:
        self._interval.disabled = self.bits == FP32_BITS
        sums = self._sums(self.signs)
        fixed = {str(how): self._errors(self.signs, how) for how in _TO_COMPARE}
        fixed["the cast to E4M3 alone"] = sums.cast_errors
        picture = self.picture_of(self.signs, lambda: AccumulatorPicture(sums.lengths, fixed, REPORTED))
        picture.update(self._errors(self.signs, self.accumulation), 2**self.length)
        self.show(picture, self._caption_now(), mark=COMPUTED_MARK)

    def _caption_now(self) -> str:
        sums = self._sums(self.signs)
        cast_error = sums.cast_errors[sums.lengths.index(2**self.length)]
        fixed = "; ".join(f"{how}: {relative(self._error_of(how))}" for how in _TO_COMPARE)
        return (
            f"{2**self.length:,} products per sum, {self.signs}, added up in {self.accumulation}: "
            f"the sums are {relative(self.error)} off. "
            f"With what DeepSeek-V3 found on Hopper, and its cure: {fixed}. "
            f"The cast of the factors to E4M3 had cost {relative(cast_error)} before."
        )


def _bits_words(bits: int) -> str:
    if bits == FP32_BITS:
        return "fp32"
    return f"{bits} bits{' (Hopper, by DeepSeek-V3)' if bits == DEEPSEEK.bits else ''}"


def _interval_words(exponent: int) -> str:
    if exponent == _NEVER:
        return "never"
    own = " (DeepSeek-V3)" if 2**exponent == DEEPSEEK.promote_every else ""
    return f"to fp32 every {2**exponent:,}{own}"


MOST_ERROR = 1.5
_DASHES = ["-", (0, (4, 2)), (0, (1, 1.5))]


class AccumulatorPicture(Picture):
    """Fixed lines to compare with, and one that moves, with a mark at the length in question."""

    def __init__(
        self,
        lengths: Sequence[int],
        fixed: Mapping[str, Sequence[float]],
        reported: tuple[str, int, float],
    ) -> None:
        """Draw the ``fixed`` errors by name, one per length; ``reported`` is (name, length, error)."""
        self._lengths = list(lengths)
        with house_style():
            figure = Figure(figsize=(9, 3.8))
            axes = figure.add_axes((0.1, 0.14, 0.57, 0.82))
            errors_by_count(axes, lengths, MOST_ERROR, margin=1.2)
            axes.set(xlabel="inner dimension: products per sum", ylabel="relative error of the sums")
            for dashes, (name, errors) in zip(_DASHES, fixed.items(), strict=True):
                axes.plot(lengths, errors, color=QUIET, ls=dashes, lw=1.8, label=name)
            name, length, error = reported
            colour = ZONES["underflowed"].colour
            axes.plot([length], [error], "*", ms=13, color=colour, mec=PAPER, label=name, zorder=4)
            self._line = MovingLines(axes, edgecolor=ACCENT, lw=3)
            self._mark = MovingMark(axes, facecolor=INK, edgecolor=PAPER)
            _explain(axes)
        super().__init__(figure, [self._line.artist, self._mark.artist])

    def update(self, errors: Sequence[float], length: int) -> None:
        """Move the line to ``errors``, one per length, and the mark to ``length`` on it."""
        within = [min(max(error, LEAST_ERROR), MOST_ERROR) for error in errors]
        self._line.update(list(zip(self._lengths, within, strict=True)))
        self._mark.update((length, within[self._lengths.index(length)]))


def _explain(axes: Axes) -> None:
    """Name the lines beside the picture, those first that move."""
    picked = Line2D([], [], color=ACCENT, lw=3, marker="D", ms=8, mfc=INK, mec=PAPER, label="what you picked")
    drawn, _ = axes.get_legend_handles_labels()
    axes.legend(handles=[picked, *drawn], **BESIDE, handlelength=2.6, fontsize=9)
