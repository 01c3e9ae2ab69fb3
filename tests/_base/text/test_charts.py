"""Curves as text: every number is somewhere, at its height."""

from __future__ import annotations

import math

from amp_lessons._base.text.charts import charted


def test_a_straight_line_falls_from_corner_to_corner():
    lines = charted({"loss": [float(10 - i) for i in range(10)]}, columns=10, rows=10)
    assert [line.index("#") for line in lines[:10]] == [lines[0].index("#") + i for i in range(10)]
    assert lines[0].startswith("10 |")
    assert lines[9].startswith(" 1 |")
    assert lines[10].strip() == "# loss; step 1 to 10"


def test_a_wobble_within_a_column_is_as_high_as_it_was():
    lines = charted({"loss": [0.0, 4.0] * 20}, columns=20, rows=5)
    assert [line.count("#") for line in lines[:5]] == [20] * 5
    lines = charted({"loss": [0.0] * 20 + [4.0] + [0.0] * 19}, columns=20, rows=5)
    assert [line.count("#") for line in lines[:5]] == [1, 1, 1, 1, 20]


def test_what_is_beside_it_is_dotted_and_what_is_no_number_is_told():
    lines = charted({"loss": [1.0, math.nan, math.nan], "in fp32": [2.0, 2.0, 2.0]}, columns=3, rows=3)
    assert lines[0].endswith("|...")
    assert lines[2].endswith("|#")
    assert lines[3:] == ["   # loss, . in fp32; step 1 to 3", "   loss: nan from step 2 on"]


def test_a_constant_and_nothing_finite_are_drawn_too():
    assert charted({"loss": [3.0, 3.0]}, columns=2, rows=2)[1] == "3 |##"
    assert not any("#" in line for line in charted({"loss": [math.inf]}, columns=2, rows=2)[:2])
