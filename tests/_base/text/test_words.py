import math
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_lessons._base.text.words import (
    exact,
    flop_rate,
    fraction,
    memory,
    percent,
    power_of_two,
    relative,
    share,
    short,
    superscripts,
)
from tests.raised import lowered


@pytest.mark.parametrize(
    ("value", "words"), [(1.0, "2⁰"), (65536.0, "2¹⁶"), (2.0**-24, "2⁻²⁴"), (1000.0, "1000"), (0.1, "0.1")]
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
        (2.0**-24, "2⁻²⁴ ≈ 5.9605·10⁻⁸"),
        (-3 * 2.0**-149, "-3 × 2⁻¹⁴⁹ ≈ -4.2039·10⁻⁴⁵"),
        (2.0**120, "2¹²⁰ ≈ 1.3292·10³⁶"),
    ],
)
def test_a_number_is_said_exactly(value, words):
    assert exact(value) == words


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_what_is_said_exactly_is_exact(value):
    said = lowered(exact(value)).split(" ≈ ")[0].replace("-2^", "-1 × 2^")
    count, power = re.fullmatch(r"(-?[\d.]+)(?: × 2\^(-?\d+))?", re.sub(r"^2\^", "1 × 2^", said)).groups()
    assert Fraction(count) * Fraction(2) ** int(power or 0) == Fraction(value)


@pytest.mark.parametrize(
    ("value", "words"), [(0.1, "0.1"), (1 / 3, "0.333333333…"), (65504.0, "65504"), (math.inf, "inf")]
)
def test_a_number_cut_short_shows_it(value, words):
    assert short(value) == words


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (0.00024414, "0.024 %"),
        (0.5, "50 %"),
        (0.999, "100 %"),
        (2.27, "227 %"),
        (1.5e-8, "1.5·10⁻⁸"),
        (4.2e6, "4.2·10⁶"),
    ],
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


@pytest.mark.parametrize(
    ("text", "raised"),
    [
        ("2^-14 and 2**16, 2^(-3).", "2⁻¹⁴ and 2¹⁶, 2⁻³."),
        ("1e-08, 6.1e-05, -1e9, 3.4e+38", "10⁻⁸, 6.1·10⁻⁵, -10⁹, 3.4·10³⁸"),
        ("0.998^768 times", "0.998⁷⁶⁸ times"),
        ("2^k up to 2^(k+1), e4m3, 0x1e5, lr=1e-3", "2^k up to 2^(k+1), e4m3, 0x1e5, lr=1e-3"),
        ("`2^-14`, x.fill_(1e-3), $2^{3}$", "`2^-14`, x.fill_(1e-3), $2^{3}$"),
        ("https://a.org/2^5/1e5 [a](b/1e5) <b id=1e5>", "https://a.org/2^5/1e5 [a](b/1e5) <b id=1e5>"),
        ("2⁻¹⁴ is 6.1·10⁻⁵", "2⁻¹⁴ is 6.1·10⁻⁵"),
    ],
)
def test_exponents_are_raised_in_prose_and_nowhere_else(text, raised):
    assert superscripts(text) == raised
    assert superscripts(raised) == raised


def test_a_number_with_a_power_of_ten_is_short():
    assert short(50 * 2.0**-24) == "2.9802…·10⁻⁶"
    assert short(3e38) == "3·10³⁸"
