"""Whole numbers as typed."""

from __future__ import annotations

import pytest

from amp_lessons.measure.typed import parse_whole


@pytest.mark.parametrize(
    ("typed", "number"),
    [("8", 8), (8, 8), (" 1,024 ", 1024), ("2^10", 1024), ("1e3", 1000), ("4096", 4096), ("1", 1)],
)
def test_a_whole_number_is_understood(typed: str | int, number: int) -> None:
    assert parse_whole(typed, "The batch", 4096) == number


@pytest.mark.parametrize(
    "typed", ["0", "-1", "abc", "1e9", "4097", "2.5", "", " ", "nan", "inf", "0x10000", "1e400", "8 8", "½"]
)
def test_anything_else_is_answered_with_what_would_do(typed: str) -> None:
    with pytest.raises(ValueError, match="The batch is a whole number from 1 to 4,096, which “") as caught:
        parse_whole(typed, "The batch", 4096)
    assert typed.strip() in str(caught.value)
