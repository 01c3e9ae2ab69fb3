"""Saved bytes, against saved-tensor hooks that the test places itself."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from amp_lessons import autocast
from amp_lessons.measure import saved_activation_bytes


class Attention(nn.Module):
    """One attention block with everything that makes counting hard: views of one storage, dropout, reuse."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)
        self.register_buffer("scale", torch.full((1,), 0.5))

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).split(16, dim=-1)
        weights = F.dropout(((q @ k.transpose(1, 2)) * self.scale).softmax(-1), 0.1)
        return x + self.out(weights @ v).exp()


MODELS = {
    "attention": (Attention, (2, 5, 16)),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        (2, 3, 8, 8),
    ),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (2, 5, 16)),
    "lstm": (lambda: nn.LSTM(16, 8), (5, 2, 16)),
}


def bytes_seen_by_hooks(model: nn.Module, x: torch.Tensor, region) -> dict[torch.dtype, int]:
    """Sum the storages that autograd packs, holding on to all of them so that no address is used twice."""
    owned = {tensor.untyped_storage().data_ptr() for tensor in [*model.parameters(), *model.buffers()]}
    packed: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t), region:
        output = model(x)
    assert output is not None
    totals: Counter[torch.dtype] = Counter()
    for tensor in packed:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in owned:
            owned.add(storage.data_ptr())
            totals[tensor.dtype] += storage.nbytes()
    return dict(totals)


@pytest.mark.parametrize("dtype", [None, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_real_tensors_byte_for_byte(name, dtype):
    build, shape = MODELS[name]
    model, x = build(), torch.randn(shape)
    region = autocast.region("cuda", dtype)
    assert saved_activation_bytes(model, x, dtype=dtype) == bytes_seen_by_hooks(model, x, region)


@pytest.mark.parametrize("dtype", [None, torch.float16])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "lstm"])
def test_fake_tensors_count_the_same(name, dtype):
    build, shape = MODELS[name]
    model, x = build(), torch.randn(shape)
    expected = saved_activation_bytes(model, x, dtype=dtype)
    assert saved_activation_bytes(autocast.fake_copy(model), x, dtype=dtype) == expected


@pytest.mark.parametrize("dtype", [None, torch.float16])
def test_the_ledger_counts_the_same(dtype):
    model, x = Attention(), torch.randn(2, 5, 16)
    assert autocast.record(model, x, dtype=dtype).saved_bytes == saved_activation_bytes(model, x, dtype=dtype)


def test_the_cpus_rules_keep_softmax_and_norm_in_half():
    model, x = Attention(), torch.randn(2, 5, 16)
    cuda = saved_activation_bytes(model, x, dtype=torch.bfloat16, device_type="cuda")
    cpu = saved_activation_bytes(model, x, dtype=torch.bfloat16, device_type="cpu")
    assert cpu[torch.bfloat16] > cuda[torch.bfloat16]
    assert cpu[torch.float32] < cuda[torch.float32]


def test_one_linear_layer_by_hand():
    model, x = nn.Linear(16, 4), torch.randn(8, 16)
    assert saved_activation_bytes(model, x) == {torch.float32: 8 * 16 * 4}
    assert saved_activation_bytes(model, x, dtype=torch.float16) == {torch.float16: 8 * 16 * 2}
    wants_gradient = torch.randn(8, 16, requires_grad=True)
    weight_copy = 16 * 4 * 2
    assert saved_activation_bytes(model, wants_gradient, dtype=torch.float16) == {
        torch.float16: 8 * 16 * 2 + weight_copy
    }


def test_named_inputs_and_a_model_that_is_left_alone():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x, scale):
            return self.norm(x) * scale

    model = Scaled()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert saved_activation_bytes(model, torch.randn(3, 4), scale=torch.ones(1))[torch.float32] > 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_wrong_arguments():
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module"):
        saved_activation_bytes(torch.relu, torch.randn(2))
    with pytest.raises(ValueError, match=r"torch\.float16 or torch\.bfloat16"):
        saved_activation_bytes(nn.ReLU(), torch.randn(2), dtype=torch.float32)
