"""What became of a number in each format."""

import math
from fractions import Fraction

import pytest
import torch

from amp_lessons.formats import FORMATS, relative_error, represent, side_by_side


@pytest.mark.parametrize(
    ("value", "name", "outcome", "rounded"),
    [
        (0.1, "fp32", "rounded", 0.10000000149011612),
        (2.0**-25, "fp16", "underflow", 0.0),
        (2.0**-25, "bf16", "exact", 2.0**-25),
        (65519, "fp16", "rounded", 65504),
        (65520, "fp16", "overflow", math.inf),
        (6.9, "fp4_e2m1", "rounded", 6.0),
        (7.0, "fp4_e2m1", "overflow", 6.0),
        (math.inf, "fp16", "exact", math.inf),
        (math.inf, "fp4_e2m1", "overflow", 6.0),
        (Fraction(10) ** 400, "fp4_e2m1", "overflow", 6.0),
        (0.0, "fp8_e4m3", "exact", 0.0),
    ],
)
def test_outcome(value, name, outcome, rounded):
    representation = represent(value, FORMATS[name])
    assert (representation.outcome, representation.fields.value) == (outcome, rounded)


def test_overflow_is_called_so_whatever_the_format_makes_of_it():
    overflowed = {one.format.name for one in side_by_side(1e39) if one.outcome == "overflow"}
    assert overflowed == set(FORMATS)


def test_errors_are_exact():
    tenth = represent(Fraction(1, 10), FORMATS["fp16"])
    assert tenth.error == float(Fraction(0x666, 2**14) - Fraction(1, 10))
    assert tenth.relative_error == pytest.approx(abs(tenth.error) * 10)
    assert represent(0.1, FORMATS["fp32"]).error == 0.10000000149011612 - 0.1
    assert represent(1e-50, FORMATS["fp16"]).relative_error == 1


def test_errors_beyond_the_numbers():
    def errors(value, name):
        representation = represent(value, FORMATS[name])
        return representation.error, representation.relative_error

    assert errors(1e6, "fp16") == (math.inf, math.inf)
    assert errors(-1e6, "fp16") == (-math.inf, math.inf)
    assert errors(math.inf, "fp16") == (0, 0)
    assert errors(math.inf, "fp4_e2m1") == (-math.inf, math.inf)
    assert errors(10**400, "fp4_e2m1") == (-math.inf, 1)
    assert errors(0, "e8m0") == (2.0**-127, math.inf)
    assert all(map(math.isnan, errors(math.nan, "fp16")))
    assert all(map(math.isnan, errors(math.nan, "fp4_e2m1")))
    assert represent(math.nan, FORMATS["fp4_e2m1"]).outcome == "nan"


def test_side_by_side_covers_every_format_unless_told():
    assert [one.format.name for one in side_by_side(0.1)] == list(FORMATS)
    assert [one.format.name for one in side_by_side(0.1, [FORMATS["bf16"]])] == ["bf16"]


def test_relative_error_of_tensors():
    assert relative_error(torch.tensor([3.0, 4.5]), torch.tensor([3.0, 4.0])) == 0.1
