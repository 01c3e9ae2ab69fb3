"""Dataclasses from what a JSON file holds, every field of its own type: a file may be damaged, or edited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def made(kind: type[T], entry: Mapping[str, Any]) -> T:
    """Make a dataclass of an entry; TypeError for an unknown field and for a value of another type."""
    found = kind(**entry)
    for name, hint in get_type_hints(kind).items():
        if not fits(getattr(found, name), hint):
            raise TypeError(f"{name} is {getattr(found, name)!r:.60}")
    return found


def fits(value: Any, hint: Any) -> bool:
    """Say whether a value is of a type: a plain one, a union, a Literal, or a tuple of any length."""
    inner = get_args(hint)
    if get_origin(hint) is Literal:
        return value in inner
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(fits(each, inner[0]) for each in value)
    if inner:  # a union
        return any(fits(value, each) for each in inner)
    if isinstance(value, bool) or hint is bool:  # True is an int, but none that anybody wrote as a number
        return isinstance(value, bool) and hint is bool
    return isinstance(value, (int, float) if hint is float else hint)
