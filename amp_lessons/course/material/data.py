"""What the lessons train on: scikit-learn's handwritten digits, 1,797 real images of 8 × 8 pixels.

The images are those of the test set of Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits" (UCI
Machine Learning Repository, https://doi.org/10.24432/C50P49). They come with scikit-learn, so nothing is
downloaded.
"""

from __future__ import annotations

import gzip
import importlib.util
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class LabelledImages:
    """Images as rows of 64 pixels between 0 and 1 (fp32), and their digits (int64)."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Digits:
    """The handwritten digits, split at random but always alike."""

    train: LabelledImages
    test: LabelledImages


def _digits_file() -> Path:
    """Return where scikit-learn keeps the digits; importing it to ask takes seconds."""
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("the digits come with scikit-learn: python -m pip install scikit-learn")
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"


@lru_cache(maxsize=1)
def _all_digits() -> tuple[Tensor, Tensor]:
    with gzip.open(_digits_file(), "rt") as lines:
        rows = torch.tensor(np.loadtxt(lines, delimiter=","))
    brightest = 16  # a pixel counts the ink dots in a 4 × 4 block of the original scan
    images, labels = rows[:, :-1].float() / brightest, rows[:, -1].long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    return images[order], labels[order]


def digits(test_fraction: float = 0.2) -> Digits:
    """Return the digits on the CPU, as a training and a test set.

    The images are shuffled once and for all, so every call returns the same split; each returned tensor is a
    copy. Raises ValueError unless ``test_fraction`` leaves at least one image on each side.
    """
    images, labels = _all_digits()
    cut = len(labels) - round(test_fraction * len(labels))
    if not 0 < cut < len(labels):
        raise ValueError(f"test_fraction is a share between 0 and 1, such as 0.2; got {test_fraction}")
    return Digits(
        train=LabelledImages(images[:cut].clone(), labels[:cut].clone()),
        test=LabelledImages(images[cut:].clone(), labels[cut:].clone()),
    )


def batches(
    data: LabelledImages, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
) -> list[Batch]:
    """Return the data as shuffled (images, labels) batches: a loader that can be iterated again and again.

    The order depends on the seed alone, not on the device or on the state of the global random generator. The
    last batch holds what is left. Raises ValueError unless ``batch_size`` is at least 1.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    return [(data.images[rows].to(device), data.labels[rows].to(device)) for rows in order.split(batch_size)]


def with_noise(images: Tensor, sigma: float = 0.3, *, seed: int = 0) -> Tensor:
    """Return images with Gaussian noise of standard deviation ``sigma`` added, the same on every device."""
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(seed))
    return images + sigma * noise.to(images.device)
