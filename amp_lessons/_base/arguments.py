"""What public functions ask of their arguments, each in one place.

An error names the argument, says what it has to be, and what was given instead.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any, TypeVar

import torch

from amp_lessons._base.text.describing import describe

T = TypeVar("T")
_MOST = 2**63  # PyTorch counts in 64 bits


def require(value: T, kinds: type | tuple[type, ...], name: str, right: str) -> T:
    """Return ``value``. Raises TypeError unless it is of these ``kinds``: "op is a name, not int 5"."""
    if not isinstance(value, kinds):
        raise TypeError(f"{name} is {right}, not {describe(value)}")
    return value


def require_callable(value: Any, name: str, right: str) -> None:
    """Refuse what cannot be called. Raises TypeError for it."""
    if not callable(value):
        raise TypeError(f"{name} is {right}, not {describe(value)}")


def require_number(value: Any, name: str, *, above: float | None = None) -> float:
    """Return a number as a float. Raises TypeError for what is none, ValueError unless above ``above``."""
    right = "a number" if above is None else f"a number above {above:g}"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} is {right}, not {describe(value)}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} is {right} that a float can hold, not {describe(value)}") from None
    if above is not None and not number > above:  # so, because NaN is neither
        raise ValueError(f"{name} is {right}, not {describe(value)}")
    return number


def require_whole(value: Any, name: str, *, least: int = 1) -> int:
    """Return a whole number. Raises TypeError for what is none, ValueError for less than ``least``."""
    right = f"a whole number of at least {least}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} is {right}, not {describe(value)}")
    count = operator.index(value)
    if not least <= count < _MOST:
        raise ValueError(f"{name} is {right}{' and below 2^63' * (count >= _MOST)}, not {describe(value)}")
    return count


def require_items(
    values: Iterable[T], kinds: type | tuple[type, ...], name: str, right: str
) -> tuple[T, ...]:
    """Return a collection as a tuple. Raises TypeError for what is none, or holds what is not ``right``."""
    if isinstance(values, (str, bytes, torch.Tensor)) or not isinstance(values, Iterable):
        raise TypeError(f"{name} is a list or another collection, each item {right}, not {describe(values)}")
    return tuple(require(value, kinds, f"each item of {name}", right) for value in values)


def require_device(value: Any, name: str) -> torch.device:
    """Return a device that PyTorch knows; it need not be there. Raises TypeError or ValueError for others."""
    require(value, (str, torch.device, int), name, 'a device such as "cpu" or torch.device("cuda:0")')
    try:
        return torch.device(value)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"unknown {name} {value!r:.60}: {str(error).splitlines()[0]}") from error
