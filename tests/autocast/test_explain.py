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
    names = [name for name in torch._C._dispatch_get_all_op_names() if "aten::" in name]
    for name in names:
        for device_type in ("cuda", "cpu", "mps", "xpu"):
            assert autocast.explain(name.removeprefix("aten::"), device_type).endswith(".")


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("sofmax", "did you mean softmax"),
        ("F.cross_entropy", "did you mean cross_entropy_loss"),
        ("layernorm", "did you mean layer_norm"),
        *(("xyzzyq", ""), ("", ""), ("softmax.nonsense", "")),
    ],
)
def test_an_unknown_name_gets_the_nearest_one_if_there_is_any(wrong, nearest):
    with pytest.raises(ValueError, match=f"no ATen operation is called .*{wrong}.*{nearest}"):
        autocast.explain(wrong)
