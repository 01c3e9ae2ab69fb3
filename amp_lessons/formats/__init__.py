"""Number formats: bits to values and back, rounding, ranges, and what rounding does to sums and products.

- ``floats``: ``FloatFormat``, which derives everything from how many bits a field has; ``catalogue``:
  ``FORMATS``.
- ``rounding``: the arithmetic that rounds whole tensors on any device.
- ``typed``: what a learner types, understood; ``compare``: what rounding did to a number.
- ``sums`` and ``products``: additions and matrix products in which every step is rounded.
- ``blocks``: formats whose elements share a scale (MX, NVFP4, one scale per tensor).
"""

from amp_lessons.formats.blocks import (
    BLOCK_FORMATS,
    Scaled,
    ScaledFormat,
    ScalingError,
    per_tensor,
    scaling_error,
)
from amp_lessons.formats.catalogue import FORMATS
from amp_lessons.formats.compare import Representation, relative_error, represent, side_by_side
from amp_lessons.formats.floats import Fields, FloatFormat, Specials
from amp_lessons.formats.products import product, product_errors, tf32_product
from amp_lessons.formats.sums import SUM_METHODS, repeated_update, running_sum
from amp_lessons.formats.typed import Typed, parse, parse_whole

__all__ = [
    "BLOCK_FORMATS",
    "FORMATS",
    "SUM_METHODS",
    "Fields",
    "FloatFormat",
    "Representation",
    "Scaled",
    "ScaledFormat",
    "ScalingError",
    "Specials",
    "Typed",
    "parse",
    "parse_whole",
    "per_tensor",
    "product",
    "product_errors",
    "relative_error",
    "repeated_update",
    "represent",
    "running_sum",
    "scaling_error",
    "side_by_side",
    "tf32_product",
]
