"""Take a number apart: flip the bits of any format, or type a number and see what each format makes of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
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

from amp_lessons.formats import FORMATS, FloatFormat, Representation, parse, side_by_side
from amp_lessons.text.words import exact, power, power_of_two, relative, short
from amp_lessons.views.base.controls import ControlValue, dropdown, row, text_field
from amp_lessons.views.base.number_line import draw_chip
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import (
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
from amp_lessons.views.base.view import View


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
    for field, names in _bit_names(float_format).items():
        if not names:
            continue
        colour = FIELD_COLOURS[field]
        bits = [f"bit {number - 1 - i}, {name}" for i, name in enumerate(names)]
        number -= len(names)
        yield {"name": field, "colour": colour, "tint": mpl.colors.to_hex(tint(colour)), "bits": bits}


def _bit_names(float_format: FloatFormat) -> dict[str, list[str]]:
    """Return what each bit of each field is called and worth, the most significant first."""
    return {
        "sign": ["sign"] * float_format.signed,
        "exponent": [f"exponent, worth {2**i}" for i in reversed(range(float_format.exponent_bits))],
        "mantissa": [f"mantissa, worth 1/{2**i}" for i in range(1, float_format.mantissa_bits + 1)],
    }


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
        self._format.observe(self._format_changed, "value")

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

    def _format_changed(self, _change: object) -> None:
        self._take(self._value, FORMATS[self.format].encode(self._value), self._understood)

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

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_(**kwargs)
        bundle["text/plain"] = "\n".join([self.caption, *map(_line, self.representations.values())])
        return bundle


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
    size = size_that_fits(said, BELOW - 0.55 - PARTS[0], 12)
    axes.text(PARTS[0], IS_Y, said, va="center", fontsize=size, fontweight="bold")
    if fields.kind not in ("normal", "subnormal"):
        return
    power = max(fields.exponent, int(float_format.has_zero))
    parts = {
        "sign": "−1" if fields.sign else "+1",
        "exponent": rf"2$^{{{power}\,−\,{float_format.bias}}}$",
        "mantissa": describe_significand(chosen),
    }
    for x, field in zip(PARTS, _fields(float_format), strict=False):
        colour, size = FIELD_COLOURS[field], size_that_fits(parts[field], BELOW - 0.45 - x, 13)
        axes.text(x, PARTS_Y, parts[field], va="center", fontsize=size, color=colour, fontweight="bold")
        axes.text(x, NAMES_Y, field, va="center", fontsize=SMALL, color=colour)
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
        axes.text(x, ASKED_Y, "what you typed", ha="center", va="center", fontsize=SMALL, color=ACCENT)


def _draw_neighbour(axes: Axes, x: float, value: float | None, bold: bool) -> None:
    """Draw a tick with its value below it, or say that no value is there."""
    style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": SMALL}
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
    style: dict[str, Any] = {"va": "center", "fontsize": SMALL}
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
