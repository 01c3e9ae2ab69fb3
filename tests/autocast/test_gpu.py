"""The CPU under CUDA's rules against CUDA itself."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from amp_lessons import autocast
from amp_lessons.autocast import Policy
from amp_lessons.autocast.cast_policy import tensors_in
from amp_lessons.course.bench import SOURCE_MODELS
from tests.autocast.pytorch_lists import cases, lists
from tests.cuda import CUDA
from tests.measure.architectures import Made

DEVICES = ["cpu", CUDA]  # on the CPU both sides come from the rules, which tries the tests alone
LISTS = ("torch_fp16", "torch_fp32", "torch_need_autocast_promote", "nn_fp16", "nn_fp32", "linalg_fp16")
NAMESPACES = {"torch": torch, "nn": torch._C._nn, "linalg": torch._C._linalg}


def classifier(*layers):
    """Make a body and its loss, so that the ledger has both."""
    return Made(lambda self, x, target: F.cross_entropy(self.body(x), target), body=nn.Sequential(*layers))


def convolutions():
    first = (nn.Conv2d(3, 8, 3, padding="same"), nn.BatchNorm2d(8), nn.ReLU())
    return classifier(*first, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def transformer():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return classifier(layer, nn.Flatten(), nn.Linear(80, 8))


MODELS = (
    (lambda: classifier(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 8)), (4, 8)),
    (convolutions, (4, 3, 8, 8)),
    (transformer, (4, 5, 16)),
)


def columns(rows):
    return [(row.module, row.op, row.input_dtypes, row.output_dtype) for row in rows]


def computations(ledger):
    """The forward pass without what only lays numbers out anew: that depends on how a kernel left them."""
    layouts = ("aten::contiguous", "aten::reshape", "aten::view", "aten::clone")
    return columns(row for row in ledger.forward if row.op not in layouts)


def on(device, values):
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), values)


def products(ledger):
    """The products of linear layers: those of attention depend on the kernel that a device chooses."""
    return sorted(map(str, columns(row for row in ledger.backward if row.op == "aten::mm")))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_cpus_ledger_is_the_gpus(dtype, device):
    for build, shape in MODELS:
        model, x, target = build(), torch.randn(shape), torch.tensor([0, 1, 2, 3])
        here = autocast.record(model, x, target, dtype=dtype, backward=True)
        there = autocast.record(model.to(device), *on(device, (x, target)), dtype=dtype, backward=True)
        assert columns(here.forward) == columns(there.forward)
        assert products(here) == products(there)
        assert "autocast rules" in here.where
        assert ("cuda:0" if device == "cuda" else "autocast rules") in there.where


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SOURCE_MODELS)
def test_the_ledger_of_a_published_model_is_the_gpus(name, device):
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = SOURCE_MODELS[name].build("small")
    inputs = SOURCE_MODELS[name].batch(model, 2, "small")
    for dtype in (torch.float16, torch.bfloat16) if device == "cuda" else (torch.float16,):
        here = autocast.record(model.cpu(), dtype=dtype, backward=True, **inputs)
        there = autocast.record(model.to(device), dtype=dtype, backward=True, **on(device, inputs))
        assert computations(here) == computations(there)
        assert products(here) == products(there) != []


@pytest.mark.parametrize("device", DEVICES)
def test_recurrent_layers_return_what_cudnn_returns(device):
    for layer in (nn.LSTM, nn.GRU, nn.RNN):
        for dtype in (torch.float16, torch.bfloat16):
            model, x = layer(8, 8), torch.randn(3, 2, 8)
            here = autocast.record(model, x, dtype=dtype)
            there = autocast.record(model.to(device), x.to(device), dtype=dtype)
            assert columns(here.forward)[-1] == columns(there.forward)[-1], (layer, dtype)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("device", DEVICES)
def test_each_operation_returns_what_its_policy_says(device):
    """The table of policies against the dtypes of what PyTorch's own test cases return."""
    compared = 0
    for name in LISTS:
        for operation, arguments, extra in cases(lists.AutocastTestLists(device), name):
            if operation.startswith("cudnn") and device == "cpu":
                continue
            function = getattr(NAMESPACES[name.partition("_")[0]], operation)
            with autocast.region("cuda", torch.float16, device):
                result = function(*arguments, **extra)
            assert {part.dtype for part in tensors_in(result)} == {claimed(operation, arguments)}, operation
            compared += 1
    assert compared > 80


def claimed(operation, arguments):
    """The dtype that the table of policies leads one to expect under fp16 autocast."""
    table = autocast.policy("cuda").items()
    kinds = {kind for name, kind in table if name.partition(".")[0] == f"aten::{operation}"}
    if kinds == {Policy.LOWER_PRECISION}:
        return torch.float16
    if kinds == {Policy.PROMOTE}:
        floats = [part.dtype for part in tensors_in(arguments) if part.is_floating_point()]
        return max(floats, key=lambda dtype: torch.finfo(dtype).bits)
    assert kinds, operation
    assert kinds <= {Policy.FP32, Policy.FP32_SET_OPT_DTYPE, Policy.FP32_APPEND_DTYPE}, operation
    return torch.float32
