"""A report as an audit makes it, with one of everything, whose numbers are known."""

from __future__ import annotations

import math

import torch

from amp_lessons.audit import Place, Report, Sighting, explain
from amp_lessons.audit.seen import Frame, How, LayerSeen, LayerStep, Nonfinite, PrecisionSeen, StepSeen
from amp_lessons.scaling import census

CLIPPED = Sighting(
    "clip_before_unscale",
    "failed",
    "the gradients were clipped while they were scaled",
    "call scaler.unscale_(optimizer) first",
    place=Place("train.py", 31, "clip_grad_norm_(model.parameters(), 1.0)"),
    count=40,
    first_step=0,
    lesson="04",
)
BF16 = Sighting(
    "scaler_with_bfloat16", "note", "bf16 needs no `GradScaler`", likely="autocast ran in bf16", lesson="03"
)
HOW = How("2.13.0", "0.3.0", "3.11.7", "a CPU", "2026-11-22T17:20:20+00:00", 12.5, 0.75)

# In fp16, whose smallest number is 2^-24, the first two become zero at a scale of 1 and the last at none.
GRADIENTS = torch.tensor([2.0**-30, 2.0**-28, 2.0**-10])


def layer_step(step: int, gradients: torch.Tensor = GRADIENTS) -> LayerStep:
    formats = {"fp16": torch.float16, "bf16": torch.bfloat16}
    counterfactual = {name: census([gradients], dtype, norms=True) for name, dtype in formats.items()}
    return LayerStep(
        step=step,
        census=census([gradients], torch.float16, 2.0**4, norms=True),
        counterfactual=counterfactual,
        norm=float(gradients.norm()),
        zero_fraction=0.0,
        lost_update_fraction=0.25 if step else 0.75,
    )


def steps() -> tuple[StepSeen, ...]:
    """Four steps, of which the second was skipped: its loss was inf, and the scale was halved."""
    return (
        StepSeen(0, 0, True, 16.0, 2.0, True, 1.0, 0.75, 0.1),
        StepSeen(1, 0, False, 16.0, math.inf, False, None, None, 0.1),
        StepSeen(2, 0, True, 8.0, 1.5, True, 0.5, 0.25, 0.1),
        StepSeen(3, 0, True, 8.0, 1.25, False, None, None, 0.1),
    )


def report() -> Report:
    layers = {
        "head": LayerSeen("head", 3, {"weight": "fp32"}, (layer_step(0, torch.ones(3)),)),
        "body": LayerSeen(
            "body",
            3,
            {"weight": "bf16", "output": "fp16", "optimizer.exp_avg": "fp32"},
            (layer_step(0), layer_step(2)),
        ),
    }
    frames = (
        Frame("body", "Linear", "Addmm", 6.0e4, "fp16"),
        Frame("head", "Linear", "Addmm", math.inf, "fp16"),
    )
    error = RuntimeError("mat1 and mat2 must have the same dtype, but got Float and Half")
    return Report(
        findings=(CLIPPED, BF16),
        steps=steps(),
        layers=layers,
        first_nonfinite=Nonfinite("head", "Addmm", "forward", 1, frames),
        every=2,
        ended=f"RuntimeError: {error}",
        ended_at=Place("model.py", 12, "scores = query @ key.half()"),
        explanation=explain(error),
        not_seen=("a model runs as compiled code",),
        of="train.py",
        how=HOW,
        precision=PrecisionSeen(("fp16",), scaler=True),
    )
