"""Sums in an accumulator of few bits, against exact arithmetic with fractions, product by product."""

import math
from fractions import Fraction

import pytest
import torch

from amp_lessons import fp8
from amp_lessons.formats import FORMATS, relative_error

E4M3, A = FORMATS["fp8_e4m3"], fp8.Accumulation


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
    found = fp8.accumulate(left, right, A(bits, promote_every))
    expected = [
        [loop(row, column, bits, promote_every) for column in right.tolist()] for row in left.tolist()
    ]
    assert found.tolist() == [[pytest.approx(each, rel=1e-6) for each in row] for row in expected]


def test_of_256_ones_and_one_more_eight_bits_keep_256():
    ones = torch.ones(1, 257)
    assert fp8.accumulate(ones, ones, A(8, together=1)).item() == 256
    assert fp8.accumulate(ones, ones, A(9, together=1)).item() == 257


def test_fp32_is_pytorchs_own_product():
    left, right = operands(100)
    assert torch.equal(fp8.accumulate(left, right), left @ right.t())


@pytest.mark.parametrize("accumulation", [fp8.FP32, A(14), A(14, 128)])
@pytest.mark.parametrize("shape", [(0, 5, 2), (3, 0, 2), (3, 5, 0), (0, 0, 0)])
def test_nothing_adds_up_to_nothing(accumulation, shape):
    rows, inner, columns = shape
    sums = fp8.accumulate(torch.ones(rows, inner), torch.ones(columns, inner), accumulation)
    assert sums.shape == (rows, columns)
    assert not sums.any()


def test_tiles_do_not_show():
    left, right = operands(64, 700, 30)
    whole = fp8.accumulate(left, right, A(10))
    assert torch.equal(whole[650:], fp8.accumulate(left[650:], right, A(10)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bits": 24}, "bits is at most 23, or None"),
        ({"bits": 0}, "bits is a whole number of at least 1"),
        ({"promote_every": 100}, "promote_every is a multiple of 32"),
        ({"together": 0}, "together is a whole number"),
    ],
)
def test_an_accumulator_that_cannot_be_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        A(**arguments)


# --- sums cut off at many lengths, against the product of each length alone


@pytest.fixture(scope="module")
def sums():
    return fp8.long_sums(1024)


@pytest.mark.parametrize("accumulation", [fp8.FP32, A(14), A(14, 128), A(8, 32), A(9, 2048)], ids=str)
def test_one_walk_says_what_a_product_of_each_length_says(sums, accumulation):
    for n, error in zip(sums.lengths, sums.errors(accumulation), strict=True):
        left, right = sums.left[:, :n], sums.right[:, :n]
        alone = fp8.accumulate(left, right, accumulation)
        assert error == relative_error(alone, left.double() @ right.double().t())


def test_factors_are_e4m3_and_their_cast_is_accounted_for(sums):
    drawn = torch.randn(8, 1024, generator=torch.Generator().manual_seed(0))
    scale = sums.left[0, 0] / drawn[0, 0]
    assert scale == pytest.approx(1, rel=2**-4)
    power = 2.0 ** fp8.fitting_exponent(drawn, E4M3)
    assert torch.equal((drawn * power).to(torch.float8_e4m3fn).float() / power, sums.left)
    assert 0.02 < min(sums.cast_errors) <= max(sums.cast_errors) < 2 * 2.0**-4  # of two factors


def test_positive_sums_lose_more_than_those_of_both_signs():
    both, positive = (fp8.long_sums(2048, positive=positive) for positive in (False, True))
    assert (positive.left >= 0).all()
    assert (positive.right >= 0).all()
    assert positive.errors(A(14))[-1] > 10 * both.errors(A(14))[-1]


def test_lengths_are_powers_of_two_from_one_instruction_on(sums):
    assert sums.lengths == (32, 64, 128, 256, 512, 1024)
    assert fp8.long_sums(100).lengths == (32, 64)


def test_of_long_sums_an_instruction_adds_32(sums):
    with pytest.raises(ValueError, match="together is 32 here, not 16"):
        sums.errors(A(14, together=16))
