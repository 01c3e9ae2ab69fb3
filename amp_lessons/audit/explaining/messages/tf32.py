"""The switches for TF32, of which there are an old and a new set."""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message

TF32 = (
    Message(
        name="old_and_new_switches",
        patterns=(r"mix of the legacy and new APIs to set the (TF32 status|matmul precision)",),
        meaning="TF32 was set by the new switch (`fp32_precision`) and read by an old one (`allow_tf32`, "
        "`get_float32_matmul_precision`), or the other way. A library may do the reading.",
        cure="Use one set throughout. Where a library reads the old ones, set the old ones: "
        "`torch.set_float32_matmul_precision('high')`.",
        lesson="05",
        source="C++",
        seen_at="https://github.com/pytorch/pytorch/issues/179445",
    ),
    Message(
        name="unknown_precision",
        patterns=(
            r"is not one of 'highest', 'high', or 'medium'",
            r"Unknown precision: ",
        ),
        meaning="The precision of fp32 products was set to a word that PyTorch does not know.",
        cure="`torch.set_float32_matmul_precision` takes `highest` (fp32), `high` (TF32) and `medium` "
        "(bf16 where that is faster); `fp32_precision` takes `ieee` and `tf32`.",
        lesson="05",
        source="C++",
    ),
)
