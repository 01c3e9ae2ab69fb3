import math
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_lessons.text.words import (
    exact,
    flop_rate,
    fraction,
    memory,
    percent,
    power_of_two,
    relative,
    share,
    short,
)


@pytest.mark.parametrize(
    ("value", "words"), [(1.0, "2^0"), (65536.0, "2^16"), (2.0**-24, "2^-24"), (1000.0, "1000"), (0.1, "0.1")]
)
def test_a_scale_is_a_power_of_two_where_it_is_one(value, words):
    assert power_of_two(value) == words


@pytest.mark.parametrize(
    ("count", "total", "words"),
    [
        (0, 5, "none"),
        (5, 5, "all"),
        (0, 0, "none"),
        (1, 3, "33.3 %"),
        (1, 10**6, "under 0.1 %"),
        (10**6 - 1, 10**6, "over 99.9 %"),
    ],
)
def test_a_share_is_never_rounded_to_nothing_or_everything(count, total, words):
    assert share(count, total) == words


@pytest.mark.parametrize(
    ("part", "words"),
    [(0.0, "0"), (1.0, "100 %"), (1e-9, "<0.1 %"), (0.001, "0.1 %"), (0.1249, "12.5 %"), (0.99999, "99.9 %")],
)
def test_a_fraction_is_never_rounded_to_nothing_or_everything(part, words):
    assert fraction(part) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0999755859375, "0.0999755859375"),
        (-3.0, "-3"),
        (0.0, "0"),
        (-0.0, "-0"),
        (math.inf, "inf"),
        (math.nan, "nan"),
        (2.0**-24, "2^-24 ≈ 5.9605e-08"),
        (-3 * 2.0**-149, "-3 × 2^-149 ≈ -4.2039e-45"),
        (2.0**120, "2^120 ≈ 1.3292e+36"),
    ],
)
def test_a_number_is_said_exactly(value, words):
    assert exact(value) == words


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_what_is_said_exactly_is_exact(value):
    said = exact(value).split(" ≈ ")[0].replace("-2^", "-1 × 2^")
    count, power = re.fullmatch(r"(-?[\d.]+)(?: × 2\^(-?\d+))?", re.sub(r"^2\^", "1 × 2^", said)).groups()
    assert Fraction(count) * Fraction(2) ** int(power or 0) == Fraction(value)


@pytest.mark.parametrize(
    ("value", "words"), [(0.1, "0.1"), (1 / 3, "0.333333333…"), (65504.0, "65504"), (math.inf, "inf")]
)
def test_a_number_cut_short_shows_it(value, words):
    assert short(value) == words


@pytest.mark.parametrize(
    ("error", "words"),
    [(0.00024414, "0.024 %"), (0.5, "50 %"), (2.27, "227 %"), (1.5e-8, "1.5e-08"), (4.2e6, "4.2e+06")],
)
def test_a_relative_error_is_a_percentage_where_that_can_be_read(error, words):
    assert relative(error) == words


@pytest.mark.parametrize(
    ("nbytes", "said"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.00 KiB"),
        (65536, "64.0 KiB"),
        (2**20 - 1, "1,024 KiB"),
        (5.25 * 2**20, "5.25 MiB"),
        (312 * 2**20, "312 MiB"),
        (76.2 * 2**30, "76.2 GiB"),
        (5000 * 2**40, "5,000 TiB"),
    ],
)
def test_memory_is_said_in_three_digits(nbytes, said):
    assert memory(int(nbytes)) == said


@pytest.mark.parametrize(("part", "whole", "said"), [(1, 4, "25 %"), (235, 100, "235 %"), (1, 0, "—")])
def test_a_part_is_said_in_percent(part, whole, said):
    assert percent(part, whole) == said


@pytest.mark.parametrize(
    ("flop_per_s", "said"),
    [
        (3.1e8, "0.310 GFLOP/s"),
        (1.68e11, "168 GFLOP/s"),
        (1.5e12, "1.50 TFLOP/s"),
        (1.979e15, "1,979 TFLOP/s"),
        (12345.0, "0.0000123 GFLOP/s"),
    ],
)
def test_a_rate_is_said_in_three_digits(flop_per_s, said):
    assert flop_rate(flop_per_s) == said
