"""Lay all formats on one ruler, and zoom from the whole range of fp32 into the gap between two values."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from torch import Tensor

from amp_lessons.formats import FORMATS, parse
from amp_lessons.text.words import power, power_of_two
from amp_lessons.views.base.controls import ControlValue, Slider, SliderWithField, row, text_field
from amp_lessons.views.base.view import View
from amp_lessons.views.figures.ruler import ruler_picture, sizes_in_order

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
        self._zoom = Slider("Zoom", 0, MOST_ZOOM, zoom, words=_width_in_words)
        self._power = Slider("Around", _LOWEST, _HIGHEST, 0, words=lambda exponent: power(2, exponent))
        self._field = text_field("or around the number", "", placeholder="2048 or 0.1", width="300px")
        super().__init__([self._zoom, self._power, row(self._field)], _alt(self._sizes))
        self._middle_chosen = SliderWithField(self._power, self._field, self._look_at, self._number_typed)
        self._look_at(_binade_of(str(around)))
        self._zoom.observe(self._refresh, "value")

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

    def _refresh(self, _change: object = None) -> None:
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


def _width_in_words(zoom: int) -> str:
    return f"{WIDEST_BINADES / 2**zoom:.3g} binades"


def describe(low: float, high: float) -> str:
    """Say which part of the ruler is in view, and how many values of each format lie there."""
    counts = {name: len(each.codes_between(2.0**low, 2.0**high)) for name, each in FORMATS.items()}
    found = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
    none = [name for name, count in counts.items() if not count]
    sentence = f"From {power_of_two(2.0**low)} to {power_of_two(2.0**high)}, values in view: {found}"
    return f"{sentence}; none in {', '.join(none)}." if none else f"{sentence}."
