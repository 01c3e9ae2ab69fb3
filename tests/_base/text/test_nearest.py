"""Names that are offered for a wrong one."""

from __future__ import annotations

import pytest

from amp_lessons._base.text.nearest import did_you_mean

FRUITS = ["apple", "pear", "pineapple", "plum", "grape", "grapefruit"]


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("aple", "apple"),
        ("pears", "pear"),
        ("plumm", "plum"),
        ("fruit", "grapefruit"),  # hardly spelt alike, but part of it
    ],
)
def test_what_is_spelt_alike_is_offered_first(wrong: str, meant: str) -> None:
    assert did_you_mean(wrong, FRUITS).startswith(f"did you mean {meant}")


def test_never_more_than_three_and_none_twice() -> None:
    found = did_you_mean("grape", [f"grape{number}" for number in range(9)])
    assert found.count(" or ") == 2
    offered = found.removeprefix("did you mean ").removesuffix("?").split(" or ")
    assert len(set(offered)) == 3


@pytest.mark.parametrize("wrong", ["", "xyz", 7, None])
def test_where_nothing_is_near_a_short_list_is_told_whole_and_a_long_one_not(wrong: object) -> None:
    assert did_you_mean(wrong, FRUITS) == "there are: apple, pear, pineapple, plum, grape, grapefruit"
    assert did_you_mean(wrong, [f"grape{number}" for number in range(100)]) == "none is spelt like it"
