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

# What is said of a number, by each way of saying it
SAID = {
    power_of_two: {1.0: "2⁰", 65536.0: "2¹⁶", 2.0**-24: "2⁻²⁴", 1000.0: "1000", 0.1: "0.1"},
    fraction: {0.0: "0", 1.0: "100 %", 1e-9: "<0.1 %", 0.001: "0.1 %", 0.1249: "12.5 %", 0.99999: "99.9 %"},
    relative: {
        0.00024414: "0.024 %",
        0.5: "50 %",
        0.999: "100 %",
        2.27: "227 %",
        1.5e-8: "1.5·10⁻⁸",
        4.2e6: "4.2·10⁶",
    },
    short: {
        0.1: "0.1",
        1 / 3: "0.333333333…",
        65504.0: "65504",
        math.inf: "inf",
        50 * 2.0**-24: "2.9802…·10⁻⁶",
        3e38: "3·10³⁸",
    },
    exact: {
        0.0999755859375: "0.0999755859375",
        -3.0: "-3",
        0.0: "0",
        math.inf: "inf",
        math.nan: "nan",
        2.0**-24: "2⁻²⁴ ≈ 5.9605·10⁻⁸",
        -3 * 2.0**-149: "-3 × 2⁻¹⁴⁹ ≈ -4.2039·10⁻⁴⁵",
        2.0**120: "2¹²⁰ ≈ 1.3292·10³⁶",
    },
    memory: {
        0: "0 bytes",
        1023: "1023 bytes",
        1024: "1.00 KiB",
        65536: "64.0 KiB",
        2**20 - 1: "1,024 KiB",
        int(5.25 * 2**20): "5.25 MiB",
        312 * 2**20: "312 MiB",
        int(76.2 * 2**30): "76.2 GiB",
        5000 * 2**40: "5,000 TiB",
    },
    flop_rate: {
        3.1e8: "0.310 GFLOP/s",
        1.68e11: "168 GFLOP/s",
        1.5e12: "1.50 TFLOP/s",
        1.979e15: "1,979 TFLOP/s",
        12345.0: "0.0000123 GFLOP/s",
    },
}


@pytest.mark.parametrize("say", SAID, ids=lambda say: say.__name__)
def test_a_number_is_said_as_people_read_it(say):
    assert {value: say(value) for value in SAID[say]} == SAID[say]


def test_minus_zero_keeps_its_sign():
    assert exact(-0.0) == "-0"


def test_a_part_of_a_whole_is_never_rounded_to_nothing_or_everything():
    parts = (0, 5), (5, 5), (0, 0), (1, 3), (1, 10**6), (10**6 - 1, 10**6)
    said = ["none", "all", "none", "33.3 %", "under 0.1 %", "over 99.9 %"]
    assert [share(*each) for each in parts] == said
    assert [percent(*each) for each in ((1, 4), (235, 100), (1, 0))] == ["25 %", "235 %", "—"]


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_what_is_said_exactly_is_exact(value):
    said = lowered(exact(value)).split(" ≈ ")[0].replace("-2^", "-1 × 2^")
    count, power = re.fullmatch(r"(-?[\d.]+)(?: × 2\^(-?\d+))?", re.sub(r"^2\^", "1 × 2^", said)).groups()
    assert Fraction(count) * Fraction(2) ** int(power or 0) == Fraction(value)


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
