"""What a learner may type, and the answers in words."""

import math
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_lessons.formats import FORMATS, parse, parse_whole
from tests.real_clock import real_clock

FP16 = FORMATS["fp16"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", Fraction(1, 10)),
        (" +5. ", 5),
        (".5", Fraction(1, 2)),
        ("-3", -3),
        ("− 3", -3),
        ("1e-8", Fraction(1, 10**8)),
        ("1E400", 10**400),
        ("65,520", 65520),
        ("1,000,000.5", Fraction(2000001, 2)),
        ("2^-24", Fraction(1, 2**24)),
        ("2⁻²⁴", Fraction(1, 2**24)),
        ("1.5·10⁻³", Fraction(3, 2000)),
        ("2**-25", Fraction(1, 2**25)),
        ("-2 ^ -24", Fraction(-1, 2**24)),
        ("2^(-3)", Fraction(1, 8)),
        ("1.5 × 2^-3", Fraction(3, 16)),
        ("10^6", 10**6),
        ("1/3", Fraction(1, 3)),
        ("inf", math.inf),
        ("−∞", -math.inf),
        ("0^0", 1),
    ],
)
def test_numbers_are_understood_exactly(text, value):
    typed = parse(text, FP16)
    assert typed.value == value
    assert typed.code == FP16.encode(value)
    assert (typed.text, typed.is_pattern) == (text, False)


@pytest.mark.parametrize("text", ["-0", "-0.0", "−0", "-0e5"])
def test_minus_zero_keeps_its_sign(text):
    typed = parse(text, FP16)
    assert (typed.value, math.copysign(1, typed.value), typed.code) == (0, -1, 0x8000)
    assert parse("0", FP16).code == 0


def test_nan_is_understood():
    assert math.isnan(parse("nan", FP16).value)
    assert FP16.split(parse("NaN", FP16).code).kind == "nan"


@pytest.mark.parametrize(
    ("text", "name", "code"),
    [
        ("0x7bff", "fp16", 0x7BFF),
        ("0x7c01", "fp16", 0x7C01),
        ("0b0 11110 1111111111", "fp16", 0x7BFF),
        ("0b0_111", "fp4_e2m1", 7),
        (" 0  11110 1111111111", "fp16", 0x7BFF),
        ("1 1000 001", "fp8_e4m3", 0xC1),
        ("0x7ffff", "tf32", 0x7FFFF),
    ],
)
def test_patterns_are_taken_bit_for_bit(text, name, code):
    typed = parse(text, FORMATS[name])
    assert (typed.code, typed.is_pattern) == (code, True)
    value = FORMATS[name].decode(code)
    assert typed.value == value or math.isnan(value)


@pytest.mark.parametrize("name", [name for name in FORMATS if " " in FORMATS[name].pattern(0)])
def test_what_a_format_writes_it_also_reads(name):
    for code in (0, 1, FORMATS[name].max_code, 2 ** FORMATS[name].bits - 1):
        assert parse(FORMATS[name].pattern(code), FORMATS[name]).code == code


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Nothing typed yet"),
        ("abc", "“abc” is not a number"),
        ("1 2", "is not a number"),
        ("--5", "is not a number"),
        ("1e", "is not a number"),
        ("٣", "is not a number"),
        ("-0x1", "is not a number"),
        ("0,1", "decimal point"),
        ("1,00", "decimal point"),
        ("1,000,00", "decimal point"),
        ("1/0", "divides by zero"),
        ("0^-1", "divides by zero"),
        ("0x", "no bit pattern"),
        ("0 1111 000", "Bits of fp16 in their fields look like this: 0 00000 0000000000."),
        ("0xzz", "no bit pattern: after 0x come the digits 0-9 and a-f"),
        ("0b12", "no bit pattern: after 0b come the digits 0 and 1"),
        ("0x17bff", "needs 17 bits, but fp16 has 16: its last pattern is 0xffff"),
        ("1e999999999999", "too far out"),
        ("9^-99999999999", "too far out"),
        ("9e9999^99", "too far out"),
        ("1" * 401, "401 characters"),
    ],
)
def test_the_rest_is_answered_in_words(text, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        parse(text, FP16)


@given(st.text(max_size=500) | st.text("0123456789.,+-*/^ex() _−×", max_size=30))
def test_no_text_gives_anything_but_a_result_or_words(text):
    try:
        answer = parse(text, FP16)
    except ValueError as error:
        answer = str(error)
    if isinstance(answer, str):
        assert answer.endswith(".")
        assert len(answer) < 700
        assert "sys.set_int" not in answer
    else:
        assert 0 <= answer.code <= 0xFFFF


@real_clock
@pytest.mark.parametrize("text", ["1e16000", "9" * 190 + "^99", "9" * 400, "1e-16000", "9e99^-150"])
def test_the_largest_texts_are_answered_at_once(text):
    started = time.perf_counter()
    assert parse(text, FP16).code in (0x7C00, 0)
    assert time.perf_counter() - started < 1


@pytest.mark.parametrize(
    ("typed", "number"),
    [("8", 8), (8, 8), (" 1,024 ", 1024), ("2^10", 1024), ("1e3", 1000), ("4096", 4096), ("1", 1)],
)
def test_a_whole_number_is_understood(typed, number):
    assert parse_whole(typed, "The batch", 4096) == number


@pytest.mark.parametrize(
    "typed", ["0", "-1", "abc", "1e9", "4097", "2.5", "", " ", "nan", "inf", "0x10000", "1e400", "8 8", "½"]
)
def test_anything_else_is_answered_with_what_would_do(typed):
    with pytest.raises(ValueError, match="The batch is a whole number from 1 to 4,096, which “") as caught:
        parse_whole(typed, "The batch", 4096)
    assert typed.strip() in str(caught.value)
