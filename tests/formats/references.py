"""Who else knows a format: a dtype of ml_dtypes or NumPy, found by what the format is made of.

A format that is added to the catalogue is compared with it; if there is none, with integer arithmetic.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from amp_lessons.formats import FORMATS, FloatFormat, Specials

# The suffixes of their names, https://github.com/jax-ml/ml_dtypes#specialized-floats
_SUFFIXES = {Specials.IEEE: "", Specials.FN: "fn", Specials.FNUZ: "fnuz", Specials.FINITE: "fn"}


def reference_dtype(float_format: FloatFormat) -> type | None:
    """Return the dtype of ml_dtypes or NumPy that stores this format; None where neither has one."""
    fields = f"e{float_format.exponent_bits}m{float_format.mantissa_bits}"
    sign = "" if float_format.signed else "u"
    by_fields = f"float{float_format.bits}_{fields}{_SUFFIXES[float_format.specials]}{sign}"
    by_torch = str(float_format.dtype).removeprefix("torch.")
    found = (getattr(module, name, None) for name in (by_fields, by_torch) for module in (ml_dtypes, np))
    return next((dtype for dtype in found if dtype is not None), None)


KNOWN_ELSEWHERE = [name for name, float_format in FORMATS.items() if reference_dtype(float_format)]
KNOWN_NOWHERE = [name for name in FORMATS if name not in KNOWN_ELSEWHERE]
