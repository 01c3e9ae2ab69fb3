"""Random Hadamard transforms: spread an outlier over its block, and leave the product as it was.

Both operands are turned by the same orthogonal matrix along the inner dimension, A H (B H)ᵀ = A Bᵀ, so that
only what rounding does to them changes. Random signs keep a structure in the data from lining up with H.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.functional import pad

from amp_lessons._base.arguments import require, require_whole
from amp_lessons.devices import fp32_products, without_autocast
from amp_lessons.formats import rounding


def hadamard(size: int) -> Tensor:
    """Return Sylvester's orthogonal matrix of (size, size) float32, all of whose entries are ±1/√size.

    Raises ValueError unless ``size`` is a power of two.
    """
    if require_whole(size, "size").bit_count() != 1 or size > 2**12:
        raise ValueError(f"size is a power of two up to 4096 such as 16, not {size}")
    matrix = torch.ones(1, 1, dtype=torch.float32)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix * size**-0.5


def random_hadamard(x: Tensor, size: int = 16, *, seed: int = 0) -> Tensor:
    """Return ``x`` with each ``size`` neighbours along its last dimension turned, as float32.

    A last dimension that ``size`` does not divide is filled up with zeros, which lengthens it and changes no
    product. The signs depend on ``seed`` alone: both operands need the same.
    """
    require(x, Tensor, "x", "a float32 tensor such as torch.randn(4, 16)")
    if not x.dim():
        raise ValueError("x has at least one dimension, along which it is turned")
    x = rounding.as_float32(x)
    made = _turn.__wrapped__ if isinstance(x, FakeTensor) else _turn  # beside a fake tensor it is fake itself
    turn = made(require_whole(size, "size"), require_whole(seed, "seed", least=0), x.device)
    with fp32_products(tf32=False), without_autocast(x.device.type):
        return (pad(x, (0, -x.shape[-1] % size)).unflatten(-1, (-1, size)) @ turn).flatten(-2)


@lru_cache(maxsize=16)
def _turn(size: int, seed: int, device: torch.device) -> Tensor:
    matrix = hadamard(size)
    draw = torch.Generator().manual_seed(seed)
    signs = torch.randint(2, (size, 1), generator=draw, device="cpu") * 2 - 1
    return (signs * matrix.cpu()).to(device)
