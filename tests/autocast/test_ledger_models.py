"""Ledgers of whole models agree with forward hooks, the way people look at dtypes by hand."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from functools import cache, partial

import pytest
import torch
from torch import nn

from amp_lessons import autocast

pytestmark = pytest.mark.slow

transformers = pytest.importorskip("transformers")


def tokens(length: int = 128):
    return (torch.zeros(1, length, dtype=torch.long),)


def image(side: int):
    return (torch.zeros(2, 3, side, side),)


def sequence(copies: int):
    return (torch.randn(5, 2, 16),) * copies


def bert_large():
    config = transformers.BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    )
    return transformers.BertModel(config)


FAKE = {
    "BERT-Large": (bert_large, tokens),
    "GPT-2": (lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config()), tokens),
    "ResNet-50": (lambda: transformers.ResNetModel(transformers.ResNetConfig()), lambda: image(224)),
    "EfficientNet-B7": (
        lambda: transformers.EfficientNetModel(transformers.EfficientNetConfig()),
        lambda: image(600),
    ),
    "ViT": (lambda: transformers.ViTModel(transformers.ViTConfig()), lambda: image(224)),
}
REAL = {
    "LSTM": (lambda: nn.LSTM(16, 8, 2), lambda: sequence(1)),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(16, 4), lambda: sequence(3)),
    "Transformer": (lambda: nn.Transformer(16, 4, 2, 2, 32, batch_first=True), lambda: sequence(2)),
}
RULES = [("cuda", torch.float16), ("cpu", torch.bfloat16)]


def first_dtype(output) -> torch.dtype:
    """The dtype of a module's first output tensor."""
    while not isinstance(output, torch.Tensor):
        output = next(iter(output.values() if isinstance(output, dict) else output))
    return output.dtype


@cache
def built(name: str):
    """A model, its inputs, and the block in which fake ones were made."""
    build, inputs_of = (FAKE | REAL)[name]
    with autocast.fake_tensors() if name in FAKE else nullcontext(nullcontext()) as mode:
        return build(), inputs_of(), mode


def dtypes_seen_by_hooks(name: str, device_type: str, dtype: torch.dtype) -> dict[str, torch.dtype]:
    """Output dtypes of all modules without children, in a run of their own."""
    model, inputs, mode = built(name)
    seen: dict[str, torch.dtype] = {}
    with ExitStack() as stack:
        for path, module in model.named_modules():
            if not list(module.children()) and not isinstance(module, nn.Identity):
                note = partial(lambda path, *args: seen.__setitem__(path, first_dtype(args[-1])), path)
                stack.callback(module.register_forward_hook(note).remove)
        stack.enter_context(mode)
        stack.enter_context(autocast.region(device_type, dtype))
        model(*inputs)
    return seen


@pytest.mark.few
@pytest.mark.parametrize(("device_type", "dtype"), RULES)
@pytest.mark.parametrize("name", [*FAKE, *REAL])
def test_ledger_agrees_with_forward_hooks(name, device_type, dtype):
    model, inputs, _ = built(name)
    ledger = autocast.record(model, *inputs, device_type=device_type, dtype=dtype)
    last = {row.module: row.output_dtype for row in ledger.forward}
    expected = dtypes_seen_by_hooks(name, device_type, dtype)
    assert {path: last[path] for path in expected} == expected
    assert dtype in ledger.total().output_dtypes
    assert ledger.cast_bytes > 0
    assert ledger.saved_bytes[dtype] > 0
    dtypes = {operation: set(summary.output_dtypes) for operation, summary in ledger.by_op().items()}
    if device_type == "cuda":
        assert dtypes.get("aten::layer_norm", {torch.float32}) == {torch.float32}
    assert dtypes.get("aten::batch_norm", {dtype}) == {dtype}


def test_the_same_model_saves_as_many_bytes_real_as_fake():
    config = transformers.GPT2Config(
        n_layer=2, n_embd=32, n_head=2, vocab_size=64, bos_token_id=0, eos_token_id=0
    )
    model, inputs = transformers.GPT2LMHeadModel(config), tokens(16)
    real = autocast.record(model, *inputs, backward=True)
    fake = autocast.record(autocast.fake_copy(model), *inputs, backward=True)
    assert real.saved_bytes == fake.saved_bytes
    assert real.forward == fake.forward
    assert {row.module for row in real.backward} == {row.module for row in fake.backward}


@pytest.mark.thorough
def test_gpt2_xl_needs_neither_memory_nor_much_time():
    with autocast.fake_tensors():
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=48, n_embd=1600, n_head=25))
        inputs = tokens(1024)
    assert sum(parameter.numel() for parameter in model.parameters()) > 1.5e9
    ledger = autocast.record(model, *inputs)
    assert sum(row.op == "aten::addmm" for row in ledger.rows) == 4 * 48
    assert (
        sum(row.op == "aten::layer_norm" and row.output_dtype is torch.float32 for row in ledger.rows) == 97
    )
    assert ledger.weight_copy_bytes > 2 * 1.5e9
