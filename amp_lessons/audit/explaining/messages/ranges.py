"""Numbers that a 16-bit format cannot hold."""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message

RANGES = (
    Message(
        name="constant_too_large",
        patterns=(r"value cannot be converted to type (c10|at)::(Half|BFloat16) without overflow",),
        meaning="A constant is too large for the tensor's format: fp16 ends at 65,504. The classic is a "
        "mask, `scores.masked_fill(mask, -1e9)`, on scores that autocast made fp16.",
        cure="`scores.masked_fill(mask, torch.finfo(scores.dtype).min)`, or hand a bool mask to "
        "`F.scaled_dot_product_attention`. Never add `finfo.min` to scores: the sum overflows to -inf.",
        lesson="01",
        source="C++",
        seen_at="https://github.com/NVIDIA/apex/issues/1052",
    ),
    Message(
        name="probabilities_not_finite",
        patterns=(r"probability tensor contains either `inf`, `nan` or element < 0",),
        meaning="Sampling got probabilities that are not finite. In 16 bits: logits that overflowed fp16 "
        "(inf minus inf is NaN in softmax), or a row whose every entry is masked.",
        cure="Sample from fp32: `torch.softmax(logits.float(), -1)`. If the logits themselves are not "
        "finite, the overflow is in the forward pass: take bf16, which has the range of fp32.",
        lesson="01",
        source="C++",
    ),
    Message(
        name="invalid_distribution",
        patterns=(
            r"Expected parameter \S+ .* of distribution .* to satisfy the constraint .* but found invalid",
        ),
        meaning="A distribution got parameters outside its range, often NaN. In 16 bits a variance "
        "underflows to 0, a probability rounds to exactly 1, and logits overflow.",
        cure="Make distributions from fp32, `Normal(mean.float(), std.float())`, in an `enabled=False` "
        "region.",
        lesson="01",
        source="torch/distributions/distribution.py",
    ),
)
