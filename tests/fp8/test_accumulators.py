"""Sums in an accumulator of few bits, against exact arithmetic with fractions, product by product."""

import math
from fractions import Fraction

import pytest
import torch

from amp_lessons import fp8
from amp_lessons.formats import FORMATS, relative_error

E4M3 = FORMATS["fp8_e4m3"]


def cut(value, top, bits):
    """Keep of ``value`` what is worth at least the last of ``bits`` bits, the first being worth 2^top."""
    unit = Fraction(2) ** (top + 1 - bits)
    return math.trunc(value / unit) * unit


def power_of(value):
    return math.frexp(float(abs(value)))[1] - 1  # few bits: the float is exact


def loop(left, right, bits, promote_every):
    """Follow section 3.5.2 of the DeepSeek-V3 report for one element of a product."""
    total, register = Fraction(0), Fraction(0)
    products = [Fraction(a) * Fraction(b) for a, b in zip(left, right, strict=True)]
    for first in range(0, len(products), 32):
        together = products[first : first + 32]
        largest = max(map(abs, [*together, register]))
        if largest:
            top = power_of(largest)
            register = sum((cut(each, top, bits) for each in [*together, register]), Fraction(0))
            register = cut(register, power_of(register), bits) if register else register
        if promote_every and (first + 32) % promote_every == 0:
            total, register = total + register, Fraction(0)
    return float(total + register)


def operands(inner, rows=3, columns=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    left, right = (torch.randn(side, inner, generator=generator) for side in (rows, columns))
    return E4M3.quantize(left * 8), E4M3.quantize(right.abs() * 30)


@pytest.mark.parametrize("bits", [3, 8, 14, 20])
@pytest.mark.parametrize("promote_every", [None, 32, 128])
@pytest.mark.parametrize("inner", [1, 31, 200])
def test_it_is_what_exact_arithmetic_says(bits, promote_every, inner):
    left, right = operands(inner)
    found = fp8.accumulate(left, right, fp8.Accumulation(bits, promote_every))
    expected = [
        [loop(row, column, bits, promote_every) for column in right.tolist()] for row in left.tolist()
    ]
    assert found.tolist() == [[pytest.approx(each, rel=1e-6) for each in row] for row in expected]


def test_of_256_ones_and_one_more_eight_bits_keep_256():
    ones = torch.ones(1, 257)
    assert fp8.accumulate(ones, ones, fp8.Accumulation(8, together=1)).item() == 256
    assert fp8.accumulate(ones, ones, fp8.Accumulation(9, together=1)).item() == 257


def test_fourteen_bits_lose_more_the_longer_the_sum_and_promotion_cures_it():
    errors = {}
    for inner in (512, 4096):
        left, right = operands(inner, 16, 16)
        left = left.abs()
        exact = left.double() @ right.double().t()
        for promote_every in (None, 128):
            sums = fp8.accumulate(left, right, fp8.Accumulation(14, promote_every))
            errors[inner, promote_every] = relative_error(sums, exact)
    assert errors[4096, None] > 0.02 > 5 * errors[512, None] / 4
    assert errors[4096, None] > 20 * errors[4096, 128]
    assert errors[4096, 128] < 0.002


def test_fp32_is_pytorchs_own_product():
    left, right = operands(100)
    assert torch.equal(fp8.accumulate(left, right), left @ right.t())


@pytest.mark.parametrize("accumulation", [fp8.FP32, fp8.Accumulation(14), fp8.Accumulation(14, 128)])
@pytest.mark.parametrize("shape", [(0, 5, 2), (3, 0, 2), (3, 5, 0), (0, 0, 0)])
def test_nothing_adds_up_to_nothing(accumulation, shape):
    rows, inner, columns = shape
    sums = fp8.accumulate(torch.ones(rows, inner), torch.ones(columns, inner), accumulation)
    assert sums.shape == (rows, columns)
    assert not sums.any()


def test_tiles_do_not_show():
    left, right = operands(64, 700, 30)
    whole = fp8.accumulate(left, right, fp8.Accumulation(10))
    assert torch.equal(whole[650:], fp8.accumulate(left[650:], right, fp8.Accumulation(10)))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"bits": 24}, ValueError, "bits is at most 23, or None"),
        ({"bits": 0}, ValueError, "bits is a whole number of at least 1"),
        ({"bits": 14.0}, TypeError, "bits is a whole number"),
        ({"promote_every": 100}, ValueError, "promote_every is a multiple of 32"),
        ({"together": 0}, ValueError, "together is a whole number"),
    ],
)
def test_an_accumulator_that_cannot_be_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        fp8.Accumulation(**arguments)
