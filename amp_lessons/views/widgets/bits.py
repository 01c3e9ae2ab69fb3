"""Take a number apart: flip the bits of any format, or type a number and see what each format makes of it."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

from amp_lessons.formats import FORMATS, Representation, parse, side_by_side
from amp_lessons.text.words import exact, power, power_of_two, relative, short
from amp_lessons.views.base.bit_row import BitRow
from amp_lessons.views.base.controls import ControlValue, dropdown, row, text_field
from amp_lessons.views.base.representations import (
    describe_error,
    describe_significand,
    describe_value,
    lost_its_sign,
)
from amp_lessons.views.base.view import View
from amp_lessons.views.figures.bits import bits_picture


class BitView(View):
    """One code of one format, bit by bit, and what the number it stands for becomes in every format."""

    format = ControlValue[str]("_format", "The name of the format whose bits the buttons are.")

    def __init__(self, typed: str | float = "0.1", format: str = "fp16") -> None:
        """Show ``typed`` (a number, or with 0x or 0b in front the bits of one) in the format of that name."""
        self._row = BitRow()
        self._format = dropdown("format", list(FORMATS), format)
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
        found = {each.format.name: each for each in side_by_side(self._value)}
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
    """Say in words what the picture shows of the format that is taken apart."""
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
