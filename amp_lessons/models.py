"""What the lessons train: networks small enough for fp16 on two CPU cores.

An fp16 matrix product on a CPU takes some thirty times as long as an fp32 one, so the width of a layer and
the size of a batch are chosen for that: forward and backward of `digits_classifier()` on 32 images take a few
milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

PIXELS = 64
CLASSES = 10

Model = TypeVar("Model", bound=nn.Module)


def seeded(build: Callable[[], Model], seed: int = 0) -> Model:
    """Build a model on the CPU, its initial weights drawn from `seed`; leave the global generator alone."""
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


class ReadingDenoiser(nn.Module):
    """A network with two heads: it reads a noisy digit, and it cleans the picture.

    Both heads see the same hidden features; the `decoder` is trained by the reconstruction loss alone.
    """

    def __init__(self, hidden: int = 64, bottleneck: int = 32) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(PIXELS, hidden), nn.ReLU())
        self.classifier = nn.Linear(hidden, CLASSES)
        self.decoder = nn.Sequential(nn.Linear(hidden, bottleneck), nn.ReLU(), nn.Linear(bottleneck, PIXELS))

    def forward(self, noisy: Tensor) -> tuple[Tensor, Tensor]:
        """Map noisy images of shape (n, 64) to logits of shape (n, 10) and clean images of shape (n, 64)."""
        features = self.encoder(noisy)
        return self.classifier(features), self.decoder(features)


def digits_classifier(hidden: int = 256, *, seed: int = 0) -> SimpleModel:
    """Return an untrained classifier of the digits, the same for the same seed."""
    return seeded(lambda: SimpleModel(PIXELS, hidden, CLASSES), seed)


def reading_denoiser(*, seed: int = 0) -> ReadingDenoiser:
    """Return an untrained `ReadingDenoiser`, the same for the same seed."""
    return seeded(ReadingDenoiser, seed)
