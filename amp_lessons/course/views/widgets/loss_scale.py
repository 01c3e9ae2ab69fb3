"""Move the loss scale and watch what becomes of the gradients."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure

from amp_lessons import scaling
from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import house_style
from amp_lessons._base.text.words import MEASURED_MARK, power, power_of_two, relative, share
from amp_lessons.course.views.base.controls import (
    ControlValue,
    Slider,
    SliderWithField,
    dropdown,
    row,
    text_field,
)
from amp_lessons.course.views.base.moving import NO_GOAL, FateBars, Goal, MovingView
from amp_lessons.course.views.base.number_line import draw_zones, powers_of_two, two_to
from amp_lessons.formats import FORMATS
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.scaling import Census

ALL_LAYERS = "all layers"
LARGEST_EXPONENT = 40


class _ScaleView(MovingView):
    """A loss scale to move, by slider or by typing it, a dtype and a layer, and their census."""

    exponent = ControlValue[int]("_slider", "The exponent of the loss scale that the slider stands on.")
    dtype = ControlValue[torch.dtype]("_dtype", "The dtype on whose number line the gradients are drawn.")
    layer = ControlValue[str]("_layer", "The layer whose gradients are shown, or all of them.")

    dtypes: tuple[torch.dtype, ...]

    def __init__(self, layers: Iterable[str], dtype: torch.dtype, exponent: int) -> None:
        self._slider = Slider("Loss scale", 0, LARGEST_EXPONENT, exponent, words=two_to)
        self._typed = text_field("or type one", "", placeholder="65536 or 2^16")
        self._dtype = dropdown("dtype", [(dtype_name(each), each) for each in self.dtypes], dtype)
        self._layer = dropdown("layer", [ALL_LAYERS, *layers], ALL_LAYERS)
        self._chosen = SliderWithField(self._slider, self._typed, self._slider_moved, self._scale_typed)
        controls = [self._slider, row(self._typed, self._dtype, self._layer)]
        super().__init__(controls, alt="Histogram of gradients on a number line with its zones.")
        self._scale = 2.0**exponent
        self._refresh()  # what is wrong with the arguments is raised here, not answered
        self.follow(self._refresh, self._dtype, self._layer)

    def census_by_layer(self, scale: float, dtype: torch.dtype) -> dict[str, Census]:
        """Return what the view shows at ``scale``, by layer."""
        raise NotImplementedError

    @property
    def scale(self) -> float | str:
        """The loss scale that the picture shows. Setting it is typing it: text is welcome, and answered."""
        return self._scale

    @scale.setter
    def scale(self, scale: float | str) -> None:
        self._typed.value = str(scale)

    def _slider_moved(self, exponent: int) -> None:
        self._scale = 2.0**exponent
        with self.answering():
            self._refresh()

    def _scale_typed(self, text: str) -> None:
        with self.answering(self._typed):
            self._scale = scaling.parse_scale(text)
            self._chosen.follow(math.log2(self._scale))
            self._refresh()

    def _refresh(self) -> None:
        by_layer = self.census_by_layer(self._scale, self.dtype)
        if self.layer != ALL_LAYERS:
            by_layer = {self.layer: by_layer[self.layer]}
        census = functools.reduce(operator.add, by_layer.values())
        picture = self.picture_of((self.dtype, self.layer), lambda: CensusPicture(census))
        picture.update(census)
        self.in_short, self.goal = self.verdict(census)
        self.show(picture, describe(census), mark=MEASURED_MARK)

    def verdict(self, census: Census) -> tuple[str, Goal]:
        """Return what is said of a scale beyond the numbers, and which goal it reaches."""
        return "", NO_GOAL


class CensusView(_ScaleView):
    """What a cast makes of given gradients at a loss scale: a computation, without a backward pass."""

    dtypes = (torch.float16, torch.bfloat16, torch.float8_e5m2, torch.float8_e4m3fn)

    def __init__(
        self,
        gradients: torch.Tensor | Mapping[str, torch.Tensor],
        dtype: torch.dtype = torch.float16,
        exponent: int = 0,
    ) -> None:
        """Show ``gradients`` (one floating tensor of any shape, or several by layer) at ``2**exponent``."""
        self._gradients = gradients if isinstance(gradients, Mapping) else {"gradients": gradients}
        super().__init__(self._gradients, dtype, exponent)

    def census_by_layer(self, scale: float, dtype: torch.dtype) -> dict[str, Census]:
        """Return what the cast to ``dtype`` makes of each layer's gradients at ``scale``."""
        return {
            name: scaling.census([gradient], dtype, scale, norms=True)
            for name, gradient in self._gradients.items()
        }


class LossScaleView(_ScaleView):
    """A real backward pass under autocast for every move, on the device that the model is on."""

    dtypes = (torch.float16, torch.bfloat16, torch.float32)

    def __init__(
        self,
        model: torch.nn.Module,
        batch: tuple[torch.Tensor, torch.Tensor],
        loss_fn: Callable[..., torch.Tensor],
        dtype: torch.dtype = torch.float16,
        exponent: int = 0,
    ) -> None:
        """Run ``model`` on ``batch`` (inputs, targets), first at a loss scale of ``2**exponent``."""
        self._probe = scaling.LossScaleProbe(model, batch, loss_fn)
        self._tried: dict[tuple[str, float], str] = {}
        super().__init__(self._probe.layers, dtype, exponent)

    def census_by_layer(self, scale: float, dtype: torch.dtype) -> dict[str, Census]:
        """Return what became of each layer's gradients in a forward and a backward pass at ``scale``."""
        return self._probe.at(scale, dtype)

    def verdict(self, census: Census) -> tuple[str, Goal]:
        """Say where the scale lies beside the window of these gradients, as lesson 03 asks for it.

        That one of its ends is found is said where half that scale was tried before, and was another verdict.
        """
        place = _beside_window(census)
        gradients = f"{census.dtype_name}, {self.layer}, norm {census.norm}"
        before = self._tried.get((gradients, census.scale / 2), place)
        self._tried[gradients, census.scale] = place
        is_end = place in _ENDS and before != place and math.frexp(census.scale)[0] == 0.5  # a power of two
        if not is_end:
            vanish = share(census.underflowed, census.at_stake)
            return place.format(vanish=vanish), Goal(gradients)
        exponent = round(math.log2(census.scale)) - (place == _TOO_FAR)  # the last that is safe
        at = min(max(exponent / LARGEST_EXPONENT, 0.0), 1.0)
        return _ENDS[place], Goal(gradients, place, at, power(2, exponent))


MOST_VANISH = 0.1  # of the gradients, below which a scale is safe: the lesson's choice
_SAFE, _TOO_FAR = "✓ Safe: {vanish} vanish.", "✗ Too far: some overflow."
_ENDS = {_SAFE: "✓ The safe range begins here.", _TOO_FAR: "✗ Overflow begins here."}


def _beside_window(census: Census) -> str:
    """Return what is said of a place beside the window, before its number is put in."""
    if census.overflowed:
        return _TOO_FAR
    if census.underflowed >= MOST_VANISH * census.at_stake:
        return "✗ Not yet: {vanish} vanish."
    return "" if census.nonfinite else _SAFE


def describe(census: Census) -> str:
    """Describe a census in one sentence, the caption's."""
    alive, kind = census.at_stake, "nonzero gradients" if census.zero else "gradients"
    norm = f" ({relative(census.underflow_norm_fraction)} of their norm)" if census.underflowed else ""
    taller = " (drawn taller, so that they show)" if 0 < census.overflowed < _SEEN * alive else ""
    sentence = (
        f"Scale {power_of_two(census.scale)}: "
        f"{share(census.underflowed, alive)} of {alive:,} {kind} vanish{norm}, "
        f"{share(census.subnormal, alive)} end up subnormal, "
        f"{share(census.overflowed, alive)} overflow{taller}{_of_those_that_fit(census)}."
    )
    if census.nonfinite:
        sentence += f" ({census.nonfinite:,} were inf or nan before any cast.)"
    return sentence


def _of_those_that_fit(census: Census) -> str:
    """Say why gradients overflow that would fit themselves: their bars lie left of that zone."""
    fits = math.log2(FORMATS[dtype_name(census.dtype)].max / census.scale)
    small = any(binade + 1 < fits for binade in census.fates["overflowed"])
    return ", small ones too: an inf spreads through the backward pass" if small else ""


@dataclass(frozen=True)
class _Frame:
    """How large a histogram is drawn, in inches, where its axes lie, and which exponents are in view."""

    size: tuple[float, float]
    axes: tuple[float, float, float, float]
    exponents: tuple[int, int]
    step: int
    upright: bool = False


# Real gradients at 2^0, and what a scale of 2^40 makes of them; on a phone what fp16 tells apart.
_WIDE = _Frame((9, 3.5), (0.065, 0.165, 0.905, 0.785), (-64, 48), step=8)
_NARROW = _Frame((3.5, 3.1), (0.16, 0.17, 0.75, 0.8), (-48, 32), step=16, upright=True)


_SEEN = 0.06  # of the tallest bar: one gradient of a million that overflows costs a step


class CensusPicture(Picture):
    """A histogram of gradients on the number line of ``dtype``, coloured by what becomes of each value."""

    def __init__(self, census: Census, headroom: float = 1.35, frame: _Frame = _WIDE) -> None:
        """Draw ``census``; the y axis leaves ``headroom`` above its tallest bar for the censuses to come."""
        self.dtype = census.dtype
        name = dtype_name(census.dtype)
        with house_style():
            figure = Figure(figsize=frame.size)
            axes = figure.add_axes(frame.axes)
            draw_zones(axes, FORMATS[name], *frame.exponents, upright=frame.upright)
            powers_of_two(axes, step=frame.step, clipped=frame.exponents)
            line = "" if frame.upright else f", on the number line of {name}"
            axes.set_xlabel(f"size of the gradient × loss scale{line}")
            axes.set_ylabel("% of gradients" if frame.upright else "% of gradients that are not zero")
            self._bars = FateBars(axes, *frame.exponents, seen=_SEEN)
        super().__init__(figure, self._bars.artists, self._drawn_narrow if frame is _WIDE else None)
        self._first, self._headroom = census, headroom
        self._for_phones: CensusPicture | None = None
        axes.set_ylim(0, headroom * max(self.update(census), 1.0))

    def _drawn_narrow(self) -> CensusPicture:
        # upright names reach deeper
        self._for_phones = CensusPicture(self._first, 1.4 * self._headroom, _NARROW)
        self._for_phones.update(self._census)
        return self._for_phones

    def update(self, census: Census) -> float:
        """Move the bars to ``census``, of the dtype that the picture was made for; return the tallest."""
        self._census = census
        if self._for_phones is not None:
            self._for_phones.update(census)
        heights = self._bars.update(census.fates, census.at_stake, math.log2(census.scale))
        return float(heights.max(initial=0))
