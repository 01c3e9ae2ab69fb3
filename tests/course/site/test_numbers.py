"""What the page computes of numbers, held to ``formats`` code by code, and to PyTorch's casts."""

from __future__ import annotations

import base64
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from amp_lessons._base.text import words
from amp_lessons.course.site.build import ASSETS
from amp_lessons.course.site.float_page import float_script
from amp_lessons.formats import FORMATS, parse, represent
from tests.formats import test_typed_numbers as typed_numbers

pytestmark = pytest.mark.thorough

SIXTEEN = ("fp16", "bf16")
SMALL = [name for name, each in FORMATS.items() if each.bits <= 8]

# Arrays travel as the bytes that they are: nothing of a NaN or of a minus zero is lost on the way.
_HERE = """
const lettersOf = (array) => Array.from(new Uint8Array(array.buffer), (byte) => String.fromCharCode(byte));
const packed = (array) => btoa(lettersOf(array).join(""));
const unpacked = (text) => Uint8Array.from(atob(text), (each) => each.charCodeAt(0)).buffer;
const formatOf = (name) => ampFormats.find((format) => format.name === name);
const textOf = ({ negative, top, bottom }) =>
  `${negative ? "-" : ""}${top.toString(16)}/${bottom.toString(16)}`;
const parsed = ([text, name]) => {
  try {
    const { number, code, isPattern } = ampNumbers.parse(text, formatOf(name));
    return [textOf(number), code, isPattern];
  } catch (error) {
    if (error instanceof ampNumbers.Refused) return error.message;
    throw error;
  }
};
"""


class Numbers:
    """The module in a page."""

    def __init__(self, page):
        self.page = page

    def decode(self, codes, name):
        """Return the values of codes, as float64."""
        each = "ampNumbers.decode(code, formatOf(name))"
        made = f"packed(Float64Array.from(new Float64Array(unpacked(codes)), (code) => {each}))"
        return self._run(made, codes, name)

    def encode(self, values, name):
        """Return the codes of float64 values."""
        each = "ampNumbers.encode(ampNumbers.exact(value), formatOf(name))"
        made = f"packed(Float64Array.from(new Float64Array(unpacked(codes)), (value) => {each}))"
        return self._run(made, values, name).astype(np.int64)

    def _run(self, made, numbers, name):
        sent = base64.b64encode(np.asarray(numbers, dtype=np.float64).tobytes()).decode()
        text = self.page.evaluate(f"([codes, name]) => {made}", [sent, name])
        return np.frombuffer(base64.b64decode(text), dtype=np.float64)

    def parse(self, typed):
        """Return number, code and whether it is a pattern of each text and format, or why it is refused."""
        return self.page.evaluate("(typed) => typed.map(parsed)", typed)

    def words(self, function, values):
        """Return what a function of the module says of each value."""
        sent = base64.b64encode(np.asarray(values, dtype=np.float64).tobytes()).decode()
        each = f"Array.from(new Float64Array(unpacked(sent)), (value) => ampNumbers.{function}(value))"
        return self.page.evaluate(f"(sent) => {each}", sent)


@pytest.fixture(scope="module")
def numbers(browser):
    page = browser.new_page()
    for script in (float_script(), (ASSETS / "numbers.js").read_text("utf-8"), _HERE):
        page.add_script_tag(content=script)
    yield Numbers(page)
    page.close()


def same(a, b):
    """Whether two arrays of floats hold the same values, minus zero and NaN told apart."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    return np.array_equal(a, b, equal_nan=True) and np.array_equal(
        np.signbit(a) & ~np.isnan(a), np.signbit(b) & ~np.isnan(b)
    )


@pytest.mark.parametrize("name", [*SIXTEEN, *SMALL])
def test_every_code_is_decoded(numbers, name):
    codes = range(2 ** FORMATS[name].bits)
    assert same(numbers.decode(codes, name), [FORMATS[name].decode(code) for code in codes])


@pytest.mark.parametrize("name", SIXTEEN)
def test_every_code_of_sixteen_bits_is_what_pytorch_makes_of_it(numbers, name):
    codes = np.arange(2**16)
    by_torch = torch.from_numpy(codes.astype(np.uint16)).view(FORMATS[name].dtype).double().numpy()
    assert same(numbers.decode(codes, name), by_torch)


@pytest.mark.parametrize("name", [*SIXTEEN, *SMALL])
def test_every_value_is_encoded_as_the_code_that_it_came_from(numbers, name):
    values = [FORMATS[name].decode(code) for code in range(2 ** FORMATS[name].bits)]
    expected = [FORMATS[name].encode(value) for value in values]
    assert numbers.encode(values, name).tolist() == expected


def random_codes(count, bits):
    return np.random.default_rng(0).integers(0, 2**bits, count, dtype=np.uint64)


@pytest.mark.parametrize("name", ["fp32", "tf32"])
def test_a_hundred_thousand_codes_of_the_wide_formats(numbers, name):
    codes = random_codes(100_000, FORMATS[name].bits)
    subnormal = random_codes(10_000, FORMATS[name].mantissa_bits)
    codes = np.concatenate([codes, subnormal])
    stored = codes.astype(np.uint32) << (32 - FORMATS[name].bits)
    with np.errstate(invalid="ignore"):  # some NaN are signalling ones
        values = stored.view(np.float32).astype(np.float64)
    assert same(numbers.decode(codes, name), values)
    numeric = ~np.isnan(values)
    assert (numbers.encode(values, name)[numeric] == codes[numeric]).all()


@pytest.mark.parametrize("name", FORMATS)
def test_a_hundred_thousand_values_of_fp32_are_rounded_as_pytorch_does(numbers, name):
    x = torch.from_numpy(random_codes(100_000, 32).astype(np.uint32).view(np.float32).copy())
    x[::2] = x[::2] * 0 + torch.randn(50_000).nan_to_num() * 2.0 ** torch.randint(-30, 20, (50_000,))
    rounded = numbers.decode(numbers.encode(x.double().numpy(), name), name)
    assert same(rounded, FORMATS[name].quantize(x).double().numpy())


@pytest.mark.parametrize("name", [*SIXTEEN, *(name for name in SMALL if name != "e8m0")])
def test_ties_go_to_the_even_code_and_what_is_beside_them_to_the_nearer_one(numbers, name):
    lower = np.arange(FORMATS[name].max_code)
    values = numbers.decode(np.arange(FORMATS[name].max_code + 1), name)
    ties = (values[:-1] + values[1:]) / 2  # a double holds them exactly
    assert (numbers.encode(ties, name) == lower + lower % 2).all()
    assert (numbers.encode(np.nextafter(ties, 0), name) == lower).all()
    assert (numbers.encode(np.nextafter(ties, np.inf), name) == lower + 1).all()


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_at_the_ends_of_a_format_becomes_what_formats_says(numbers, name):
    its = FORMATS[name]
    ends = [its.max, its.max * (1 + its.epsilon / 2), its.max * 2, 1e300, math.inf, its.smallest_normal, 0.0]
    ends += [its.smallest_normal / 2 ** (its.mantissa_bits + 1), 5e-324, 2.0**-126.5, 1.5 * 2.0**-127]
    ends += [math.nextafter(each, to) for each in ends if math.isfinite(each) for to in (0.0, math.inf)]
    ends += [-each for each in ends]
    ends += [math.nan]
    assert numbers.encode(ends, name).tolist() == [its.encode(each) for each in ends]


def by_python(text, name):
    """What ``parse`` says, in the words of the page; None where it refuses."""
    try:
        typed = parse(text, FORMATS[name])
    except ValueError:
        return None
    value = typed.value
    if isinstance(value, float) and not math.isfinite(value):
        number = "0/0" if math.isnan(value) else f"{'-' * (value < 0)}1/0"
    else:
        exact = Fraction(value)
        negative = math.copysign(1, value) < 0 if isinstance(value, float) else exact < 0
        number = f"{'-' * negative}{abs(exact.numerator):x}/{exact.denominator:x}"
    return [number, typed.code, typed.is_pattern]


def cases_of(test):
    """The texts with which Python's ``parse`` is tested."""
    marks = [mark for mark in test.pytestmark if mark.name == "parametrize"]
    return [case if isinstance(case, str) else case[0] for mark in marks for case in mark.args[1]]


TEXTS = [
    text
    for test in (
        typed_numbers.test_numbers_are_understood_exactly,
        typed_numbers.test_minus_zero_keeps_its_sign,
        typed_numbers.test_patterns_are_taken_bit_for_bit,
        typed_numbers.test_the_rest_is_answered_in_words,
        typed_numbers.test_the_largest_texts_are_answered_at_once,
    )
    for text in cases_of(test)
]


@pytest.mark.parametrize("name", FORMATS)
def test_texts_are_understood_as_python_understands_them(numbers, name):
    found = numbers.parse([[text, name] for text in TEXTS])
    for text, answer in zip(TEXTS, found, strict=True):
        expected = by_python(text, name)
        assert (None if isinstance(answer, str) else answer) == expected, text
        assert not isinstance(answer, str) or answer.endswith("."), text
    assert sum(isinstance(answer, str) for answer in found) > 20


@settings(max_examples=30, deadline=None)
@given(typed=st.lists(st.text("0123456789.,+-*/^exb() _−×⁻²", max_size=24), min_size=40, max_size=60))
def test_any_text_is_understood_or_refused_as_in_python(numbers, typed):
    found = numbers.parse([[text, "fp16"] for text in typed])
    for text, answer in zip(typed, found, strict=True):
        assert (None if isinstance(answer, str) else answer) == by_python(text, "fp16"), text


@pytest.mark.parametrize("name", FORMATS)
def test_values_are_written_as_python_writes_them(numbers, name):
    its = FORMATS[name]
    codes = range(2**its.bits) if its.bits <= 8 else random_codes(4000, its.bits).tolist()
    values = [its.decode(code) for code in codes]
    assert numbers.words("short", values) == [words.short(value) for value in values]
    assert numbers.words("exactText", values) == [words.exact(value) for value in values]


def test_relative_errors_are_written_as_python_writes_them(numbers):
    made = [represent(Fraction(n, 997), each) for n in range(1, 300) for each in FORMATS.values()]
    errors = [each.relative_error for each in made if 0 < each.relative_error < math.inf]
    errors += [0.125, 0.005, 0.0125, 1e-5, 0.1, 99.5, 100.0, 0.105, 1.25e-6]
    assert numbers.words("relative", errors) == [words.relative(error) for error in errors]
