"""One operation that must not run in 16 bits, in the middle of a model that should."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.exercises.attempt import Attempt, reject
from amp_lessons.exercises.fp32_island.mistakes import (
    require_16_bits,
    require_autocast_left_off,
    require_gradients,
    require_island,
    require_no_exception,
    require_nothing_changed,
    require_output,
    require_same_layers,
    require_values,
)
from amp_lessons.exercises.fp32_island.remarks import remarks
from amp_lessons.exercises.fp32_island.testbed import Place, TestBed
from amp_lessons.formats.dtypes import dtype_name


def check(attempt: Attempt) -> Iterator[Finding]:
    """Run forward under autocast in fp16, in bf16, and without; see in which dtype each part ran."""
    forward = _method(attempt)
    bed = TestBed(forward)
    islands: list[Place] = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        done = bed.run(dtype)
        require_same_layers(done)
        require_no_exception(done)
        require_nothing_changed(done)
        require_output(done)
        if done.under_autocast:
            require_16_bits(done)
            require_island(done)
            islands += done.seen.normalise
        else:
            require_autocast_left_off(done)
        require_values(done)
        require_gradients(done)
    effect_of_cuda = bed.effect_of_cuda()
    yield _what_island(
        islands, f"off for {bed.tape.device_type} instead of cuda" if effect_of_cuda else "off"
    )
    yield passed("small", "both linear layers still ran in 16 bits under autocast, in fp16 and in bf16")
    yield passed("gradients", "gradients flow through the island, and forward works without autocast too")
    yield from remarks(forward, bed.tape, islands, effect_of_cuda)


def _method(attempt: Attempt) -> Callable[..., Any]:
    if inspect.isclass(attempt.value) or isinstance(attempt.value, nn.Module):
        message = "only the function forward(self, x) is asked for"
        reject("not_a_function", message, 'check("fp32_island", forward)')
    return attempt.function(None, None).function


def _what_island(islands: list[Place], off: str) -> Finding:
    if not islands:
        return passed(
            "island",
            "self.normalise was not called, but what stands in its place is right and overflowed nowhere",
        )
    dtypes = " and ".join(sorted({dtype_name(place.dtype) for place in islands}))
    return passed("island", f"normalise ran in {dtypes} with autocast {off}, and nothing overflowed")
