"""Positions in 16 bits: above 256 in bf16, above 2,048 in fp16, several positions are one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from amp_lessons.course.exercises.patients.case import Case, Curve, Observed
from amp_lessons.devices import default_device

_LENGTH, _BLOCK, _WIDTH = 2048, 256, 64
_FOUND = "fraction of tokens that find the one before them"


def observe(rotate: Callable[..., Any], seed: int) -> Observed:
    """Let every token of a text look for the one before it, by position alone, with vectors in bf16."""
    draw = torch.Generator().manual_seed(seed)
    vector = torch.randn(_WIDTH, generator=draw).to(default_device().type, torch.bfloat16)
    positions = torch.arange(_LENGTH, device=vector.device)
    keys = rotate(vector.expand(1, _LENGTH, -1), positions)[0].float()
    found = (keys[:-1] @ keys.T).argmax(1) == positions[:-1]  # a token's query is turned back by one position
    shares = [float(block.float().mean()) for block in found.split(_BLOCK)]
    ends = tuple(range(_BLOCK, _LENGTH + 1, _BLOCK))
    return Observed(
        (Curve(_FOUND, f"position, in blocks of {_BLOCK}", tuple(shares), ends),), {"tokens": _LENGTH}
    )


def shows(seen: Observed) -> bool:
    """Whether nearly all find it in the beginning of the text, and less than half in its second half."""
    shares = seen.curve(_FOUND)
    return shares[0] > 0.9 and max(shares[len(shares) // 2 :]) < 0.5


CASE = Case.beside(__file__, observe=observe, shows=shows)
