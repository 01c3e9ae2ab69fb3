"""The effect of rounding: on one number, in each format, and on a whole tensor."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational
from typing import Any, Literal

from torch import Tensor

from amp_lessons._base.arguments import require, require_items
from amp_lessons._base.text.describing import describe
from amp_lessons.formats.catalogue import FORMATS
from amp_lessons.formats.floats import Fields, FloatFormat, require_format

Outcome = Literal["exact", "rounded", "underflow", "overflow", "nan"]


@dataclass(frozen=True)
class Representation:
    """One number in one format: what it became, and how far off that is.

    ``outcome`` is "underflow" where a non-zero number became zero, "overflow" where it was beyond the range,
    "nan" where it was NaN to begin with. ``error`` is the new value minus the exact one, ``relative_error``
    its size over that of the exact value; both NaN where either value is, and infinite where only one value
    is.
    """

    format: FloatFormat
    fields: Fields
    outcome: Outcome
    error: float
    relative_error: float


def represent(value: float | Rational, float_format: FloatFormat) -> Representation:
    """Round ``value`` to ``float_format`` and say what became of it; errors come from exact arithmetic."""
    value, float_format = _number(value), require_format(float_format, "float_format")
    fields = float_format.fields(value)
    error, relative_error = _errors(fields.value, value)
    return Representation(float_format, fields, _outcome(value, float_format, fields), error, relative_error)


def side_by_side(
    value: float | Rational, float_formats: Iterable[FloatFormat] = FORMATS.values()
) -> list[Representation]:
    """Round ``value`` to each of ``float_formats``."""
    chosen = require_items(float_formats, FloatFormat, "float_formats", "one of formats.FORMATS.values()")
    return [represent(value, float_format) for float_format in chosen]


def relative_error(approximate: Tensor, exact: Tensor) -> float:
    """Return ‖approximate − exact‖ / ‖exact‖ over all elements of two tensors of one shape, in float64."""
    for name, tensor in (("approximate", approximate), ("exact", exact)):
        require(tensor, Tensor, name, "a tensor")
    if approximate.shape != exact.shape:
        shapes = f"{tuple(approximate.shape)} and {tuple(exact.shape)}"
        raise ValueError(f"approximate and exact are tensors of one shape, not of {shapes}")
    exact = exact.double()
    return float((approximate.double() - exact).norm() / exact.norm())


def _number(value: Any) -> float | Rational:
    if isinstance(value, Rational):
        return value
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):  # the last is a complex tensor's
        raise TypeError(f"value is a number such as 0.1 or Fraction(1, 3), not {describe(value)}") from None


def _outcome(value: float | Rational, float_format: FloatFormat, fields: Fields) -> Outcome:
    if value != value:
        return "nan"
    if float_format.overflows(value):
        return "overflow"
    if fields.value == value:
        return "exact"
    return "underflow" if fields.kind == "zero" else "rounded"


def _errors(rounded: float, value: float | Rational) -> tuple[float, float]:
    if rounded == value:
        return 0.0, 0.0
    if not (math.isfinite(rounded) and (isinstance(value, Rational) or math.isfinite(value))):
        difference = rounded - (value if isinstance(value, float) else 0.0)
        return difference, abs(difference)
    error = Fraction(rounded) - Fraction(value)
    return _as_float(error), _as_float(abs(error / Fraction(value))) if value else math.inf


def _as_float(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:  # 10^400 is a fine fraction, but no float
        return math.inf if exact > 0 else -math.inf
