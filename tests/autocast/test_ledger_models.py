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


def tokens():
    return (torch.zeros(1, 128, dtype=torch.long),)


def image(side):
    return (torch.zeros(2, 3, side, side),)


def sequence(copies):
    return (torch.randn(5, 2, 16),) * copies


LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
XL = {"n_embd": 1600, "n_layer": 48, "n_head": 25}


def of(model, config, **sizes):
    return getattr(transformers, model)(getattr(transformers, config)(**sizes))


FAKE = {
    "BERT-Large": (partial(of, "BertModel", "BertConfig", **LARGE), tokens),
    "GPT-2 XL": (partial(of, "GPT2LMHeadModel", "GPT2Config", **XL), tokens),
    "ResNet-50": (partial(of, "ResNetModel", "ResNetConfig"), partial(image, 224)),
    "EfficientNet-B7": (partial(of, "EfficientNetModel", "EfficientNetConfig"), partial(image, 600)),
    "ViT": (partial(of, "ViTModel", "ViTConfig"), partial(image, 224)),
}
REAL = {
    "LSTM": (lambda: nn.LSTM(16, 8, 2), partial(sequence, 1)),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(16, 4), partial(sequence, 3)),
    "Transformer": (lambda: nn.Transformer(16, 4, 2, 2, 32, batch_first=True), partial(sequence, 2)),
}


def first_dtype(output):
    """The dtype of a module's first output tensor."""
    while not isinstance(output, torch.Tensor):
        output = next(iter(output.values() if isinstance(output, dict) else output))
    return output.dtype


@cache
def built(name):
    """A model, its inputs, and the block in which fake ones were made."""
    build, inputs_of = (FAKE | REAL)[name]
    with autocast.fake_tensors() if name in FAKE else nullcontext(nullcontext()) as mode:
        return build(), inputs_of(), mode


def dtypes_seen_by_hooks(name, device_type, dtype):
    """Output dtypes of all modules without children, in a run of their own."""
    model, inputs, mode = built(name)
    seen = {}
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
@pytest.mark.parametrize(("device_type", "dtype"), [("cuda", torch.float16), ("cpu", torch.bfloat16)])
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
    if name == "GPT-2 XL":  # needs no memory
        assert ledger.weight_copy_bytes > 2 * 1.5e9
        assert sum(row.op == "aten::addmm" for row in ledger.rows) == 4 * XL["n_layer"]
        assert sum(row.op == "aten::layer_norm" for row in ledger.rows) == 2 * XL["n_layer"] + 1
