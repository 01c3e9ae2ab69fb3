"""In which dtype both networks of a GAN's step ran, and with which scaler."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from amp_lessons.audit import known_mistakes
from amp_lessons.audit.findings import Finding, failed
from amp_lessons.audit.watching.tape import Backward, Forward
from amp_lessons.exercises.two_optimizers.testbed import GanCall


def precision(call: GanCall) -> Iterator[Finding]:
    """Find a network outside autocast or in another dtype, stale weights, and a backward pass inside."""
    forwards = [event for event in call.events if isinstance(event, Forward)]
    if not forwards:
        yield known_mistakes.no_graph()
    if any(forward.parameter_dtype != torch.float32 for forward in forwards):
        yield known_mistakes.half_parameters()
    for forward in forwards:
        yield from _forward(forward, call.dtype)
    if any(forward.stale for forward in forwards):
        yield known_mistakes.one_big_autocast("for each network's loss")
    if any(event.autocast for event in call.events if isinstance(event, Backward)):
        yield known_mistakes.backward_in_autocast(call.dtype)


def _forward(forward: Forward, asked: torch.dtype) -> Iterator[Finding]:
    if forward.autocast_dtype is None:
        yield known_mistakes.no_autocast(f"the {forward.part}", asked)
    elif forward.autocast_dtype != asked:
        yield known_mistakes.wrong_autocast_dtype(f"the {forward.part}", forward.autocast_dtype, asked)


def another_scaler(call: GanCall) -> Iterator[Finding]:
    """Find a scaler other than the one that was passed in."""
    if any(each.owner != call.scaler_id for each in call.calls("scale", "scaler.step", "GradScaler")):
        yield failed(
            "another_scaler",
            "another GradScaler than the one passed in was used: made anew in every step, it forgets what it "
            "learned from overflows",
            "use the scaler that is passed in for both losses",
        )
