"""Small models of many kinds, each with inputs; those of the transformers library where it is installed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn


@dataclass(frozen=True)
class Architecture:
    """A model in training mode, ready to be called with ``model(*args, **kwargs)``."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


class Made(nn.Module):
    """A module of these parts; ``forward`` is a function of itself and of what goes in."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.call = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs, **named_inputs):
        return self.call(self, *inputs, **named_inputs)


def mlp():
    layers = (nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(0.1), nn.Linear(32, 10))
    return Architecture(nn.Sequential(*layers), (torch.randn(8, 16),))


def convnet():
    layers = (
        *(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 8, 3, groups=8), nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(8, 5)),
    )
    return Architecture(nn.Sequential(*layers), (torch.randn(2, 3, 16, 16),))


def autoencoder():
    layers = (
        *(nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.LeakyReLU(), nn.Dropout2d(0.2)),
        *(nn.ConvTranspose2d(4, 1, 4, stride=2, padding=1), nn.Sigmoid()),
    )
    return Architecture(nn.Sequential(*layers), (torch.randn(2, 1, 8, 8),))


class _Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))
        self.scale = nn.Parameter(torch.ones(16))

    def forward(self, x):
        return x + self.scale * self.body(x) / (x * x).mean(-1, keepdim=True).sqrt()


def residual():
    return Architecture(nn.Sequential(_Residual(), _Residual()), (torch.randn(4, 16),))


class _TiedLanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.head = nn.Linear(16, 40, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        logits = self.head(self.layer(self.embedding(tokens)))
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def tied_language_model():
    return Architecture(_TiedLanguageModel(), (torch.randint(0, 40, (2, 12)),))


def transformer():
    model = nn.Transformer(16, 4, 1, 1, 32, batch_first=True)
    return Architecture(model, (torch.randn(2, 6, 16), torch.randn(2, 5, 16)))


class _SelfAttention(nn.MultiheadAttention):
    def forward(self, x):
        return super().forward(x, x, x, need_weights=False)[0]


def attention():
    return Architecture(_SelfAttention(16, 4, dropout=0.1, batch_first=True), (torch.randn(2, 6, 16),))


def lstm():
    return Architecture(nn.LSTM(8, 16, 2, batch_first=True, dropout=0.1), (torch.randn(2, 5, 8),))


def mixture_with_nested_inputs():
    def mix(self, inputs):
        weights = self.gate(inputs["x"]).softmax(-1).unbind(-1)
        outputs = [expert(inputs["x"]) for expert in self.experts]
        return sum(weight[:, None] * each for weight, each in zip(weights, outputs, strict=True))

    experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
    return Architecture(Made(mix, gate=nn.Linear(8, 2), experts=experts), ({"x": torch.randn(4, 8)},))


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def gpt2():
    import transformers as t

    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 50, "n_positions": 16}
    model = t.GPT2LMHeadModel(t.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    tokens = torch.randint(0, 50, (2, 8))
    return Architecture(model, (tokens,), {"labels": tokens, "use_cache": False})


def bert():
    import transformers as t

    model = t.BertForSequenceClassification(t.BertConfig(**SIZES, vocab_size=50))
    return Architecture(model, (torch.randint(0, 50, (2, 8)),), {"labels": torch.randint(0, 2, (2,))})


def _with_images(model, side):
    return Architecture(model, (torch.randn(2, 3, side, side),), {"labels": torch.randint(0, 2, (2,))})


def resnet():
    import transformers as t

    config = t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
    return _with_images(t.ResNetForImageClassification(config), 32)


def efficientnet():
    import transformers as t

    sizes = {"image_size": 32, "width_coefficient": 0.25, "depth_coefficient": 0.1, "hidden_dim": 320}
    return _with_images(t.EfficientNetForImageClassification(t.EfficientNetConfig(**sizes)), 32)


def vit():
    import transformers as t

    config = t.ViTConfig(**SIZES, image_size=16, patch_size=4)
    return _with_images(t.ViTForImageClassification(config), 16)


OF_TORCH = (
    *(mlp, convnet, autoencoder, residual, tied_language_model),
    *(transformer, attention, mixture_with_nested_inputs),
)
OF_TRANSFORMERS = (gpt2, bert, resnet, efficientnet, vit)


def build(make):
    """Make the case, always the same one; skip where its library is missing."""
    if make in OF_TRANSFORMERS:
        pytest.importorskip("transformers")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make()
