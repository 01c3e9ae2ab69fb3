"""One rule for a number in another type than was asked for: the right number is accepted, with a note."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any

import numpy as np
from torch import Tensor

from amp_lessons.audit.findings import Finding, note


def number_in(value: Any) -> int | float | None:
    """Return the Python number that ``value`` is, or holds as its only element; None for what is none.

    A bool is no number.
    """
    value = _only_element(value)
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return int(value) if isinstance(value, Integral) else _as_float(value)


def float_in(value: Any) -> float | None:
    """Return the same as a float: inf where it is too large for one."""
    number = number_in(value)
    return None if number is None else _as_float(number)


def _as_float(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:  # integers and fractions know no largest number
        return math.inf if number > 0 else -math.inf


def _only_element(value: Any) -> Any:
    if isinstance(value, Tensor | np.ndarray | np.generic):
        with contextlib.suppress(Exception):  # more than one element, or none in memory
            return value.item()
    return value


def remark_on_type(value: Any, asked: type[int] | type[float]) -> Iterator[Finding]:
    """Remark on the right number in another type than was ``asked`` for; a subclass of it will do."""
    article = "an int" if asked is int else "a float"
    if isinstance(value, Tensor):
        message = f"{article} was asked for, this is a tensor"
        yield note("returned_a_tensor", message, "the tensor's .item() is the Python number in it")
    elif not isinstance(value, asked):
        code = "not_an_int" if asked is int else "not_a_float"
        message = f"{article} was asked for, not {type(value).__name__}"
        yield note(
            code, message, "use // for whole numbers, or int()" if asked is int else "float() makes one"
        )
