"""In which dtype both networks of a GAN's step ran, and with which scaler."""

from __future__ import annotations

import torch

from amp_lessons.audit.findings import Finding, failed
from amp_lessons.audit.watching.tape import Backward, Forward
from amp_lessons.exercises.training_loops.mistakes import exceptions
from amp_lessons.exercises.two_optimizers.testbed import GanCall
from amp_lessons.formats.dtypes import dtype_name


def another_scaler(call: GanCall) -> Finding | None:
    """Find a scaler other than the one that was passed in."""
    if all(each.owner == call.scaler_id for each in call.calls("scale", "scaler.step", "GradScaler")):
        return None
    return failed(
        "another_scaler",
        "another GradScaler than the one passed in was used: made anew in every step, it forgets what it "
        "learned from overflows",
        "use the scaler that is passed in for both losses",
    )


def precision(call: GanCall) -> Finding | None:
    """Find a network outside autocast or in another dtype, stale weights, and a backward pass inside."""
    forwards = [event for event in call.events if isinstance(event, Forward)]
    if not forwards:
        return exceptions.no_graph()
    if any(forward.parameter_dtype != torch.float32 for forward in forwards):
        return exceptions.half_parameters()
    for forward in forwards:
        if forward.autocast_dtype is None:
            return failed(
                "no_autocast",
                f"the {forward.part} ran in fp32: autocast was not enabled around its forward pass",
                "run every forward pass and loss inside with torch.autocast(device_type, dtype=dtype):",
            )
        if forward.autocast_dtype != call.dtype:
            return failed(
                "wrong_autocast_dtype",
                f"the {forward.part} ran in {dtype_name(forward.autocast_dtype)} although dtype={call.dtype} "
                "was asked for",
                "pass the argument on: torch.autocast(device_type, dtype=dtype)",
            )
    if any(forward.stale for forward in forwards):
        return failed(
            "one_big_autocast",
            "a forward pass used old weights: one autocast context stays open over both steps, and its "
            "cache of 16-bit weights is emptied only when it ends",
            "open one autocast context for the discriminator's loss and another for the generator's",
        )
    if any(event.autocast for event in call.events if isinstance(event, Backward)):
        return failed(
            "backward_in_autocast",
            "backward ran inside the autocast context; PyTorch advises against it",
            "leave the with block after the loss; backward, step and update belong outside",
        )
    return None
