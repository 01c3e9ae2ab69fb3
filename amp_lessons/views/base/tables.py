"""What follows from the bits of each number format, as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from amp_lessons.formats import FORMATS, FloatFormat
from amp_lessons.text.tables import Table
from amp_lessons.text.words import number, power_of_two


def format_table(names: Sequence[str] = tuple(FORMATS)) -> Table:
    """Return what follows from the bit counts of each format: range, precision and number of values."""
    return Table.of(
        [_row(FORMATS[name]) for name in names],
        "Computed from the bits, bias and special patterns of each format. "
        "s/e/m: bits of sign, exponent, mantissa.",
    )


def _row(each: FloatFormat) -> dict[str, object]:
    smallest = each.smallest_subnormal or each.smallest_normal  # a scale alone, as e8m0 is, has no subnormals
    return {
        "format": each.name,
        "bits": each.bits,
        "s/e/m": f"{int(each.signed)}/{each.exponent_bits}/{each.mantissa_bits}",
        "largest": number(each.max, 5),
        "smallest normal": power_of_two(each.smallest_normal),
        "smallest": power_of_two(smallest),
        "epsilon": power_of_two(each.epsilon),
        "digits": f"{each.decimal_digits:.2f}",
        "binades": math.frexp(each.max)[1] - math.frexp(each.smallest_normal)[1] + 1,
        "finite values": f"{each.finite_value_count:,}",
        "inf, nan": "both" if each.has_infinity else "nan" if each.has_nan else "none",
    }
