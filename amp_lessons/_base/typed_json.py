"""Values of a type as JSON holds them, and back, by one rule: the type's own fields say what there is.

A *record* is a dataclass, a ``NamedTuple`` or a ``TypedDict``. A file may be damaged, or edited, so every
value that is read is checked. inf and NaN, for which JSON has no numbers, are written in words, as protobuf
does it and Python's ``float`` reads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache, partial
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

T = TypeVar("T")
Leaves = Mapping[Any, Callable[[Any], Any]]  # by type: how a value of it is read, or written

_IN_WORDS = {math.inf: "Infinity", -math.inf: "-Infinity"}
_NONFINITE = {"Infinity", "-Infinity", "NaN"}


def made(kind: type[T], entry: Any, leaves: Leaves | None = None, *, unknown_too: bool = False) -> T:
    """Make a value of the type ``kind`` of what JSON holds; lists become tuples where the type says so.

    ``leaves`` reads types that are none of JSON's. With ``unknown_too`` a record may have fields that are not
    known here, as a later version writes them. Raises TypeError for an unknown or a missing field and for a
    value of another type.
    """
    return _Reader(leaves or {}, unknown_too).read(kind, entry)


def written(kind: Any, value: Any, leaves: Leaves | None = None) -> Any:
    """Return ``value`` as a ``TypedDict`` says it: of each object the attributes that its entry has keys for.

    A mapping becomes a list of its values where a list is asked for. None stands for an attribute that raises
    ValueError, because there is no such thing in this object.
    """
    if isinstance(value, (str, int, float)):
        return value
    value = (leaves or {}).get(type(value), _as_it_is)(value)
    inner = get_args(kind)
    if value is None or not (inner or is_typeddict(kind)):
        return value
    if is_typeddict(kind):
        return {name: written(hint, _told(value, name), leaves) for name, hint in hints_of(kind).items()}
    if get_origin(kind) is dict:
        return {str(key): written(inner[1], each, leaves) for key, each in value.items()}
    if get_origin(kind) is list:
        several = value.values() if isinstance(value, Mapping) else value
        return [written(inner[0], each, leaves) for each in several]
    return written(next(each for each in inner if each is not type(None)), value, leaves)


def finite(value: Any) -> Any:
    """Return what JSON has numbers for: inf and NaN in words, at any depth."""
    if isinstance(value, float) and not math.isfinite(value):
        return _IN_WORDS.get(value, "NaN")
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    return [finite(each) for each in value] if isinstance(value, (list, tuple)) else value


@cache
def hints_of(kind: Any) -> dict[str, Any]:
    """Return the fields of a record with their types."""
    return get_type_hints(kind)


def _as_it_is(value: Any) -> Any:
    return value


def _told(value: Any, name: str) -> Any:
    try:
        return getattr(value, name)
    except ValueError:
        return None


class _Reader:
    """Makes values of types. What a type asks for is found out once, and called for each of its values."""

    def __init__(self, leaves: Leaves, unknown_too: bool) -> None:
        self._unknown_too = unknown_too
        self._known: dict[Any, Callable[[Any], Any]] = dict(leaves)

    def read(self, hint: Any, entry: Any) -> Any:
        """Make one value. Raises TypeError."""
        return self._of(hint)(entry)

    def _of(self, hint: Any) -> Callable[[Any], Any]:
        """Return what makes values of a type."""
        if hint not in self._known:
            self._known[hint] = lambda entry: self._known[hint](entry)  # a type may consist of itself
            self._known[hint] = self._found(hint)
        return self._known[hint]

    def _found(self, hint: Any) -> Callable[[Any], Any]:
        origin, inner = get_origin(hint), get_args(hint)
        if origin in (Union, UnionType):
            return self._one_of(inner)
        if origin in (tuple, list):
            return self._several(origin, inner)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return self._by_key(*inner)
        if is_typeddict(hint) or is_dataclass(hint) or hasattr(hint, "_fields"):
            return self._record(hint)
        return partial(_plain, hint)

    def _one_of(self, kinds: tuple[Any, ...]) -> Callable[[Any], Any]:
        *others, last = [self._of(kind) for kind in kinds if kind is not type(None)]
        may_be_none = type(None) in kinds

        def one(entry: Any) -> Any:
            if entry is None and may_be_none:
                return None
            for of_kind in others:
                with suppress(TypeError):
                    return of_kind(entry)
            return last(entry)

        return one

    def _several(self, origin: Any, kinds: tuple[Any, ...]) -> Callable[[Any], Any]:
        any_number = origin is list or kinds[-1] is Ellipsis
        makers = [self._of(kind) for kind in kinds if kind is not Ellipsis]

        def several(entry: Any) -> Any:
            if not isinstance(entry, (list, tuple)):
                raise TypeError(f"{entry!r:.60} is no list")
            if any_number:
                return origin(map(makers[0], entry))
            if len(entry) != len(makers):
                raise TypeError(f"{entry!r:.60} has not {len(makers)} values")
            return tuple(make(each) for make, each in zip(makers, entry, strict=True))

        return several

    def _by_key(self, key: Any, value: Any) -> Callable[[Any], Any]:
        make, key_of = self._of(value), int if key is int else _as_it_is  # the keys of JSON are words
        return lambda entry: {key_of(name): make(each) for name, each in _mapping(entry).items()}

    def _record(self, kind: Any) -> Callable[[Any], Any]:
        makers = {name: self._of(hint) for name, hint in hints_of(kind).items()}
        finish = self._finished_entry if is_typeddict(kind) else self._finished_object

        def record(entry: Any) -> Any:
            found, unknown = {}, {}
            for name, value in _mapping(entry).items():
                make = makers.get(name)
                if make is None:
                    unknown[name] = value
                    continue
                try:
                    found[name] = make(value)
                except TypeError as error:
                    raise TypeError(f"{name}: {error}") from error
            return finish(kind, found, unknown)

        return record

    def _finished_object(self, kind: Any, found: dict[str, Any], unknown: dict[str, Any]) -> Any:
        return kind(**found) if self._unknown_too else kind(**found, **unknown)

    def _finished_entry(self, kind: Any, found: dict[str, Any], unknown: dict[str, Any]) -> Any:
        if missing := kind.__required_keys__ - found.keys():
            raise TypeError(f"it lacks {', '.join(sorted(missing))}")
        if unknown and not self._unknown_too:
            raise TypeError(f"it has {', '.join(sorted(unknown))}, which is not known")
        return found | unknown


def _mapping(entry: Any) -> Mapping[str, Any]:
    if not isinstance(entry, Mapping):
        raise TypeError(f"{entry!r:.60} has no fields")
    return entry


def _plain(hint: Any, entry: Any) -> Any:
    """Return a word, a number, a truth or nothing if it is what ``hint`` says."""
    if type(entry) is hint:
        return entry
    if hint is float and isinstance(entry, str) and entry in _NONFINITE:
        return float(entry)
    if not _fits(hint, entry):
        raise TypeError(f"it is {entry!r:.60}")
    return entry


def _fits(hint: Any, value: Any) -> bool:
    if hint is Any:
        return True
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if isinstance(value, bool) or hint is bool:  # True is an int, but none that anybody wrote as a number
        return isinstance(value, bool) and hint is bool
    return isinstance(value, (int, float) if hint is float else hint)
