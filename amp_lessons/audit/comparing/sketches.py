"""Sketches: a tensor in 61 numbers, by which the distance of two tensors is estimated.

A sketch is a fixed random projection, a *count sketch* (Charikar, Chen and Farach-Colton, 2002): every number
gets a sign, drawn once for its place, and is added to one of 61 sums, in fp64. It is linear, so the
difference of two sketches is the sketch of the difference, and its norm estimates the norm. The square of the
estimate is right on average; where the difference is spread over many numbers its norm is known to within
9 % (one standard deviation, ``1/√(2·61)``), and exactly where no two of its numbers share a sum: of tensors
with at most 61 numbers, or that differ in one. Equal tensors have equal sketches, bit for bit.
"""

from __future__ import annotations

import math
import threading
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from amp_lessons.audit.recorder.later import local

# A prime: what repeats along a layer's width, a multiple of 2 mostly, is spread over all sums.
WIDTH = 61
_ROWS = 2048  # of signs; a longer tensor is cut into pieces, each with a sign of its own
_AT_ONCE = 64  # pieces
_LINE = 8 * WIDTH  # numbers that NumPy adds at once: of shorter lines it would add one after the other
_SEED = 20261125
_FEW = 16384  # numbers: of fewer the calls take longer than the adding
_OF_NUMPY = frozenset((torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool))


class Sketch(NamedTuple):
    """The sketch of a tensor: its ``sums``, where they lie, and how many of its numbers are inf or NaN.

    These count as 0 in the sums. ``nonfinite`` is None where nobody has been made to wait for it yet.
    """

    sums: Tensor
    nonfinite: Tensor | None


def sketch(tensor: Tensor) -> Sketch:
    """Sketch a tensor of any shape, layout and number format, without a trace in autograd or random numbers.

    The order is that of ``tensor.reshape(-1)``, so the sketch depends on no memory format.
    """
    flat = _flat(tensor)
    with np.errstate(invalid="ignore", over="ignore"):
        sums = _sums(flat)
        if sums.device.type == "cpu" and math.isfinite(np.add.reduce(sums.numpy())):
            return Sketch(sums, None)
        nonfinite = flat.isfinite().logical_not_().sum()
        return Sketch(_sums(flat.nan_to_num(0.0, 0.0, 0.0)), nonfinite)


def relative_difference(one: np.ndarray, other: np.ndarray) -> float:
    """Return the estimated norm of the difference of two tensors over the norm of the larger, 0 to 2."""
    norm = max(float(np.linalg.norm(one)), float(np.linalg.norm(other)))
    return float(np.linalg.norm(one - other)) / norm if norm > 0 else 0.0


def _flat(tensor: Tensor) -> Tensor:
    """Return a tensor's real numbers in a row."""
    here = local(tensor).detach()
    if here.layout != torch.strided:
        here = here.to_dense()
    here = torch.view_as_real(here) if here.is_complex() else here
    return here.reshape(-1)


def _sums(flat: Tensor) -> Tensor:
    """Add all numbers of a row to the sums, in fp64.

    On a CPU that is done piece by piece in a cache's reach, by NumPy, whose calls take less time.
    """
    if flat.device.type != "cpu":
        return _sums_there(flat)
    signs, total = _signs_here(), np.zeros(WIDTH)
    if flat.numel() < signs.size:
        return torch.from_numpy(_folded(flat, signs))
    for number, piece in enumerate(flat.split(signs.size)):
        total += _folded(piece, signs) * (signs[number] if piece.numel() == signs.size else 1.0)
    return torch.from_numpy(total)


def _folded(piece: Tensor, signs: np.ndarray) -> np.ndarray:
    """Add a piece with its signs to sums; of inf and NaN these are none."""
    held, lines = _workspace(threading.get_ident())
    count = piece.numel()
    whole = -(-count // _LINE) * _LINE
    lines[count:whole] = 0.0
    if count < _FEW and piece.dtype in _OF_NUMPY:
        np.multiply(piece.numpy(), signs[:count], out=lines[:count])
        line = np.add.reduce(lines[:whole].reshape(-1, _LINE), axis=0)
    else:
        held[:count].copy_(piece)
        line = np.einsum("ij,ij->j", lines[:whole].reshape(-1, _LINE), signs[:whole].reshape(-1, _LINE))
    return np.add.reduce(line.reshape(-1, WIDTH), axis=0)


@cache
def _workspace(thread: int) -> tuple[Tensor, np.ndarray]:
    """Return memory for one piece, of a thread's own, as PyTorch and as NumPy see it.

    It is made once: to ask the system for it takes longer than to add the piece.
    """
    with torch.inference_mode(False):  # what is made in that mode could not be written to outside of it
        held = torch.empty(-(-_ROWS * WIDTH // _LINE) * _LINE, dtype=torch.float64, device="cpu")
    return held, held.numpy()


def _sums_there(flat: Tensor) -> Tensor:
    """Add them on any device; no more than 32 MiB of the numbers are copied at a time."""
    exact = torch.float32 if flat.is_floating_point() and flat.itemsize <= 4 else torch.float64
    signs = _signs(str(flat.device), exact)
    per_piece = signs.numel()
    whole = flat.numel() // per_piece
    rest = functional.pad(flat[whole * per_piece :].to(exact), (0, -flat.numel() % WIDTH))
    total = (rest.view(-1, WIDTH) * signs[: rest.numel() // WIDTH]).sum(0, dtype=torch.float64)
    for first in range(0, whole, _AT_ONCE):
        last = min(first + _AT_ONCE, whole)
        pieces = flat[first * per_piece : last * per_piece].to(exact).view(-1, *signs.shape)
        turns = signs.view(-1, 1)[first:last].double()
        total += ((pieces * signs).sum(1, dtype=torch.float64) * turns).sum(0)
    return total


@cache
def _signs_here() -> np.ndarray:
    return _signs("cpu", torch.float64).numpy().reshape(-1)


@cache
def _signs(device: str, dtype: torch.dtype) -> Tensor:
    """Draw signs by NumPy: its streams stay the same over versions, and PyTorch's numbers are training's.

    See https://numpy.org/neps/nep-0019-rng-policy.html: that holds of ``RandomState``.
    """
    drawn = np.random.RandomState(_SEED).randint(0, 2, _ROWS * WIDTH)
    return torch.from_numpy(2.0 * drawn - 1.0).view(_ROWS, WIDTH).to(device, dtype)
