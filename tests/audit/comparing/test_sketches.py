"""Sketches estimate what they say: held against exact norms in fp64."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

from amp_lessons.audit.comparing import sketches
from amp_lessons.audit.comparing.sketches import WIDTH, relative_difference, sketch


def estimate(one, other):
    return relative_difference(sketch(one).sums.numpy(), sketch(other).sums.numpy())


def exact(one, other):
    one, other = one.double(), other.double()
    return float((one - other).norm() / max(one.norm(), other.norm()))


@pytest.mark.parametrize("shape", [(61, 7), (1000,), (64, 256), (3, 5, 7, 11), (512, 1024), (2, 700_001)])
@pytest.mark.parametrize("apart", [1e-7, 1e-3, 1.0])
def test_a_spread_difference_is_known_to_within_nine_percent(shape, apart):
    errors = []
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        one = torch.randn(shape, generator=generator, dtype=torch.float64)
        other = one + apart * torch.randn(shape, generator=generator, dtype=torch.float64)
        errors.append(estimate(one, other) / exact(one, other) - 1)
    deviation = 1 / math.sqrt(2 * WIDTH)
    assert max(map(abs, errors)) < 4 * deviation * math.sqrt(2)  # of the difference, and of the norm
    assert np.std(errors) < 3 * deviation


def test_the_estimate_is_right_on_average():
    generator = torch.Generator().manual_seed(0)
    ratios = []
    for _ in range(300):
        tensor = torch.randn(40, 64, generator=generator)
        ratios.append((np.linalg.norm(sketch(tensor).sums.numpy()) / float(tensor.norm())) ** 2)
    assert abs(np.mean(ratios) - 1) < 4 * math.sqrt(2 / WIDTH / len(ratios))
    assert 0.6 < np.std(ratios) / math.sqrt(2 / WIDTH) < 1.5


FEW = {
    "one number": lambda x, i: x[i, 17].add_(0.5),
    "one column": lambda x, i: x[:, i].mul_(1.5),
    "one row": lambda x, i: x[i].mul_(1.5),
    "a constant": lambda x, i: x.add_(0.25),
    "one channel": lambda x, i: x.view(32, 8, 16)[:, i].mul_(2.0),
}


@pytest.mark.parametrize("what", FEW)
def test_differences_in_few_numbers_or_along_one_side_are_found_too(what):
    for seed in range(8):
        one = torch.randn(32, 128, generator=torch.Generator().manual_seed(seed))
        other = one.clone()
        FEW[what](other, seed)
        assert 0.5 < estimate(one, other) / exact(one, other) < 1.6


def test_small_tensors_are_known_exactly():
    one, other = torch.randn(WIDTH), torch.randn(WIDTH)
    assert estimate(one, other) == pytest.approx(exact(one, other), rel=1e-12)
    assert estimate(torch.tensor(3.0), torch.tensor(3.3)) == pytest.approx(0.3 / 3.3, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64])
def test_it_depends_on_numbers_only_and_touches_nothing(dtype):
    tensor = (torch.randn(2, 6, 9, 9) * 100).to(dtype)
    state, before = torch.get_rng_state(), tensor.clone()
    sums = sketch(tensor).sums
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(tensor, before)
    for same in (tensor.to(memory_format=torch.channels_last), tensor.double(), tensor.clone()):
        assert torch.equal(sketch(same).sums, sums)
    assert torch.equal(sketch(tensor.transpose(0, 1).contiguous().transpose(0, 1)).sums, sums)


@pytest.mark.parametrize("count", [1, 488, 500, 61 * 2048 - 1, 61 * 2048, 61 * 2048 * 3 + 77])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64])
def test_a_cpu_and_a_device_make_the_same_sketch(count, dtype):
    flat = (torch.randn(count) * 100).to(dtype)
    here, there = sketches._sums(flat), sketches._sums_there(flat)
    torch.testing.assert_close(here, there, rtol=1e-12, atol=1e-9)


def test_a_first_sketch_in_inference_mode_leaves_those_after_it_alone():
    sketches._workspace.cache_clear()
    tensor = torch.randn(100)
    with torch.inference_mode():
        first = sketch(tensor).sums
    assert torch.equal(sketch(tensor).sums, first)


def test_it_is_linear_and_leaves_no_trace_in_autograd():
    one = torch.randn(300, 300, dtype=torch.float64, requires_grad=True)
    other = torch.randn(300, 300, dtype=torch.float64)
    both = sketch(one + other)
    assert not both.sums.requires_grad
    torch.testing.assert_close(both.sums, sketch(one).sums + sketch(other).sums)


def test_inf_and_nan_are_counted_and_left_out():
    tensor = torch.ones(100)
    tensor[3], tensor[5], tensor[7] = torch.inf, -torch.inf, torch.nan
    found = sketch(tensor)
    assert int(found.nonfinite) == 3
    assert torch.equal(found.sums, sketch(tensor.nan_to_num(0, 0, 0)).sums)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sketch(tensor.repeat(40))  # more than one inf in one sum


@pytest.mark.parametrize("tensor", [torch.zeros(0), torch.zeros(3, 0), torch.zeros(5)])
def test_nothing_is_no_distance_apart(tensor):
    assert estimate(tensor, tensor) == 0.0


def test_sparse_and_complex_tensors_have_sketches():
    dense = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    assert torch.equal(sketch(dense.to_sparse()).sums, sketch(dense).sums)
    assert np.linalg.norm(sketch(torch.tensor([3 + 4j])).sums.numpy()) == pytest.approx(5.0)
