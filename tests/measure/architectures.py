"""Small models of many kinds, each with inputs; those of the transformers library where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Architecture:
    """A model in training mode, ready to be called with ``model(*args, **kwargs)``."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def mlp() -> Architecture:
    layers = (nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(0.1), nn.Linear(32, 10))
    return Architecture(nn.Sequential(*layers), (torch.randn(8, 16),), {})


def convnet() -> Architecture:
    layers = (
        *(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 8, 3, groups=8), nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(8, 5)),
    )
    return Architecture(nn.Sequential(*layers), (torch.randn(2, 3, 16, 16),), {})


def autoencoder() -> Architecture:
    layers = (
        *(nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.LeakyReLU(), nn.Dropout2d(0.2)),
        *(nn.ConvTranspose2d(4, 1, 4, stride=2, padding=1), nn.Sigmoid()),
    )
    return Architecture(nn.Sequential(*layers), (torch.randn(2, 1, 8, 8),), {})


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))
        self.scale = nn.Parameter(torch.ones(16))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scale * self.body(x) / (x * x).mean(-1, keepdim=True).sqrt()


def residual() -> Architecture:
    return Architecture(nn.Sequential(_Residual(), _Residual()), (torch.randn(4, 16),), {})


class _TiedLanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(40, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.head = nn.Linear(16, 40, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.head(self.layer(self.embedding(tokens)))
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def tied_language_model() -> Architecture:
    return Architecture(_TiedLanguageModel(), (torch.randint(0, 40, (2, 12)),), {})


def transformer() -> Architecture:
    model = nn.Transformer(16, 4, 1, 1, 32, batch_first=True)
    return Architecture(model, (torch.randn(2, 6, 16), torch.randn(2, 5, 16)), {})


class _SelfAttention(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True, **options)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


def attention() -> Architecture:
    return Architecture(_SelfAttention(dropout=0.1), (torch.randn(2, 6, 16),), {})


class _Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(8, 2), nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        x = inputs["x"]
        weights = self.gate(x).softmax(-1).unbind(-1)
        return sum(w[:, None] * expert(x) for w, expert in zip(weights, self.experts, strict=True))  # type: ignore


def lstm() -> Architecture:
    return Architecture(nn.LSTM(8, 16, 2, batch_first=True, dropout=0.1), (torch.randn(2, 5, 8),), {})


def mixture_with_nested_inputs() -> Architecture:
    return Architecture(_Mixture(), ({"x": torch.randn(4, 8)},), {})


def gpt2() -> Architecture:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 50, "n_positions": 16}
    config = GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    tokens = torch.randint(0, 50, (2, 8))
    return Architecture(GPT2LMHeadModel(config), (tokens,), {"labels": tokens, "use_cache": False})


def bert() -> Architecture:
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertForSequenceClassification(BertConfig(**sizes, vocab_size=50))
    return Architecture(model, (torch.randint(0, 50, (2, 8)),), {"labels": torch.randint(0, 2, (2,))})


def resnet() -> Architecture:
    from transformers import ResNetConfig, ResNetForImageClassification

    model = ResNetForImageClassification(ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]))
    return Architecture(model, (torch.randn(2, 3, 32, 32),), {"labels": torch.randint(0, 2, (2,))})


def efficientnet() -> Architecture:
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    sizes = {"image_size": 32, "width_coefficient": 0.25, "depth_coefficient": 0.1, "hidden_dim": 320}
    model = EfficientNetForImageClassification(EfficientNetConfig(**sizes))
    return Architecture(model, (torch.randn(2, 3, 32, 32),), {"labels": torch.randint(0, 2, (2,))})


def vit() -> Architecture:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = ViTForImageClassification(ViTConfig(**sizes, image_size=16, patch_size=4))
    return Architecture(model, (torch.randn(2, 3, 16, 16),), {"labels": torch.randint(0, 2, (2,))})


OF_TORCH: tuple[Callable[[], Architecture], ...] = (
    mlp,
    convnet,
    autoencoder,
    residual,
    tied_language_model,
    transformer,
    attention,
    mixture_with_nested_inputs,
)
OF_TRANSFORMERS: tuple[Callable[[], Architecture], ...] = (gpt2, bert, resnet, efficientnet, vit)


def build(make: Callable[[], Architecture]) -> Architecture:
    """Make the case, always the same one; skip where its library is missing."""
    if make in OF_TRANSFORMERS:
        pytest.importorskip("transformers")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make()
