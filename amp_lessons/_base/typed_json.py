"""Values of a type as JSON holds them, and back, by one rule: the type's own fields say what there is.

A *record* is a dataclass or a ``NamedTuple``. A file may be damaged, or edited, so every value that is read
is checked. inf and NaN, for which JSON has no numbers, are written in words, as protobuf does it and Python's
``float`` reads it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache, partial
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Leaves = Mapping[Any, Callable[[Any], Any]]  # by type: how a value of it is read

_IN_WORDS = {math.inf: "Infinity", -math.inf: "-Infinity"}
_NONFINITE = {"Infinity", "-Infinity", "NaN"}


def made(
    kind: type[T], entry: Any, leaves: Leaves | None = None, *, unknown_too: bool = False, whole: bool = False
) -> T:
    """Make a value of the type ``kind`` of what JSON holds; lists become tuples where the type says so.

    ``leaves`` reads types that are none of JSON's. With ``unknown_too`` a record may have fields that are not
    known here, as a later version writes them; with ``whole`` none may be missing, though it had a default.
    Raises TypeError for an unknown or a missing field and for a value of another type.
    """
    return _Reader(leaves or {}, unknown_too, whole).read(kind, entry)


def plain(value: Any) -> Any:
    """Return what JSON holds of a value: of a record a dictionary, of a mapping one whose keys are words.

    None stands for a property that raises ValueError, because there is no such thing in this object.
    """
    kind: Any = type(value)
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        return {key: plain(_told(value, name)) for key, (name, _) in keys_of(kind).items()}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def dumps(value: Any, indent: int | None = None) -> str:
    """Write what is plain as JSON that any parser takes; the same value always gives the same text."""
    return json.dumps(finite(value), indent=indent, allow_nan=False, ensure_ascii=False)


def parsed(text: str, what: str) -> Any:
    """Parse JSON. Raises ValueError for text that is none, and so no ``what``."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(f"this is no {what}: it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"this is no {what}: it is no JSON ({error})") from None


def of_schema(document: Any, what: str, schema: str, newest: int) -> dict[str, Any]:
    """Return a document of a schema, in a version from 1 to the ``newest``. Raises ValueError otherwise."""
    if not isinstance(document, dict) or document.get("schema") != schema:
        raise ValueError(f'this is no {what}: its "schema" would be {schema!r}')
    if document.get("version") not in range(1, newest + 1):
        known = "version 1 is" if newest == 1 else f"versions up to {newest} are"
        raise ValueError(
            f"this {what} is of version {document.get('version')!r}, and only {known} known here: read it "
            "with the amp-lessons that wrote it"
        )
    return document


def finite(value: Any) -> Any:
    """Return what JSON has numbers for: inf and NaN in words, at any depth."""
    if isinstance(value, float) and not math.isfinite(value):
        return _IN_WORDS.get(value, "NaN")
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    return [finite(each) for each in value] if isinstance(value, (list, tuple)) else value


@cache
def keys_of(kind: Hashable) -> dict[str, tuple[str, Any]]:
    """Return the keys under which JSON holds a record: of each, which attribute that is, and its type.

    They are its fields, by their names or the ``key`` in their metadata. A dataclass may put its keys in
    order in ``JSON_KEYS``, and name properties among them, which follow from the fields.
    """
    hints = get_type_hints(kind)
    if not is_dataclass(kind):
        return {name: (name, hint) for name, hint in hints.items()}
    found = {each.metadata.get("key", each.name): (each.name, hints[each.name]) for each in fields(kind)}
    keys = getattr(kind, "JSON_KEYS", found)
    follows = {key: get_type_hints(getattr(kind, key).fget)["return"] for key in keys if key not in found}
    return {key: found[key] if key in found else (key, follows[key] | None) for key in keys}


def _as_it_is(value: Any) -> Any:
    return value


def _told(value: Any, name: str) -> Any:
    try:
        return getattr(value, name)
    except ValueError:
        return None


class _Reader:
    """Makes values of types. What a type asks for is found out once, and called for each of its values."""

    def __init__(self, leaves: Leaves, unknown_too: bool, whole: bool) -> None:
        self._unknown_too, self._whole = unknown_too, whole
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
        if is_dataclass(hint) or hasattr(hint, "_fields"):
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
        keys = keys_of(kind)
        makers = {key: self._of(hint) for key, (_, hint) in keys.items()}
        given = {
            key: name for key, (name, _) in keys.items() if not isinstance(getattr(kind, name, 0), property)
        }

        def record(entry: Any) -> Any:
            found, unknown = {}, {}
            for key, value in _mapping(entry).items():
                make = makers.get(key)
                if make is None:
                    unknown[key] = value
                    continue
                try:
                    found[key] = make(value)
                except TypeError as error:
                    raise TypeError(f"{key}: {error}") from error
            if self._whole and (missing := keys.keys() - found.keys()):
                raise TypeError(f"it lacks {', '.join(sorted(missing))}")
            fields = {name: found.pop(key) for key, name in given.items() if key in found}
            value = kind(**fields) if self._unknown_too else kind(**fields, **unknown)
            for key, follows in found.items():
                if follows is None and _told(value, key) is not None:
                    raise TypeError(f"{key}: it is None")
            return value

        return record


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
