"""What the lessons train: networks small enough for fp16 on two CPU cores.

An fp16 matrix product on a CPU may take thirty times as long as an fp32 one, so the width of a layer and the
size of a batch are chosen for that: forward and backward of ``digits_classifier()`` on 32 images take a few
milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

PIXELS = 64
CLASSES = 10

Model = TypeVar("Model", bound=nn.Module)


def seeded(build: Callable[[], Model], seed: int = 0) -> Model:
    """Build a model on the CPU, its initial weights drawn from ``seed``; leave the global generator alone."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would reseed the GPUs as well
        return build()


class SimpleModel(nn.Module):
    """A perceptron with two hidden layers."""

    def __init__(self, d_in: int, d_hidden: int, d_out: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(d_in, d_hidden),
            nn.ReLU(),
            nn.Linear(d_hidden, d_hidden),
            nn.ReLU(),
            nn.Linear(d_hidden, d_out),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map a batch of shape (n, d_in) to (n, d_out)."""
        return self.net(x)


def digits_classifier(hidden: int = 256, *, seed: int = 0) -> SimpleModel:
    """Return an untrained classifier of the digits, the same for the same seed."""
    return seeded(lambda: SimpleModel(PIXELS, hidden, CLASSES), seed)


def denoiser(hidden: int = 64, *, seed: int = 0) -> SimpleModel:
    """Return an untrained network that cleans noisy digits, the same for the same seed."""
    return seeded(lambda: SimpleModel(PIXELS, hidden, PIXELS), seed)


class ConvNet(nn.Module):
    """Two convolutions with batch normalisation, average pooling and a linear classifier."""

    def __init__(self, channels: int, d_out: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.classifier = nn.Linear(channels, d_out)

    def forward(self, x: Tensor) -> Tensor:
        """Map images as rows of shape (n, side²) to (n, d_out)."""
        side = math.isqrt(x.shape[-1])
        return self.classifier(self.features(x.reshape(-1, 1, side, side)).flatten(1))


class TransformerBlock(nn.Module):
    """Self-attention and a perceptron, each behind a layer norm and added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.attention_output = nn.Linear(width, width)
        self.perceptron_norm = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Map sequences of shape (n, length, width) to the same shape."""
        x = x + self.attention_output(self.attend(self.queries_keys_values(self.attention_norm(x))))
        return x + self.perceptron(self.perceptron_norm(x))

    def attend(self, queries_keys_values: Tensor) -> Tensor:
        """Mix the values by the softmax of queries times keys: (n, length, 3 × width) to (n, length, width).

        Written out, because the fused ``scaled_dot_product_attention`` is one operation and hides its
        softmax.
        """
        queries, keys, values = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in queries_keys_values.chunk(3, -1)
        )
        scores = queries @ keys.transpose(-2, -1) * queries.shape[-1] ** -0.5
        return (scores.softmax(-1) @ values).transpose(1, 2).flatten(-2)


def convolutional_classifier(channels: int = 8, *, seed: int = 0) -> ConvNet:
    """Return an untrained classifier of the digits with batch norms, the same for the same seed."""
    return seeded(lambda: ConvNet(channels, CLASSES), seed)


def transformer_block(width: int = 32, heads: int = 4, *, seed: int = 0) -> TransformerBlock:
    """Return an untrained transformer block, the same for the same seed."""
    return seeded(lambda: TransformerBlock(width, heads), seed)
