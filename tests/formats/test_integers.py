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


def test_no_number_is_off_by_more_than_half_a_step(weight):
    for group in (8, 32, None):
        made = formats.by_groups(weight, 4, group)
        step = made.scales.float().repeat_interleave(made.group, -1)[:, :100]
        assert ((made.dequantize() - weight).abs() <= step * (0.5 + 7 * 2**-11)).all()  # fp16 rounds the step


def test_an_outlier_spoils_its_group_alone(weight):
    weight[2, 40] = 1000.0
    off = (formats.by_groups(weight, 4, 10).dequantize() - weight).abs()
    assert off[2, 41:50].max() > 0.5 > off[2, :40].max()
    assert formats.by_groups(weight, 4, None).dequantize()[2].count_nonzero() == 1


def test_groups_of_zeros_stay_zero(weight):
    weight[:, :32] = 0
    assert not formats.by_groups(weight).dequantize()[:, :32].any()


@pytest.mark.parametrize("wrong", [float("inf"), float("nan"), 1e6, 1e-9])
def test_what_has_no_scale_in_fp16_is_refused(weight, wrong):
    with pytest.raises(ValueError, match="is no fp16 number"):
        formats.by_groups(weight * wrong)


@pytest.mark.parametrize("bits", [1, 9])
def test_other_bits_are_refused(weight, bits):
    with pytest.raises(ValueError, match="bits is a whole number"):
        formats.by_groups(weight, bits)


def test_no_group_and_no_weight_are_refused(weight):
    with pytest.raises(ValueError, match="group is a whole number of at least 1"):
        formats.by_groups(weight, 4, 0)
    with pytest.raises(ValueError, match=r"not the shape \(0, 4\)"):
        formats.by_groups(torch.ones(0, 4))
