"""The formats that mixed precision training uses."""

from __future__ import annotations

import torch

from amp_lessons.formats.floats import FloatFormat, Specials

FORMATS: dict[str, FloatFormat] = {
    float_format.name: float_format
    for float_format in (
        FloatFormat("fp32", 8, 23, dtype=torch.float32),
        FloatFormat("tf32", 8, 10),
        FloatFormat("fp16", 5, 10, dtype=torch.float16),
        FloatFormat("bf16", 8, 7, dtype=torch.bfloat16),
        FloatFormat("fp8_e4m3", 4, 3, Specials.FN, torch.float8_e4m3fn),
        FloatFormat("fp8_e5m2", 5, 2, dtype=torch.float8_e5m2),
        FloatFormat("fp8_e4m3fnuz", 4, 3, Specials.FNUZ, torch.float8_e4m3fnuz),
        FloatFormat("fp8_e5m2fnuz", 5, 2, Specials.FNUZ, torch.float8_e5m2fnuz),
        FloatFormat("fp4_e2m1", 2, 1, Specials.FINITE),
        FloatFormat("e8m0", 8, 0, Specials.FN, torch.float8_e8m0fnu, signed=False, has_zero=False),
    )
}
"""By name. TF32 is the operand of a tensor core's fp32 mode (rounded here to nearest even, while NVIDIA's
``cvt.rna.tf32`` takes ties away from zero); ``fnuz`` is AMD's pair; E8M0 is the shared scale of an MX
block."""
