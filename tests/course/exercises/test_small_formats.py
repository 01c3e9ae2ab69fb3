"""Exercises in eight bits: casts that are watched, and solutions held against the course's own FP8 room."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
import torch

from amp_lessons import exercises, fp8
from amp_lessons.course.exercises.fp8_linear.check import cases
from amp_lessons.course.exercises.small_formats.watching_there import BEHAVIOURS, CastWatch
from amp_lessons.formats import FORMATS

ORDINARY = [each for each in cases(torch.Generator().manual_seed(0)) if each.ordinary]
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
NUMBERS = torch.tensor(
    [0.0, 1e-4, 0.3, -17.1, 447.0, 463.9, -464.0, 464.1, -500.0, 1e9, math.inf, -math.inf, math.nan]
)


def cast(x, dtype, behaviour):
    with CastWatch(behaviour) as watch:
        return x.to(dtype), watch.seen


def same(a, b):
    return torch.equal(a.float().nan_to_num(9999.0), b.float().nan_to_num(9999.0))


def test_one_behaviour_is_that_of_the_installed_pytorch():
    assert any(same(NUMBERS.to(E4M3), cast(NUMBERS, E4M3, each)[0]) for each in BEHAVIOURS)


def test_before_2_12_a_cast_did_what_ml_dtypes_does():
    expected = torch.from_numpy(NUMBERS.numpy().astype(ml_dtypes.float8_e4m3fn).astype(np.float32))
    assert same(cast(NUMBERS, E4M3, "nan")[0], expected)


def test_from_2_12_on_only_nan_becomes_nan():
    limit = FORMATS["fp8_e4m3"].max
    assert same(cast(NUMBERS, E4M3, "saturates")[0], cast(NUMBERS.clamp(-limit, limit), E4M3, "nan")[0])


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_e5m2_is_left_alone(behaviour):
    assert same(cast(NUMBERS, E5M2, behaviour)[0], NUMBERS.to(E5M2))


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.to(E4M3),
        lambda x: x.type(E4M3),
        lambda x: torch.empty(x.shape, dtype=E4M3).copy_(x),
        lambda x: x.bfloat16().to(E4M3),
    ],
)
def test_every_way_to_cast_is_seen_with_what_was_cast(make):
    with CastWatch("nan") as watch:
        made = make(torch.tensor([1.5, 500.0]))
    ((source, dtype),) = watch.seen
    assert source.tolist() == [1.5, 500.0]
    assert dtype == E4M3
    assert math.isnan(float(made[1]))


@pytest.mark.parametrize("case", ORDINARY, ids=lambda c: c.what)
def test_the_solution_computes_what_the_tensorwise_recipe_does(case):
    solution = exercises.solution("fp8_linear").function
    ours, recipes = (_results(each, case) for each in (solution, fp8.linear))
    for seen, wanted in zip(ours, recipes, strict=True):
        allowed = 1e-5 + torch.finfo(case.x.dtype).eps
        assert (seen - wanted).abs().max() <= allowed * wanted.abs().max()


@pytest.mark.parametrize("case", ORDINARY, ids=lambda c: c.what)
def test_a_plain_cast_is_further_from_the_truth(case):
    """Where gradients are small, that is; where they are of ordinary size E5M2 needs no scale."""
    scaled_cast = exercises.solution("scaled_cast").function
    gradient = case.gradient.double()
    values, scale = scaled_cast(case.gradient, E5M2)
    scaled = (values.double() * scale - gradient).norm()
    plain = (case.gradient.to(E5M2).double() - gradient).norm()
    assert scaled < 0.1 * gradient.norm()
    if gradient.abs().max() < FORMATS["fp8_e5m2"].smallest_normal:
        assert plain > 2 * scaled


def _results(function, case):
    x, weight = case.x.clone().requires_grad_(), case.weight.clone().requires_grad_()
    output = function(x, weight)
    return (output.detach(), *torch.autograd.grad(output, (x, weight), case.gradient))


@pytest.mark.parametrize("seed", range(3))
def test_the_exponent_of_the_solution_is_that_of_the_rule_that_rounds_up(seed):
    mx_scale = exercises.solution("mx_scale").function
    draw = torch.Generator().manual_seed(seed)
    blocks = torch.randn(200, 32, generator=draw) * torch.ldexp(
        torch.ones(200, 1), torch.randint(-60, 60, (200, 1), generator=draw)
    )
    cast = fp8.Cast(block=(1, 32), rule="up", scale=FORMATS["e8m0"])
    scales = fp8.quantize(blocks, cast).scales.flatten()
    assert [2.0 ** mx_scale(block) for block in blocks] == scales.tolist()
