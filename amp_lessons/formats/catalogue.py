"""The formats that mixed precision training uses."""

from __future__ import annotations

import torch

from amp_lessons.formats.floats import FloatFormat, Specials

_FORWARD = "weights and activations in FP8 products"
_GRADIENTS = "gradients in FP8 products, one scale per tensor"

FORMATS: dict[str, FloatFormat] = {
    float_format.name: float_format
    for float_format in (
        FloatFormat("fp32", 8, 23, dtype=torch.float32, used_for="weights, optimizer state, sums"),
        FloatFormat("tf32", 8, 10, used_for="fp32 products in tensor cores, from Ampere on"),
        FloatFormat("fp16", 5, 10, dtype=torch.float16, used_for="AMP with a loss scale; older GPUs"),
        FloatFormat("bf16", 8, 7, dtype=torch.bfloat16, used_for="AMP without one, from Ampere on"),
        FloatFormat("fp8_e4m3", 4, 3, Specials.FN, torch.float8_e4m3fn, used_for=_FORWARD),
        FloatFormat("fp8_e5m2", 5, 2, dtype=torch.float8_e5m2, used_for=_GRADIENTS),
        FloatFormat(
            "fp8_e4m3fnuz", 4, 3, Specials.FNUZ, torch.float8_e4m3fnuz, used_for=f"{_FORWARD}; AMD's MI300"
        ),
        FloatFormat(
            "fp8_e5m2fnuz", 5, 2, Specials.FNUZ, torch.float8_e5m2fnuz, used_for=f"{_GRADIENTS}; AMD's MI300"
        ),
        FloatFormat(
            "fp4_e2m1", 2, 1, Specials.FINITE, used_for="products with block scales, from Blackwell on"
        ),
        FloatFormat(
            "e8m0",
            8,
            0,
            Specials.FN,
            torch.float8_e8m0fnu,
            signed=False,
            has_zero=False,
            used_for="the scale that a block shares",
        ),
    )
}
"""By name. TF32 is the operand of a tensor core's fp32 mode (rounded here to nearest even, while NVIDIA's
``cvt.rna.tf32`` takes ties away from zero); ``fnuz`` is AMD's pair; E8M0 is the shared scale of an MX
block."""
