"""Values of a type as JSON holds them, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, TypedDict

import pytest

from amp_lessons._base.typed_json import finite, made, written


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

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def mean(self) -> float:
        raise ValueError("there is none")


class Entry(TypedDict):
    name: str
    total: int
    mean: float | None
    counts: dict[str, int]
    inner: Entry | None


INNER = Part("in", "b", limit=math.inf)
WHOLE = Part("out", path=(Step(1, 2.0), Step(3, 0.5)), counts={-3: 4}, value="x", inner=INNER, kept=1j)
LEAVES: dict[Any, Any] = {complex: complex}


def test_a_value_comes_back_through_json_at_any_depth():
    plain = asdict(WHOLE) | {"kept": "1j", "path": [each._asdict() for each in WHOLE.path]}
    plain["inner"]["kept"] = "0j"
    text = json.dumps(finite(plain), allow_nan=False)
    assert made(Part, json.loads(text), LEAVES) == WHOLE


def test_a_typed_dictionary_says_which_attributes_are_written():
    entry = written(Entry, WHOLE)
    inner = {"name": "in", "total": 0, "mean": None, "counts": {}, "inner": None}
    assert entry == {"name": "out", "total": 4, "mean": None, "counts": {"-3": 4}, "inner": inner}
    assert made(Entry, entry) == entry
    assert written(list[str], {"a": "b", "c": "d"}) == ["b", "d"]


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
    entry = {"name": "x", "total": 0, "mean": "NaN", "counts": {}, "inner": None, "mood": 1}
    found = made(Entry, entry, unknown_too=True)
    assert found["mood"] == 1
    assert math.isnan(found["mean"])
    for wrong in ({"name": "x"}, entry):
        with pytest.raises(TypeError, match=r"it lacks counts|mood, which is not known"):
            made(Entry, wrong)


def test_a_tuple_of_several_types_has_just_so_many():
    assert made(tuple[str, int], ["a", 1]) == ("a", 1)
    with pytest.raises(TypeError, match="has not 2 values"):
        made(tuple[str, int], ["a"])
