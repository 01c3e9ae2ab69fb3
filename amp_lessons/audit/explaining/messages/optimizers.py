"""Optimizers and schedules that work with a scaler."""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message

OPTIMIZERS = (
    Message(
        name="schedule_before_step",
        patterns=(r"Detected call of `lr_scheduler\.step\(\)` before `optimizer\.step\(\)`",),
        meaning="The schedule moved on, but no optimizer step has happened yet. With a `GradScaler` the "
        "order in the code can be right: the first steps are often skipped, because the scale starts too "
        "high, and the schedule has lost as many of its values.",
        cure="Move the schedule only when the step happened: `before = scaler.get_scale()`, "
        "`scaler.step(optimizer)`, `scaler.update()`, then `if scaler.get_scale() >= before: "
        "schedule.step()`. Or begin with a lower `init_scale`.",
        lesson="03",
        source="torch/optim/lr_scheduler.py",
        seen_at="https://github.com/pytorch/pytorch/issues/44511",
    ),
    Message(
        name="fused_unscaling",
        patterns=(
            r"Expected grad_scale and found_inf to be None",
            r"found_inf must be a (1-element|float) tensor",
        ),
        meaning="Only the fused kernels unscale gradients by themselves. This optimizer was handed a scale "
        "that it cannot use, which the scaler does for fused ones only: `fused` was changed after the "
        "optimizer was made, or `grad_scale` and `found_inf` were set by hand.",
        cure="Choose when you make it, `torch.optim.AdamW(parameters, fused=True)` or without, and call it "
        "by `scaler.step(optimizer)` alone.",
        lesson="03",
        source="torch/optim/adam.py",
    ),
    Message(
        name="fused_state_dtypes",
        patterns=(
            r"Tensors of the same index must be on the same device and the same dtype except `step` tensors",
        ),
        meaning="A parameter, its gradient and its optimizer state have different dtypes or devices. "
        "`model.half()` or `model.to(...)` came after the optimizer had made its state, or a state in "
        "another dtype was loaded.",
        cure="Bring the model to its device and dtype first, then make the optimizer, then load its state.",
        lesson="04",
        source="C++",
    ),
    Message(
        name="average_in_another_dtype",
        patterns=(r"expected dtype \S+ for `(end|weight)` but got dtype",),
        meaning="`lerp` was given two dtypes. Moving averages do that whose copy is in fp32 and whose "
        "model is in 16 bits, and Adam, when `half()` came after it had made its state in fp32.",
        cure="Cast to the average's dtype, `average.lerp_(weight.to(average.dtype), 1 - decay)`, and keep "
        "the average itself in fp32: in 16 bits it stops moving. Cast a model before its optimizer is "
        "made, not after.",
        lesson="04",
        source="C++",
        seen_at="https://github.com/LoganBooker/prodigy-plus-schedule-free/issues/10",
    ),
)
