"""What docs/apple_gpu.md says of autocast on MPS, asked of this PyTorch: the device is not needed for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from amp_lessons import autocast
from amp_lessons.autocast import Policy
from amp_lessons.autocast.cast_policy import CUDNN_RNN

PAGE = (Path(__file__).parents[2] / "docs" / "apple_gpu.md").read_text("utf-8")
MPS, CUDA = autocast.policy("mps"), autocast.policy("cuda")


def listed(policy, *names):
    return {
        name: {policy[each] for each in policy if re.fullmatch(rf"aten::{name}(\..+)?", each)}
        for name in names
    }


def test_the_numbers_are_those_of_the_pinned_pytorch():
    pins = (Path(__file__).parents[2] / "constraints.txt").read_text("utf-8")
    if f"torch=={torch.__version__.partition('+')[0]}\n" not in pins:
        pytest.skip("other lists than those that the page names")
    on_cuda = len(CUDA.keys() - {CUDNN_RNN.op})  # which only builds for CUDA register
    assert f"{len(MPS)} operations, against {on_cuda} (and cuDNN's RNN) on CUDA" in PAGE


def test_products_are_cast_as_on_cuda_but_for_one_convolution():
    products = ("linear", "mm", "addmm", "bmm", "matmul", "conv1d", "conv2d", "scaled_dot_product_attention")
    assert listed(MPS, *products) == listed(CUDA, *products)
    assert set().union(*listed(MPS, *products).values()) == {Policy.LOWER_PRECISION}
    assert MPS["aten::conv_transpose3d.input"] == Policy.FP32
    assert CUDA["aten::conv_transpose3d.input"] == Policy.LOWER_PRECISION


def test_binary_cross_entropy_is_not_refused_and_clamps():
    assert listed(CUDA, "binary_cross_entropy") == {"binary_cross_entropy": {Policy.BANNED}}
    assert listed(MPS, "binary_cross_entropy") == {"binary_cross_entropy": set()}
    probability, target = torch.zeros(1), torch.ones(1)
    assert torch.nn.functional.binary_cross_entropy(probability, target) == 100


def test_softmax_and_sums_run_in_fp32_whatever_dtype_is_asked_for():
    for name in ("aten::softmax.int", "aten::log_softmax.int", "aten::sum", "aten::sum.dim_IntList"):
        assert (MPS[name], CUDA[name]) == (Policy.FP32, Policy.FP32_SET_OPT_DTYPE)


def test_some_lists_are_shorter_and_one_is_longer():
    left_out = ("gru_cell", "rnn_tanh_cell", "rms_norm", "norm", "upsample_bilinear2d")
    assert not set().union(*listed(MPS, *left_out).values())
    assert all(listed(CUDA, *left_out).values())
    assert listed(MPS, "batch_norm") == {"batch_norm": {Policy.FP32}}
    assert listed(CUDA, "batch_norm") == {"batch_norm": set()}


@pytest.mark.filterwarnings("ignore")  # there is no CUDA here, and no GPU of Apple's
def test_cudas_switch_leaves_that_of_mps_alone_and_a_scaler_is_made_for_a_device():
    torch.set_autocast_enabled("mps", True)
    try:
        with torch.autocast("cuda", enabled=False):
            assert torch.is_autocast_enabled("mps")
        with torch.autocast("mps", enabled=False):
            assert not torch.is_autocast_enabled("mps")
    finally:
        torch.set_autocast_enabled("mps", False)
    assert torch.get_autocast_dtype("mps") == torch.float16
    assert [torch.amp.GradScaler(*given)._device for given in ((), ("mps",))] == ["cuda", "mps"]
