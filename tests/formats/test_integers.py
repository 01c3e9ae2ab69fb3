"""Weights in INT8 and INT4 by groups, against loops and against PyTorch's own quantisation."""

import pytest
import torch

from amp_lessons import formats


@pytest.fixture
def weight():
    return torch.randn(6, 100, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("group", [1, 32, 100, None])
def test_each_group_has_the_scale_of_its_largest(weight, bits, group):
    made = formats.by_groups(weight, bits, group)
    size, top = group or 100, 2 ** (bits - 1) - 1
    found = made.dequantize()
    for row, codes, scales, back in zip(weight, made.codes, made.scales, found, strict=True):
        for number, start in enumerate(range(0, 100, size)):
            part = row[start : start + size]
            scale = (part.abs().max() / top).half().float()
            assert scales[number] == scale
            expected = (part / scale).round().clamp(-top - 1, top)
            assert torch.equal(codes[start : start + size].float(), expected)
            assert torch.equal(back[start : start + size], expected * scale)
    assert made.codes.dtype == torch.int8
    assert made.scales.shape == (6, -(-100 // size))


def test_int8_with_one_scale_is_pytorchs_quantisation(weight):
    made = formats.by_groups(weight[:1], 8, None)
    theirs = torch.fake_quantize_per_tensor_affine(weight[:1], made.scales.float().item(), 0, -128, 127)
    assert torch.allclose(made.dequantize(), theirs, atol=1e-6)


@pytest.mark.parametrize(
    ("bits", "group", "takes"), [(4, 32, 4.5), (8, 64, 8.25), (4, None, 4.125), (3, 16, 4)]
)
def test_what_a_weight_takes_with_its_part_of_the_scales(bits, group, takes):
    assert formats.by_groups(torch.ones(4, 128), bits, group).bits_per_weight == takes


def test_groups_of_zeros_stay_zero(weight):
    weight[:, :32] = 0
    assert not formats.by_groups(weight).dequantize()[:, :32].any()


@pytest.mark.parametrize("wrong", [float("inf"), float("nan"), 1e6, 1e-9])
def test_what_has_no_scale_in_fp16_is_refused(weight, wrong):
    with pytest.raises(ValueError, match="is no fp16 number"):
        formats.by_groups(weight * wrong)


def test_other_bits_no_group_and_no_weight_are_refused(weight):
    for bits in (1, 9):
        with pytest.raises(ValueError, match="bits is a whole number"):
            formats.by_groups(weight, bits)
    with pytest.raises(ValueError, match="group is a whole number of at least 1"):
        formats.by_groups(weight, 4, 0)
    with pytest.raises(ValueError, match=r"not the shape \(0, 4\)"):
        formats.by_groups(torch.ones(0, 4))
