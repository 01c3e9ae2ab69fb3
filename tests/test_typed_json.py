"""Values of a type as JSON holds them, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import pytest

from amp_lessons._base.typed_json import dumps, made, plain


class Step(NamedTuple):
    number: int
    scale: float


@dataclass(frozen=True)
class Part:
    name: str
    kind: Literal["a", "b"] = "a"
    path: tuple[Step, ...] = ()
    counts: Mapping[int, int] = field(default_factory=dict)
    limit: float | None = None
    value: int | str = 0
    inner: Part | None = None
    kept: complex = 0j


@dataclass(frozen=True)
class Told:
    """A record with keys of its own: one for a field of another name, two that follow from the others."""

    JSON_KEYS: ClassVar = ("kind", "total", "mean", "parts")

    parts: tuple[Part, ...] = ()
    kind_name: str = field(default="a", metadata={"key": "kind"})

    @property
    def total(self) -> int:
        return len(self.parts)

    @property
    def mean(self) -> float:
        raise ValueError("there is none")


INNER = Part("in", "b", limit=math.inf)
WHOLE = Part("out", path=(Step(1, 2.0), Step(3, 0.5)), counts={-3: 4}, value="x", inner=INNER, kept=1j)
LEAVES: dict[Any, Any] = {complex: complex}


def test_a_value_comes_back_through_json_at_any_depth():
    there = plain(WHOLE)
    there["kept"], there["inner"]["kept"] = "1j", "0j"
    assert there["counts"] == {"-3": 4}
    assert there["path"] == [{"number": 1, "scale": 2.0}, {"number": 3, "scale": 0.5}]
    assert made(Part, json.loads(dumps(there)), LEAVES) == WHOLE


def test_a_record_says_under_which_keys_it_is_written_and_read():
    entry = plain(Told(kind_name="b"))
    assert list(entry.items()) == [("kind", "b"), ("total", 0), ("mean", None), ("parts", [])]
    assert made(Told, entry | {"total": 7}) == Told(kind_name="b"), "it follows from the others"
    for wrong in ("x", None):
        with pytest.raises(TypeError, match=f"total: it is {wrong!r}"):
            made(Told, entry | {"total": wrong})


def test_of_a_whole_record_nothing_may_be_missing():
    entry = plain(Told())
    assert made(Told, entry, whole=True) == Told()
    for key in entry:
        rest = {each: value for each, value in entry.items() if each != key}
        assert isinstance(made(Told, rest), Told)
        with pytest.raises(TypeError, match=f"it lacks {key}"):
            made(Told, rest, whole=True)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({}, "name"),
        ({"name": 1}, "name: it is 1"),
        ({"name": "x", "kind": "c"}, "kind: it is 'c'"),
        ({"name": "x", "limit": "much"}, "limit: it is 'much'"),
        ({"name": "x", "limit": True}, "limit: it is True"),
        ({"name": "x", "value": None}, "value: it is None"),
        ({"name": "x", "path": "ab"}, "path: 'ab' is no list"),
        ({"name": "x", "path": [{"number": 1.5, "scale": 1}]}, "path: number: it is 1.5"),
        ({"name": "x", "inner": {"name": 2}}, "inner: name: it is 2"),
        ({"name": "x", "counts": []}, "counts: .* has no fields"),
        ({"name": "x", "mood": 1}, "mood"),
    ],
)
def test_what_is_of_another_type_is_named(entry, words):
    with pytest.raises(TypeError, match=words):
        made(Part, entry)


def test_what_a_later_version_adds_can_be_left_out():
    assert made(Part, {"name": "x", "mood": 1}, unknown_too=True) == Part("x")


def test_a_tuple_of_several_types_has_just_so_many():
    assert made(tuple[str, int], ["a", 1]) == ("a", 1)
    with pytest.raises(TypeError, match="has not 2 values"):
        made(tuple[str, int], ["a"])
