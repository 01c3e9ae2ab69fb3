"""Positions in 16 bits: above 256 in bf16, above 2,048 in fp16, several positions are one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from amp_lessons.course.exercises.patients.case import (
    Case,
    Curve,
    Diagnosis,
    Observed,
    Sighting,
    names,
    pieces,
)
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


CASE = Case(
    silent=True,
    symptom="In bf16, in short texts, every token finds the one before it; the longer the text, the fewer "
    "do, although nothing in the model depends on its length.",
    code="positions_rounded",
    diagnoses=(
        Diagnosis(
            "the positions are rounded to the dtype of x before they become angles",
            "bf16 has only even numbers above 256, every fourth above 512: tokens there share one rotation.",
            right=True,
        ),
        Diagnosis(
            "cosine and sine are rounded to the dtype of x",
            "That costs as much at position 3 as at position 3,000: nothing would depend on the length.",
        ),
        Diagnosis(
            "the base is too small for texts of this length",
            "The slowest pair turns once in about 50,000 positions, and in fp32 the same base finds them "
            "all.",
        ),
        Diagnosis(
            "the scores overflow where the text is long",
            "A score is a product of two rows, as long at the end of the text as at its beginning.",
        ),
    ),
    seen_at=(
        Sighting(
            "https://github.com/EleutherAI/gpt-neox/issues/1003",
            "Within 2,048 positions in fp16, a cosine of the table was off by 0.78.",
        ),
        Sighting(
            "https://github.com/huggingface/transformers/pull/29285",
            "Llama's and Gemma's rotary embedding, cast to bf16 by autocast in spite of a cast to fp32.",
        ),
        Sighting(
            "https://github.com/huggingface/candle/pull/3520",
            "Position 15,962 became 15,968, and its cosine -0.88 instead of -0.55.",
        ),
    ),
    observe=observe,
    shows=shows,
    choices=(
        pieces(
            ("first, second = x[..., :half], x[..., half:]",),
            ("first, second = x.split(half, dim=-1)",),
            ("first, second = x.chunk(2, dim=-1)",),
        ),
        names("first, second", "left, right", "real, imaginary"),
        names("angles", "phases", "turns"),
        names("half", "pairs"),
        names("exponents", "powers"),
    ),
)
