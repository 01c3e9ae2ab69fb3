"""When memory does not suffice: what mixed precision can and cannot do about it."""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message

MEMORY = (
    Message(
        name="out_of_memory",
        patterns=(
            r"\b(CUDA|HIP|XPU|MPS backend) out of memory",
            r"CUDA error: out of memory",
            r"DefaultCPUAllocator: (can't|not enough)",
        ),
        meaning="The device's memory is full. Autocast halves most of the activations that are kept for "
        "backward; it does not shrink parameters, gradients and optimizer state, which stay fp32 (16 bytes "
        "a parameter with Adam), and for a moment it adds a 16-bit copy of the weights.",
        cure="Halve the batch and accumulate gradients. If the peak hardly moves with the batch, "
        "parameters and optimizer state fill it: shard them, or take a smaller optimizer state. Keep no "
        "loss tensors in lists: `loss.item()`. `measure.predict_memory` says beforehand what will be "
        "needed.",
        lesson="05",
        source="C++",
        seen_at="https://github.com/pytorch/pytorch/issues/61173",
    ),
)
