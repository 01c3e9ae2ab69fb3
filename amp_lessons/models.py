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


def digits_classifier(hidden: int = 256, *, seed: int = 0) -> SimpleModel:
    """Return an untrained classifier of the digits, the same for the same seed."""
    return seeded(lambda: SimpleModel(PIXELS, hidden, CLASSES), seed)


def denoiser(hidden: int = 64, *, seed: int = 0) -> SimpleModel:
    """Return an untrained network that cleans noisy digits, the same for the same seed."""
    return seeded(lambda: SimpleModel(PIXELS, hidden, PIXELS), seed)
