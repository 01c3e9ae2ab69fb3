"""The CPU under CUDA's rules against CUDA itself."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from pytorch_lists import cases, lists
from torch import nn

from amp_lessons import autocast

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


class Classifier(nn.Module):
    """A body and its loss, so that the ledger has both."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x, target):
        return F.cross_entropy(self.body(x), target)


MODELS = {
    "perceptron": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 8)),
        (4, 8),
    ),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding="same"),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        ),
        (4, 3, 8, 8),
    ),
    "transformer": (
        lambda: nn.Sequential(
            nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True),
            nn.Flatten(),
            nn.Linear(80, 8),
        ),
        (4, 5, 16),
    ),
}


def columns(rows):
    return [(row.module, row.op, row.input_dtypes, row.output_dtype) for row in rows]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_the_cpus_ledger_is_the_gpus(name, dtype):
    build, shape = MODELS[name]
    model, x, target = Classifier(build()), torch.randn(shape), torch.tensor([0, 1, 2, 3])
    here = autocast.record(model, x, target, dtype=dtype)
    there = autocast.record(model.cuda(), x.cuda(), target.cuda(), dtype=dtype)
    assert columns(here.forward) == columns(there.forward)
    assert "autocast rules" in here.where
    assert "cuda:0" in there.where


def test_backward_products_run_in_the_same_dtypes():
    build, shape = MODELS["perceptron"]
    model, x, target = Classifier(build()), torch.randn(shape), torch.tensor([0, 1, 2, 3])
    here = autocast.record(model, x, target, backward=True)
    there = autocast.record(model.cuda(), x.cuda(), target.cuda(), backward=True)
    products = [columns(row for row in ledger.backward if row.op == "aten::mm") for ledger in (here, there)]
    assert products[0] == products[1] != []


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_return_what_cudnn_returns(layer, dtype):
    model, x = layer(8, 8), torch.randn(3, 2, 8)
    here = autocast.record(model, x, dtype=dtype)
    there = autocast.record(model.cuda(), x.cuda(), dtype=dtype)
    assert columns(here.forward)[-1] == columns(there.forward)[-1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", ["torch_fp16", "torch_fp32", "torch_need_autocast_promote", "nn_fp16", "nn_fp32", "linalg_fp16"]
)
def test_operation_by_operation(name):
    namespace = {"torch": torch, "nn": torch._C._nn, "linalg": torch._C._linalg}[name.partition("_")[0]]
    for operation, arguments, extra in cases(lists.AutocastTestLists("cpu"), name):
        if operation.startswith("cudnn"):
            continue
        function = getattr(namespace, operation)
        with autocast.cuda_rules("cpu"), torch.autocast("cpu", dtype=torch.float16):
            here = function(*arguments, **extra)
        with torch.autocast("cuda", dtype=torch.float16):
            there = function(
                *torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.cuda, arguments), **extra
            )
        dtypes = [[part.dtype for part in autocast.dispatcher.tensors_in(result)] for result in (here, there)]
        assert dtypes[0] == dtypes[1], operation
