"""Codes, values and derived figures, against PyTorch's dtypes, ml_dtypes, struct and brute force."""

import bisect
import math
import random
import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from amp_lessons.formats import FORMATS
from tests.formats.references import KNOWN_ELSEWHERE, reference_dtype

SMALL = [name for name in KNOWN_ELSEWHERE if FORMATS[name].bits <= 16]
BYTE = [name for name, float_format in FORMATS.items() if float_format.bits <= 8]


def reference_values(float_format):
    """Return the value of every code, as PyTorch's dtype or ml_dtypes has it."""
    codes = np.arange(2**float_format.bits)
    if float_format.dtype is None:
        return codes.astype(np.uint8).view(reference_dtype(float_format)).astype(np.float64).tolist()
    integer = np.uint8 if float_format.bits == 8 else np.uint16
    return torch.from_numpy(codes.astype(integer)).view(float_format.dtype).double().tolist()


def same(a, b):
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


@pytest.mark.parametrize("name", SMALL)
def test_every_code_decodes_to_what_the_dtype_stores(name):
    float_format = FORMATS[name]
    for code, value in enumerate(reference_values(float_format)):
        assert same(float_format.decode(code), value), hex(code)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", SMALL)
def test_every_code_survives_decode_and_encode(name):
    float_format = FORMATS[name]
    for code in range(2**float_format.bits):
        fields = float_format.split(code)
        if fields.kind == "nan":
            assert float_format.split(float_format.encode(fields.value)).kind == "nan"
        else:
            assert float_format.encode(fields.value) == code


def test_fp32_codes_are_those_of_struct():
    rng = random.Random(0)
    for code in [0, 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 1 << 31] + [
        rng.getrandbits(32) for _ in range(3000)
    ]:
        (value,) = struct.unpack("<f", struct.pack("<I", code))
        assert same(FORMATS["fp32"].decode(code), value)
        if not math.isnan(value):
            assert FORMATS["fp32"].encode(value) == code


def test_tf32_codes_are_the_upper_19_bits_of_fp32():
    rng = random.Random(1)
    for code in [rng.getrandbits(19) for _ in range(3000)]:
        assert same(FORMATS["tf32"].decode(code), FORMATS["fp32"].decode(code << 13))


@pytest.mark.parametrize("name", [name for name in FORMATS if FORMATS[name].dtype])
def test_figures_are_those_of_torch_finfo(name):
    float_format, finfo = FORMATS[name], torch.finfo(FORMATS[name].dtype)
    assert float_format.bits == finfo.bits
    assert float_format.max == finfo.max
    assert float_format.smallest_normal == finfo.smallest_normal
    if name != "fp8_e5m2fnuz":  # torch.finfo says 0.125 here, for 1 and then 1.25
        assert float_format.epsilon == finfo.eps


@pytest.mark.parametrize("name", [name for name in KNOWN_ELSEWHERE if FORMATS[name].has_zero])
def test_figures_are_those_of_ml_dtypes(name):
    float_format = FORMATS[name]
    finfo = ml_dtypes.finfo(reference_dtype(float_format))
    assert float_format.max == float(finfo.max)
    assert float_format.smallest_normal == float(finfo.smallest_normal)
    assert float_format.smallest_subnormal == float(finfo.smallest_subnormal)
    assert float_format.epsilon == float(finfo.eps)


@pytest.mark.parametrize("name", SMALL)
def test_counts_and_flags_are_those_of_the_list_of_values(name):
    float_format, values = FORMATS[name], reference_values(FORMATS[name])
    finite = {value for value in values if math.isfinite(value)}
    assert float_format.finite_value_count == len(finite)
    assert float_format.max == max(finite)
    assert float_format.has_infinity == any(map(math.isinf, values))
    assert float_format.has_nan == any(map(math.isnan, values))
    assert float_format.epsilon == min(value for value in finite if value > 1) - 1
    kinds = [float_format.split(code).kind for code in range(2**float_format.bits)]
    assert kinds.count("nan") == sum(map(math.isnan, values))
    assert kinds.count("zero") == values.count(0.0)
    assert kinds.count("subnormal") == sum(0 < abs(value) < float_format.smallest_normal for value in values)


def test_decimal_digits_count_the_hidden_bit():
    digits = {name: round(FORMATS[name].decimal_digits, 2) for name in ("fp32", "fp16", "bf16")}
    assert digits == {"fp32": 7.22, "fp16": 3.31, "bf16": 2.41}
    assert FORMATS["tf32"].decimal_digits == FORMATS["fp16"].decimal_digits
    assert [round(FORMATS[name].decimal_digits, 2) for name in ("fp8_e4m3", "fp8_e5m2")] == [1.20, 0.90]


def test_e8m0_has_powers_of_two_only():
    e8m0 = FORMATS["e8m0"]
    assert [e8m0.decode(code) for code in range(255)] == [2.0**power for power in range(-127, 128)]
    assert e8m0.smallest_subnormal is None
    assert e8m0.decode(0) == e8m0.smallest_normal == 2.0**-127


@pytest.mark.parametrize(
    ("name", "value", "rounded"),
    [
        ("fp16", 65519, 65504),
        ("fp16", 65520, math.inf),
        ("fp16", 2.0**-25, 0.0),
        ("fp16", math.nextafter(2.0**-25, 1), 2.0**-24),
        ("bf16", 259, 260),
        ("fp4_e2m1", -math.inf, -6),
        ("fp4_e2m1", math.nan, 6),
        ("e8m0", 3.0, 4.0),
        ("e8m0", 0.0, 2.0**-127),
        ("tf32", 1 + 3 * 2.0**-11, 1 + 2.0**-9),
    ],
)
def test_rounding_known_by_heart(name, value, rounded):
    assert FORMATS[name].decode(FORMATS[name].encode(value)) == rounded


def test_encode_rounds_a_double_once():
    just_above_a_tie = 1 + 2.0**-11 + 2.0**-40
    assert float(np.float32(just_above_a_tie)) == 1 + 2.0**-11, "float32 would make it a tie"
    assert FORMATS["fp16"].fields(just_above_a_tie).value == 1 + 2.0**-10
    assert FORMATS["fp16"].fields(Fraction(2**11 + 1, 2**11) + Fraction(1, 10**30)).value == 1 + 2.0**-10


@pytest.mark.few(2)
@pytest.mark.parametrize("name", BYTE)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_encode_takes_the_nearest_value_and_the_even_code_of_two(name, data):
    float_format = FORMATS[name]
    # Where the neighbours are two positive values, so that "nearest" is all there is to say
    first = 1 if name == "e8m0" else 0
    exact = data.draw(st.fractions(float_format.decode(first), min(float_format.max, 10**6)))
    codes = range(first, float_format.max_code + 1)
    distances = [abs(Fraction(float_format.decode(code)) - exact) for code in codes]
    nearest = [code for code in codes if distances[code - first] == min(distances)]
    even = (
        nearest[-1:] if name == "e8m0" else [code for code in nearest if code % 2 == 0]
    )  # odd significand: 1
    assert float_format.encode(exact) == (nearest if len(nearest) == 1 else even)[0]


def test_encode_takes_integers_of_every_kind_exactly():
    fp16 = FORMATS["fp16"]
    assert fp16.encode(10**400) == fp16.encode(math.inf) == 0x7C00
    assert fp16.encode(-(10**400)) == 0xFC00
    assert (
        fp16.encode(np.int64(-3)) == fp16.encode(torch.tensor(-3.0)) == fp16.encode(np.float32(-3)) == 0xC200
    )


@pytest.mark.parametrize("name", [name for name in FORMATS if FORMATS[name].dtype])
def test_overflow_is_what_torch_does(name):
    float_format = FORMATS[name]
    for value in (math.inf, -math.inf, 3e38 if name not in ("fp32", "bf16", "e8m0") else math.inf):
        by_torch = torch.tensor(value).to(float_format.dtype).double().item()
        assert same(float_format.fields(value).value, by_torch) or math.isnan(by_torch)
        assert math.isnan(float_format.fields(value).value) == math.isnan(by_torch)
        assert float_format.overflow == (
            "nan" if math.isnan(by_torch) else "inf" if math.isinf(by_torch) else "saturate"
        )


def test_fields_are_the_stored_ones():
    assert FORMATS["fp16"].encode(0.1) == 0x2E66
    fields = FORMATS["fp16"].fields(-0.1)
    assert (fields.sign, fields.exponent, fields.mantissa, fields.bits) == (1, 11, 0x266, 0xAE66)
    assert (fields.value, fields.kind) == (-0.0999755859375, "normal")
    assert FORMATS["fp16"].pattern(0xAE66) == "1 01011 1001100110"
    assert FORMATS["e8m0"].pattern(127) == "01111111"


@pytest.mark.parametrize("name", SMALL)
def test_significand_and_power_make_the_value(name):
    float_format = FORMATS[name]
    for code in range(0, 2**float_format.bits, max(1, 2**float_format.bits // 997)):
        value = float_format.decode(code)
        if math.isfinite(value):
            assert math.ldexp(float_format.significand(code), float_format.power(code)) == abs(value)


@pytest.mark.parametrize("name", SMALL)
def test_neighbours_and_spacing_are_those_of_the_sorted_values(name):
    float_format = FORMATS[name]
    values = sorted({value for value in reference_values(float_format) if not math.isnan(value)})
    for value in random.Random(2).sample(values, min(300, len(values))) + values[:2] + values[-2:]:
        position = bisect.bisect_left(values, value)
        above = values[position + 1] if position + 1 < len(values) else None
        below = values[position - 1] if position else None
        assert float_format.next_up(value) == above
        assert float_format.next_down(value) == below
        if value >= 0 and above is not None and math.isfinite(above):
            assert float_format.spacing(value) == above - value


def test_neighbours_of_fp32_are_those_of_numpy():
    for value in (0.0, 1.0, -1.0, 0.1, 2.0**-126, 3e38, -1e-45):
        value = np.float32(value)
        assert FORMATS["fp32"].next_up(value) == np.nextafter(value, np.float32(np.inf))
        assert FORMATS["fp32"].next_down(value) == np.nextafter(value, np.float32(-np.inf))


def test_what_is_no_number_has_no_neighbours():
    fp16 = FORMATS["fp16"]
    assert fp16.next_up(math.nan) is None
    assert fp16.next_up(math.inf) is None
    assert fp16.next_down(math.inf) == 65504
    assert math.isnan(fp16.spacing(math.nan))
    assert fp16.spacing(-math.inf) == math.inf


@pytest.mark.parametrize("name", BYTE)
@settings(max_examples=40, deadline=None)
@given(ends=st.tuples(st.floats(0, 1e39), st.floats(0, 1e39)))
def test_codes_between_two_numbers(name, ends):
    float_format, (low, high) = FORMATS[name], sorted(ends)
    inside = [code for code in range(float_format.max_code + 1) if low <= float_format.decode(code) <= high]
    assert list(float_format.codes_between(low, high)) == inside


def test_codes_between_costs_nothing_for_fp32():
    assert len(FORMATS["fp32"].codes_between(1, 2)) == 2**23 + 1
    assert len(FORMATS["fp32"].codes_between(0, math.inf)) == 0x7F800000


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda f: f.decode(0x10000), ValueError, "16 bits run from 0 to 0xffff"),
        (lambda f: f.decode(1.5), TypeError, "integer"),
        (lambda f: f.encode(None), TypeError, "NoneType"),
        (lambda f: f.codes_between(2, 1), ValueError, "0 <= low <= high"),
    ],
)
def test_bad_input_is_answered_in_words(call, error, words):
    with pytest.raises(error, match=words):
        call(FORMATS["fp16"])
