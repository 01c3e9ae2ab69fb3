"""A small diffusion model that draws digits as rows of 64 pixels, and how far off its drawings are."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons._base.text.bars import with_bar
from amp_lessons.course.material.models import PIXELS, seeded

TIMES = 1000
TIME_CHANNELS = 64


def signal_left(times: int = TIMES) -> Tensor:
    """Return what fraction of an image's variance is left at each time step, (times,): DDPM's schedule.

    Source: https://arxiv.org/abs/2006.11239, section 4.
    """
    return (1 - torch.linspace(1e-4, 0.02, times)).cumprod(0)


def time_channels(times: Tensor) -> Tensor:
    """Return sines and cosines of the time steps, shape (n, 64), computed in the dtype of ``times``."""
    places = torch.arange(TIME_CHANNELS // 2, device=times.device)
    frequencies = torch.exp(-math.log(10_000) * places / len(places)).to(times.dtype)
    angles = times[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], -1)


class NoisePredictor(nn.Module):
    """Says which noise was added to an image, given the noisy image and the time step."""

    def __init__(self, hidden: int = 256) -> None:
        super().__init__()
        self.time = nn.Linear(TIME_CHANNELS, hidden)
        self.image = nn.Linear(PIXELS, hidden)
        self.hidden = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(2))
        self.noise = nn.Linear(hidden, PIXELS)

    def forward(self, noisy: Tensor, channels: Tensor) -> Tensor:
        """Map noisy images (n, 64), and their times' channels (n, 64), to the noise in them (n, 64)."""
        time = self.time(channels)
        h = F.silu(self.image(noisy) + time)
        for layer in self.hidden:
            h = h + F.silu(layer(h) + time)
        return self.noise(h)


def noise_predictor(hidden: int = 256, *, seed: int = 0) -> NoisePredictor:
    """Return an untrained network for diffusion, the same for the same seed."""
    return seeded(lambda: NoisePredictor(hidden), seed)


@torch.no_grad()
def draw(
    predict: Callable[[Tensor, Tensor], Tensor], count: int, *, steps: int = 50, seed: int = 0
) -> Tensor:
    """Return ``count`` images (n, 64) between 0 and 1, drawn in ``steps`` steps by DDIM.

    ``predict(noisy, times)`` says which noise is in the images; whatever its dtype, the images are kept in
    fp32.
    Source: https://arxiv.org/abs/2010.02502, equation 12 with sigma 0.
    """
    left = signal_left()
    times = torch.linspace(TIMES - 1, 0, steps).long()
    image = torch.randn(count, PIXELS, generator=torch.Generator().manual_seed(seed))
    pairs = list(zip(times, [*times[1:], None], strict=True))
    for time, following in with_bar(pairs, "drawing"):
        noise = predict(image, time.expand(count).float()).float()
        clean = ((image - (1 - left[time]).sqrt() * noise) / left[time].sqrt()).clamp(-1, 1)
        if following is None:
            break
        noise = (image - left[time].sqrt() * clean) / (
            1 - left[time]
        ).sqrt()  # what clamping left unexplained
        image = left[following].sqrt() * clean + (1 - left[following]).sqrt() * noise
    return (clean + 1) / 2


def frechet_distance(images: Tensor, others: Tensor) -> float:
    """Return how far two sets of rows lie apart, by means and covariances alone: 0 where both agree.

    The Fréchet distance of two normal distributions, on pixels; with a network's features in their place it
    is known as FID (https://arxiv.org/abs/1706.08500).
    """
    a, b = images.double(), others.double()
    first, second = torch.cov(a.T), torch.cov(b.T)
    root = _square_root(first)
    overlap = torch.linalg.eigvalsh(root @ second @ root).clamp(min=0).sqrt().sum()
    means = (a.mean(0) - b.mean(0)).square().sum()
    return (means + first.trace() + second.trace() - 2 * overlap).item()


def _square_root(covariance: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(covariance)
    return (vectors * values.clamp(min=0).sqrt()) @ vectors.T
