"""The bits of a code as a row of buttons."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anywidget
import matplotlib as mpl
import traitlets

from amp_lessons.formats import FloatFormat
from amp_lessons.views.base.style import FIELD_COLOURS, tint


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
            self.label = f"Bits of {float_format.name}: arrow keys move, space flips"
            self.fields = list(_fields(float_format))
            self.bits = float_format.pattern(code).replace(" ", "")


def _fields(float_format: FloatFormat) -> Iterator[dict[str, object]]:
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
