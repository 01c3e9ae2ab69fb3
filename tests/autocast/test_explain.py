"""Sentences about operations."""

from __future__ import annotations

import pytest
import torch

from amp_lessons import autocast


def test_each_kind_of_rule_has_its_words(golden):
    asked = [("softmax", "cuda"), ("softmax", "cpu")]
    asked += [(name, "cuda") for name in ("linear", "pow", "norm", "atan2", "binary_cross_entropy", "mean")]
    asked += [(name, "cuda") for name in ("batch_norm", "addmm_", "lstm", "gru")]
    golden("explanations.txt", "\n\n".join(autocast.explain(*each) for each in asked))


@pytest.mark.parametrize("name", ["F.softmax", "torch.softmax", "aten::softmax", "aten::softmax.int"])
def test_a_name_is_written_as_in_code(name):
    assert autocast.explain(name) == autocast.explain("softmax")


def test_every_aten_operation_can_be_explained_on_every_device():
    names = {
        name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if "aten::" in name
    }
    for name in names:
        for device_type in ("cuda", "cpu", "mps", "xpu"):
            assert autocast.explain(name, device_type).endswith(".")


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [("sofmax", "softmax"), ("F.cross_entropy", "cross_entropy_loss"), ("layernorm", "layer_norm")],
)
def test_an_unknown_name_gets_the_nearest_ones(wrong, nearest):
    with pytest.raises(ValueError, match="no ATen operation is called") as caught:
        autocast.explain(wrong)
    assert wrong in str(caught.value)
    assert nearest in str(caught.value).partition("did you mean ")[2]


@pytest.mark.parametrize("wrong", ["xyzzyq", "", "softmax.nonsense"])
def test_other_unknown_names(wrong):
    with pytest.raises(ValueError, match="no ATen operation"):
        autocast.explain(wrong)


def test_unknown_device():
    with pytest.raises(ValueError, match="unknown device type 'tpu'"):
        autocast.explain("softmax", "tpu")
