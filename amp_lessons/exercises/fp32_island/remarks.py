"""What can be said of an island that is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from amp_lessons.audit.findings import Finding, note
from amp_lessons.audit.watching.tape import Tape
from amp_lessons.exercises.fp32_island.mistakes import refusal
from amp_lessons.exercises.fp32_island.testbed import refused_dtypes
from amp_lessons.exercises.report.common_findings import cuda_replaced, fixed_device

_USE_DEVICE_OF_X = "use x.device.type"


def remarks(forward: Callable[..., Any], tape: Tape) -> Iterator[Finding]:
    """Remark on autocast for one device only, and in a dtype that the CPU's refuses."""
    if tape.hard_coded:
        yield cuda_replaced(
            "x.device.type",
            "it switches nothing off, and normalise would run in 16 bits",
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
