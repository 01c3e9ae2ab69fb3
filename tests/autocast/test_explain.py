"""Sentences about operations."""

from __future__ import annotations

import pytest
import torch

from amp_lessons import autocast


@pytest.mark.parametrize(
    "name", ["softmax", "F.softmax", "torch.softmax", "aten::softmax", "aten::softmax.int"]
)
def test_cudas_answer_with_the_cpus_beside_it(name):
    sentence = autocast.explain(name, "cuda")
    assert sentence.startswith("On CUDA, softmax runs in fp32: autocast sets its dtype argument")
    assert "On the CPU it is in no list and follows its inputs" in sentence


def test_the_cpus_answer_with_cudas_beside_it():
    sentence = autocast.explain("softmax", "cpu")
    assert sentence.startswith("On the CPU, softmax is in no list")
    assert "On CUDA it runs in fp32" in sentence


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "linear",
            "On CUDA, linear runs in autocast's dtype (fp16 by default): its inputs are cast to it",
        ),
        ("pow", "its inputs are cast to fp32"),
        ("norm", "runs in fp32: autocast asks it for an fp32 result"),
        ("atan2", "widest dtype among its inputs"),
        ("binary_cross_entropy", "is refused with an error: torch.nn.functional.binary_cross_entropy and"),
        ("mean", "On CUDA and on the CPU, mean is in no list and follows its inputs: half precision in"),
        ("batch_norm", "unless an operation that it is made of is in a list"),
        ("addmm_", "it writes into a tensor that it is given"),
        ("lstm", "runs in fp16, whatever autocast's dtype"),
        ("gru", "a bf16 input only from cuDNN 9.13 on"),
    ],
)
def test_each_kind_of_rule_has_its_words(name, words):
    assert words in autocast.explain(name)


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
