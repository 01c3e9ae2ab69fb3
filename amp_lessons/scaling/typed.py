"""Understanding a loss scale that a learner types."""

from __future__ import annotations

import math

from amp_lessons.formats import FORMATS, parse
from amp_lessons.scaling.checks import check_scale


def parse_scale(text: str) -> float:
    """Return the loss scale that ``text`` names: "65536", "2^16", "1e3".

    Raises ValueError, in words for a learner, for what is no number, or not positive and finite in fp32.
    """
    value = parse(text, FORMATS["fp32"]).value
    try:
        return check_scale(float(value))
    except OverflowError:
        return check_scale(math.inf)
