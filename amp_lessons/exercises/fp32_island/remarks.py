"""What can be said of an island that is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from amp_lessons.audit.findings import Finding, note
from amp_lessons.exercises.fp32_island.mistakes import refusal
from amp_lessons.exercises.fp32_island.testbed import Place, refused_dtypes
from amp_lessons.exercises.report.common_findings import cuda_replaced, fixed_device
from amp_lessons.exercises.watching.tape import Tape

_USE_DEVICE_OF_X = "use x.device.type"


def remarks(
    forward: Callable[..., Any], tape: Tape, islands: list[Place], effect_of_cuda: str
) -> Iterator[Finding]:
    """Remark on autocast for one device only, and in a dtype that the CPU's refuses, and on fp64."""
    if effect_of_cuda:
        yield cuda_replaced(
            "x.device.type",
            effect_of_cuda,
            _USE_DEVICE_OF_X,
        )
    elif tape.deprecated or _names_a_device(forward, tape):
        yield fixed_device(
            "the island switches autocast off for one fixed device: where x is on another, it stays on",
            _USE_DEVICE_OF_X,
        )
    for dtype in refused_dtypes(tape):
        yield note(
            "unsupported_autocast",
            f"{refusal(dtype)}, which is all that is needed here",
            "say what you mean: torch.autocast(x.device.type, enabled=False)",
        )

    if any(place.dtype == torch.float64 for place in islands):
        yield note(
            "wider_than_needed",
            "normalise ran in fp64: right, but fp32 was asked for and holds these numbers with ease, "
            "while fp64 takes twice its memory, and on most GPUs many times its time",
            "cast to fp32: Tensor.float() does, Tensor.double() goes to fp64",
        )


def _names_a_device(forward: Callable[..., Any], tape: Tape) -> bool:
    """Whether autocast was given a device that the learner's code spells out.

    By value it cannot be told from ``x.device.type``; but it is the very object that the code holds.
    """
    literals = list(_literals(getattr(forward, "__code__", None)))
    if {"cpu", "cuda"} <= {literal for literal in literals if isinstance(literal, str)}:
        return False  # "cuda" if there is one, else "cpu": that is no fixed device
    return any(device is literal for device in tape.autocast_devices for literal in literals)


def _literals(code: Any) -> Iterator[Any]:
    for literal in getattr(code, "co_consts", ()):
        yield literal
        yield from _literals(literal)
