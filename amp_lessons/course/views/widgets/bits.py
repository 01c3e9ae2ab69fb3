"""Take a number apart: flip the bits of any format, or type a number and see what each format makes of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any

import anywidget
import matplotlib as mpl
import numpy as np
import traitlets
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from amp_lessons._base.drawing.axes import sheet
from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import (
    ACCENT,
    FIELD_COLOURS,
    INK,
    QUIET,
    SMALL,
    ZONES,
    house_style,
    size_that_fits,
    tint,
)
from amp_lessons._base.text.words import exact, power, power_of_two, relative, short
from amp_lessons.course.views.base.controls import ControlValue, dropdown, row, text_field
from amp_lessons.course.views.base.number_line import draw_chip
from amp_lessons.course.views.base.view import View
from amp_lessons.formats import FORMATS, FloatFormat, Representation, parse, side_by_side


class BitRow(anywidget.AnyWidget):
    """One toggle button per bit of a format, grouped by field; ``bits`` is what they show, as 0 and 1."""

    _esm = Path(__file__).with_name("bits.js")
    _css = Path(__file__).with_name("bits.css")
    label = traitlets.Unicode().tag(sync=True)
    fields: Any = traitlets.List().tag(sync=True)
    bits = traitlets.Unicode().tag(sync=True)

    def show(self, float_format: FloatFormat, code: int) -> None:
        """Show the bits of ``code``; both halves of the change reach the page together."""
        with self.hold_sync():
            self.label = row_label(float_format)
            self.fields = list(button_groups(float_format))
            self.bits = float_format.pattern(code).replace(" ", "")


def row_label(float_format: FloatFormat) -> str:
    """Return what a screen reader calls the buttons of a format."""
    return f"Bits of {float_format.name}: arrow keys move, space flips"


def button_groups(float_format: FloatFormat) -> Iterator[dict[str, object]]:
    """Yield the fields of a format as ``BitRow`` shows them: name, colours, what each bit is called."""
    number = float_format.bits
    named = {  # what each bit is called and worth, the most significant first
        "sign": ["sign"] * float_format.signed,
        "exponent": [f"exponent, worth {2**i}" for i in reversed(range(float_format.exponent_bits))],
        "mantissa": [f"mantissa, worth 1/{2**i}" for i in range(1, float_format.mantissa_bits + 1)],
    }
    for field, names in named.items():
        if not names:
            continue
        colour = FIELD_COLOURS[field]
        bits = [f"bit {number - 1 - i}, {name}" for i, name in enumerate(names)]
        number -= len(names)
        yield {"name": field, "colour": colour, "tint": mpl.colors.to_hex(tint(colour)), "bits": bits}


class BitView(View):
    """One code of one format, bit by bit, and what the number it stands for becomes in every format."""

    on_pages = ()
    why_still = "its bits have too many states, and what is typed has no end: the page “Bits” computes them"
    format = ControlValue[str]("_format", "The name of the format whose bits the buttons are.")

    def __init__(
        self, typed: str | float = "0.1", format: str = "fp16", formats: Sequence[str] = tuple(FORMATS)
    ) -> None:
        """Show ``typed`` (a number, or with 0x or 0b in front the bits of one) in the format of that name.

        It is one of ``formats``, the names of those that stand side by side.
        """
        self._row = BitRow()
        self._format = dropdown("format", list(formats), format)
        self._field = text_field(
            "type a number or its bits", "", placeholder="0.1, 2^-24, 0x7bff", width="380px"
        )
        super().__init__([row(self._format, self._field), self._row], alt="")
        self._text = ""
        self._understand(str(typed))
        self._row.observe(self._bit_flipped, "bits")
        self._field.observe(self._number_typed, "value")
        self.follow(
            lambda: self._take(self._value, FORMATS[self.format].encode(self._value), self._understood),
            self._format,
        )

    @property
    def code(self) -> int:
        """The code that the buttons show."""
        return self._code

    @property
    def value(self) -> float | Fraction:
        """The number that every format is given: exactly what was typed, or what the bits mean."""
        return self._value

    @property
    def representations(self) -> dict[str, Representation]:
        """What the number becomes in each format, by name; in the one taken apart it has the shown code."""
        every = {each.format.name: each for each in side_by_side(self._value)}
        found = {name: every[name] for name in self._format.options}
        chosen = found[self.format]
        return {**found, self.format: replace(chosen, fields=chosen.format.split(self._code))}

    def type(self, text: str | float) -> None:
        """Type a number, or with 0x or 0b in front the bits of one; any text is welcome, and answered."""
        self._field.value = str(text)

    def flip(self, bit: int) -> None:
        """Flip a bit, counted from 0 on the right, as a click on its button does."""
        bits = FORMATS[self.format].bits
        if not 0 <= bit < bits:
            raise ValueError(f"{self.format} has the bits 0 to {bits - 1}; there is no bit {bit}.")
        self._row.bits = f"{self._code ^ 1 << bit:0{bits}b}"

    def _bit_flipped(self, change: dict[str, Any]) -> None:
        code = int(change["new"], 2)
        if code != self._code:  # else this view has just written it there
            self._take(FORMATS[self.format].decode(code), code)

    def _number_typed(self, change: dict[str, Any]) -> None:
        if change["new"] != self._text:
            self._text = change["new"]
            with self.answering(self._field):
                self._understand(change["new"])

    def _understand(self, text: str) -> None:
        meaning = parse(text, FORMATS[self.format])
        self._take(meaning.value, meaning.code, "" if meaning.is_pattern else text)

    def _take(self, value: float | Fraction, code: int, text: str = "") -> None:
        """Show ``code`` and what every format makes of ``value``; ``text`` is how the learner wrote it."""
        self._value, self._code = value, code
        self._text = self._understood = text or str(value).removesuffix(".0")
        self._field.value, self._field.error = self._text, ""
        self._row.show(FORMATS[self.format], code)
        found = self.representations
        self._alt = f"Bits of {self._text} in {len(found)} formats. {'; '.join(map(_line, found.values()))}."
        picture = bits_picture(list(found.values()), found[self.format], value)
        self.show(picture, describe(found[self.format], value, self._text))

    def stored(self) -> dict[str, str]:
        """Return a line for each format as text, too."""
        lines = map(_line, self.representations.values())
        return {**super().stored(), "text/plain": "\n".join([self.caption, *lines])}


def _line(representation: Representation) -> str:
    value, name = representation.fields.value, representation.format.name
    return f"{name}: {short(value)}, {describe_error(representation)}"


def describe(chosen: Representation, value: float | Fraction, text: str) -> str:
    """Describe what the picture shows of the format that is taken apart."""
    fields, name = chosen.fields, chosen.format.name
    same = value == fields.value or (chosen.outcome == "nan" and fields.kind == "nan")
    sentences = [] if same else [_became(chosen, text)]
    pattern = chosen.format.pattern(fields.bits)
    if fields.kind in ("normal", "subnormal"):
        sentences.append(
            f"{name} {pattern} is {fields.kind}: {_product(chosen)} = {describe_value(chosen, fields.value)}."
        )
    elif fields.kind == "nan":
        sentences.append(f"{name} {pattern} is NaN ({chosen.format.specials.value}).")
    else:
        what = {"zero": "zero", "inf": "infinity"}[fields.kind]
        sentences.append(f"{name} {pattern} is {'minus ' * fields.sign}{what}.")
    return " ".join([*sentences, *_neighbours(chosen)])


def _became(chosen: Representation, text: str) -> str:
    name, nearest = chosen.format.name, exact(chosen.fields.value)
    if chosen.outcome == "overflow":
        return f"{text} is beyond {name}, which makes it {nearest}."
    if chosen.outcome == "underflow":
        return f"{text} is too small for {name}, which makes it {nearest}."
    if not math.isfinite(chosen.relative_error) or lost_its_sign(chosen):
        return f"{name} {describe_error(chosen)}."
    return f"The {name} value nearest to {text} is off by {relative(chosen.relative_error)}."


def _product(chosen: Representation) -> str:
    scale = f"{'−' * chosen.fields.sign}{power(2, chosen.format.power(chosen.fields.bits))}"
    return f"{scale} × ({describe_significand(chosen)})" if chosen.format.mantissa_bits else scale


def _neighbours(chosen: Representation) -> list[str]:
    float_format, value = chosen.format, chosen.fields.value
    if not math.isfinite(value):
        return []
    below, above = float_format.next_down(value), float_format.next_up(value)
    names = [describe_value(chosen, neighbour) for neighbour in (below, above) if neighbour is not None]
    which = "neighbours" if len(names) == 2 else "only neighbour"
    return [f"Its {which}: {' and '.join(names)}; spacing {power_of_two(float_format.spacing(value))}."]


@dataclass(frozen=True)
class _Layout:
    """Where everything lies, in inches, from the upper left corner.

    The number taken apart: what it is (``chip``, ``says``), its parts, their names. Then the value between
    its neighbours, and from ``top`` on a ``row`` for each format. Its exponents end at ``border``.
    """

    width: float = 9.0
    top: float = 1.75
    row: float = 0.29
    bit: float = 0.105
    chip: float = 0.65
    says: tuple[float, float] = (1.2, 0.28)
    parts: tuple[float, float, float] = (1.2, 1.75, 2.9)
    parts_y: float = 0.72
    decoded_to: float = 4.65
    neighbours: tuple[float, float, float] = (5.1, 6.75, 8.4)
    line_y: float = 0.72
    border: float = 2.33
    value: float = 4.9
    error: float = 6.75
    words_above: float = 0.0  # the bits of a row


_WIDE = _Layout()
_NARROW = _Layout(
    width=3.6,
    top=3.1,
    row=0.6,
    bit=0.1,
    chip=0.53,
    says=(0.1, 0.58),
    parts=(0.1, 0.6, 1.68),
    parts_y=0.98,
    decoded_to=3.55,
    neighbours=(0.55, 1.75, 2.95),
    line_y=2.12,
    border=1.12,
    value=1.12,
    error=2.27,
    words_above=0.27,
)
GAP = 0.05  # between two fields
CHIP_Y, NAMES_BELOW = 0.28, 0.26
DIGIT_AREA_PT2 = 38


def bits_picture(
    representations: Sequence[Representation], chosen: Representation, value: float | Fraction
) -> Picture:
    """Draw ``chosen`` taken apart, among its neighbours, and below it all ``representations`` of it."""
    figure = partial(_figure, representations, chosen, value)
    return Picture(figure(_WIDE), narrow=lambda: Picture(figure(_NARROW)))


def _figure(
    representations: Sequence[Representation],
    chosen: Representation,
    value: float | Fraction,
    layout: _Layout,
) -> Figure:
    height = layout.top + layout.row * (len(representations) + 0.4)
    with house_style():
        figure = Figure(figsize=(layout.width, height))
        axes = sheet(figure, layout.width, height)
        _draw_decoded(axes, chosen, layout)
        _draw_neighbours(axes, chosen, value, layout)
        _draw_header(axes, layout)
        for i, representation in enumerate(representations):
            y = _bits_y(layout, i)
            if representation.format is chosen.format:
                above = y + layout.bit * 1.4
                axes.axhspan(above - layout.row, above, color=tint(ACCENT), lw=0, zorder=-1)
            _draw_row(axes, y - layout.words_above, representation, layout)
        _draw_bits(axes, representations, layout)
    return figure


def _bits_y(layout: _Layout, row: int) -> float:
    return layout.top + layout.row * (row + 0.5) + layout.words_above / 2


def _draw_decoded(axes: Axes, chosen: Representation, layout: _Layout) -> None:
    fields, float_format = chosen.fields, chosen.format
    draw_chip(axes, layout.chip, CHIP_Y, float_format.name)
    value = describe_value(chosen, fields.value)
    said = value if fields.kind in ("inf", "nan") else f"{fields.kind}: {value}"
    if layout is _NARROW and said != value:  # the exact value fills a line
        axes.text(1.2, CHIP_Y, fields.kind, va="center", fontsize=12, fontweight="bold")
        said = value
    size = size_that_fits(said, layout.decoded_to - 0.1 - layout.says[0], 12)
    axes.text(*layout.says, said, va="center", fontsize=size, fontweight="bold")
    if fields.kind not in ("normal", "subnormal"):
        return
    power = max(fields.exponent, int(float_format.has_zero))
    parts = {
        "sign": "−1" if fields.sign else "+1",
        "exponent": rf"2$^{{{power}\,−\,{float_format.bias}}}$",
        "mantissa": f"({describe_significand(chosen)})",
    }
    for x, field in zip(layout.parts, _fields(float_format), strict=False):
        colour, size = FIELD_COLOURS[field], size_that_fits(parts[field], layout.decoded_to - x, 13)
        axes.text(
            x, layout.parts_y, parts[field], va="center", fontsize=size, color=colour, fontweight="bold"
        )
        axes.text(x, layout.parts_y + NAMES_BELOW, field, va="center", fontsize=SMALL, color=colour)
        if x > layout.parts[0]:
            axes.text(x - 0.12, layout.parts_y, "×", va="center", ha="center", fontsize=13)


def _draw_neighbours(axes: Axes, chosen: Representation, value: float | Fraction, layout: _Layout) -> None:
    """Draw the value between its neighbours on a line of its own, and what was asked for as a triangle."""
    float_format, here = chosen.format, chosen.fields.value
    if not math.isfinite(here):
        return
    at_below, at_here, at_above = layout.neighbours
    axes.plot([at_below - 0.35, at_above + 0.35], [layout.line_y] * 2, color=QUIET, lw=1, zorder=0)
    below, above = float_format.next_down(here), float_format.next_up(here)
    for x, neighbour in zip(layout.neighbours, (below, here, above), strict=True):
        _draw_neighbour(axes, x, layout.line_y, neighbour, bold=x == at_here)
    words = f"neighbours, spacing {power_of_two(float_format.spacing(here))}"
    axes.text(at_here, layout.line_y - 0.58, words, ha="center", va="center")
    asked = _position(value, below, here, above)
    if asked:
        x = at_here + asked * (at_above - at_here)
        axes.plot([x], [layout.line_y - 0.17], marker="v", color=ACCENT, ms=8)
        axes.text(
            x, layout.line_y - 0.34, "what you typed", ha="center", va="center", fontsize=SMALL, color=ACCENT
        )


def _draw_neighbour(axes: Axes, x: float, y: float, value: float | None, bold: bool) -> None:
    """Draw a tick with its value below it, or say that no value is there."""
    style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": SMALL}
    if value is None:
        axes.text(x, y + NAMES_BELOW, "nothing", color=QUIET, **style)
        return
    axes.plot([x, x], [y - 0.12, y + 0.12], color=INK, lw=3 if bold else 1.5)
    axes.text(x, y + NAMES_BELOW, short(value), fontweight="bold" if bold else "normal", **style)


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


def _draw_header(axes: Axes, layout: _Layout) -> None:
    y = layout.top - 0.16
    style: dict[str, Any] = {"va": "center", "fontsize": SMALL}
    left = layout.border - 8 * layout.bit - 2 * GAP
    axes.text(left, y, "s", ha="right", color=FIELD_COLOURS["sign"], **style)
    axes.text(layout.border - GAP, y, "exponent", ha="right", color=FIELD_COLOURS["exponent"], **style)
    axes.text(layout.border, y, "mantissa", color=FIELD_COLOURS["mantissa"], **style)
    above = y - layout.words_above
    axes.text(layout.value, above, "value", color=QUIET, **style)
    axes.text(layout.error, above, "relative error", color=QUIET, **style)
    axes.plot([0.1, layout.width - 0.1], [layout.top - 0.02] * 2, color=QUIET, lw=0.8)


def _draw_row(axes: Axes, y: float, representation: Representation, layout: _Layout) -> None:
    draw_chip(axes, layout.chip, y, representation.format.name)
    axes.text(layout.value, y, short(representation.fields.value), va="center", fontsize=9.5)
    colour, weight = _STRESS.get(representation.outcome, (INK, "normal"))
    error = describe_error(representation)
    error = error.replace(", ", ",\n") if layout is _NARROW else error
    axes.text(layout.error, y, error, va="center", fontsize=9.5, color=colour, weight=weight)


_STRESS = {
    "underflow": (ZONES["underflowed"].colour, "bold"),
    "overflow": (ZONES["overflowed"].colour, "bold"),
}


def _draw_bits(axes: Axes, representations: Sequence[Representation], layout: _Layout) -> None:
    """Draw a box with its digit for every bit; the exponents of all formats end at one line."""
    bits = [
        (x, _bits_y(layout, i), field, digit)
        for i, representation in enumerate(representations)
        for x, field, digit in _placed_bits(representation, layout)
    ]
    corners = np.array([(x, y) for x, y, _, _ in bits])[:, None] + layout.bit * _BOX
    colours = [
        FIELD_COLOURS[field] if digit == "1" else tint(FIELD_COLOURS[field]) for *_, field, digit in bits
    ]
    axes.add_collection(PolyCollection(list(corners), facecolors=colours, edgecolors="white", linewidths=0.6))
    for digit, colour in (("0", INK), ("1", "white")):
        x, y = np.array([(x + layout.bit / 2, y) for x, y, _, each in bits if each == digit]).reshape(-1, 2).T
        axes.scatter(x, y, s=DIGIT_AREA_PT2, marker=f"${digit}$", color=colour, lw=0)


_BOX = np.array([(0, -1), (1, -1), (1, 1), (0, 1)])  # in widths of a bit, which is half as wide as high


def _placed_bits(representation: Representation, layout: _Layout) -> Iterator[tuple[float, str, str]]:
    """Yield where each bit of a code begins, its field and its digit."""
    float_format = representation.format
    bit = layout.bit
    x = layout.border - GAP - bit * float_format.exponent_bits - (GAP + bit) * float_format.signed
    for field, digits in zip(
        _fields(float_format), float_format.pattern(representation.fields.bits).split(), strict=True
    ):
        for digit in digits:
            yield x, field, digit
            x += bit
        x += GAP


def _fields(float_format: FloatFormat) -> list[str]:
    present = (float_format.signed, True, float_format.mantissa_bits > 0)
    return list(compress(FIELD_COLOURS, present))


def describe_error(representation: Representation) -> str:
    """Describe in a few words what became of the number."""
    value = representation.fields.value
    if representation.outcome == "nan":
        return "nan" if math.isnan(value) else "has no nan"
    if representation.outcome == "overflow":
        how = "stops at" if math.isfinite(value) else "becomes"
        return f"overflow, {how} {short(value)}"
    if representation.outcome == "underflow":
        return "becomes zero"
    if representation.outcome == "exact":
        return "exact"
    if math.isinf(representation.relative_error):
        return "has no zero"
    if lost_its_sign(representation):
        return "has no sign"
    return relative(representation.relative_error)


def lost_its_sign(representation: Representation) -> bool:
    """Whether the number was negative, and the format has positive ones only."""
    return not representation.format.signed and representation.error > representation.fields.value


def describe_significand(representation: Representation) -> str:
    """Return the hidden bit plus the mantissa as a fraction: ``1 + 614/1024``."""
    fields, float_format = representation.fields, representation.format
    hidden_bit = int(fields.kind == "normal")
    steps = 2**float_format.mantissa_bits
    return f"{hidden_bit} + {fields.mantissa}/{steps}"


def describe_value(chosen: Representation, value: float) -> str:
    """Write ``value`` as text; beside a subnormal, as a multiple of the smallest one."""
    smallest = chosen.format.smallest_subnormal
    if chosen.fields.kind != "subnormal" or not smallest:
        return exact(value)
    return exact(value, math.frexp(smallest)[1] - 1)
