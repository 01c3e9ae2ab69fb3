"""A small residual network for images of digits, with all that makes mixed precision interesting in one.

Convolutions and batch norms, additions that skip them, a mean over all places, a linear head.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.course.material.models import CLASSES, seeded


class ResidualBlock(nn.Module):
    """Two convolutions with batch norms, added to what came in (https://arxiv.org/abs/1512.03385)."""

    def __init__(self, d_in: int, d_out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(d_in, d_out, 3, stride, 1, bias=False), nn.BatchNorm2d(d_out))
        self.second = nn.Sequential(nn.Conv2d(d_out, d_out, 3, 1, 1, bias=False), nn.BatchNorm2d(d_out))
        fitting = nn.Sequential(nn.Conv2d(d_in, d_out, 1, stride, bias=False), nn.BatchNorm2d(d_out))
        self.shortcut = nn.Identity() if d_in == d_out and stride == 1 else fitting

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, d_in, height, width) to (n, d_out, height / stride, width / stride)."""
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


class ResidualNet(nn.Module):
    """A stem, three residual blocks, and a linear head on the mean over all places."""

    def __init__(self, width: int = 16, classes: int = CLASSES) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Sequential(nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            ResidualBlock(width, width, 1),
            ResidualBlock(width, 2 * width, 2),
            ResidualBlock(2 * width, 4 * width, 2),
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (n, 1, side, side) to (n, classes)."""
        return self.head(self.backbone(x).mean((2, 3)))


def residual_net(width: int = 16, *, seed: int = 0) -> ResidualNet:
    """Return an untrained residual network, the same for the same seed."""
    return seeded(lambda: ResidualNet(width), seed)
