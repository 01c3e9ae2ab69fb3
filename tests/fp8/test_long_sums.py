"""Sums cut off at many lengths, against the product of each length alone."""

import pytest
import torch

from amp_lessons import fp8
from amp_lessons.formats import FORMATS, relative_error


@pytest.fixture(scope="module")
def sums():
    return fp8.long_sums(1024)


@pytest.mark.parametrize(
    "accumulation",
    [
        fp8.FP32,
        fp8.Accumulation(14),
        fp8.Accumulation(14, 128),
        fp8.Accumulation(8, 32),
        fp8.Accumulation(9, 2048),
    ],
    ids=str,
)
def test_one_walk_says_what_a_product_of_each_length_says(sums, accumulation):
    for n, error in zip(sums.lengths, sums.errors(accumulation), strict=True):
        left, right = sums.left[:, :n], sums.right[:, :n]
        alone = fp8.accumulate(left, right, accumulation)
        assert error == relative_error(alone, left.double() @ right.double().t())


def test_factors_are_e4m3_and_their_cast_is_accounted_for(sums):
    drawn = torch.randn(8, 1024, generator=torch.Generator().manual_seed(0))
    scale = sums.left[0, 0] / drawn[0, 0]
    assert scale == pytest.approx(1, rel=2**-4)
    power = 2.0 ** fp8.fitting_exponent(drawn, FORMATS["fp8_e4m3"])
    assert torch.equal((drawn * power).to(torch.float8_e4m3fn).float() / power, sums.left)
    assert 0.02 < min(sums.cast_errors) <= max(sums.cast_errors) < 2 * 2.0**-4  # of two factors


def test_positive_sums_lose_more_than_those_of_both_signs():
    both, positive = (fp8.long_sums(2048, positive=positive) for positive in (False, True))
    assert (positive.left >= 0).all()
    assert (positive.right >= 0).all()
    assert positive.errors(fp8.Accumulation(14))[-1] > 10 * both.errors(fp8.Accumulation(14))[-1]


def test_lengths_are_powers_of_two_from_one_instruction_on(sums):
    assert sums.lengths == (32, 64, 128, 256, 512, 1024)
    assert fp8.long_sums(100).lengths == (32, 64)


def test_what_cannot_be_is_refused(sums):
    with pytest.raises(ValueError, match="longest is a whole number of at least 32"):
        fp8.long_sums(31)
    with pytest.raises(ValueError, match="together is 32 here, not 16"):
        sums.errors(fp8.Accumulation(14, together=16))
    with pytest.raises(TypeError, match="accumulation is an fp8"):
        sums.errors(14)
