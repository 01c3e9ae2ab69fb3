"""Numbers of 8 bits and less, which are for storing and for scaled products only."""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message

FLOAT8 = (
    Message(
        name="no_fp8_kernel",
        patterns=(r"\"[^\"]+\" not implemented for 'Float[84]_\w+'",),
        meaning="FP8 formats are for storing and for scaled products; sums, activations and most other "
        "operations were never written for them.",
        cure="Compute in fp32 or bf16 and cast the result: `(x.float() + "
        "y.float()).to(torch.float8_e4m3fn)`.",
        lesson="09",
        source="C++",
    ),
    Message(
        name="no_fp8_promotion",
        patterns=(r"Promotion for Float8 Types is not supported",),
        meaning="PyTorch does not choose a common dtype for an FP8 tensor and another one: no choice would "
        "be harmless.",
        cure="Cast by hand, `x.float() + y`, and multiply by the tensor's scale: a bare FP8 tensor is not "
        "yet the value it stands for.",
        lesson="09",
        source="C++",
    ),
    Message(
        name="constant_too_large_for_fp8",
        patterns=(r"value cannot be converted to type (c10|at)::Float[84]_\w+ without overflow",),
        meaning="A constant is too large for an FP8 format: `float8_e4m3fn` ends at 448, `float8_e5m2` at "
        "57,344.",
        cure="Divide by a scale first: the largest magnitude of the tensor over `torch.finfo(dtype).max`.",
        lesson="09",
        source="C++",
    ),
    Message(
        name="scaled_product",
        patterns=(
            r"Invalid scaling configuration",
            r"Expected both inputs to be fp8( or fp4)? types",
            r"Expected inputs of (E4M3 FP8|BF16) type",
            r"For FP8 scales must",
            r"For MXFP8, ",
            r"scale_a and scale_b",
            r"_scaled_mm\(\) missing",
            r"(mat1 and (mat2|mat_b)|mat_a and mat_b) must be fp8",
            r"Expected mat\d to be Float8 matrix",
        ),
        meaning="A scaled product wants two 8-bit matrices and a scale for each, fp32 and of one of the "
        "shapes that the message lists: one for the tensor, one per row, or one per block.",
        cure="Cast both matrices with their scales; for one scale per tensor each scale is a single fp32 "
        "number. On CUDA the second matrix is column-major (`weight.t()`) and the sides are multiples of "
        "16.",
        lesson="09",
        source="torch/_meta_registrations.py",
    ),
    Message(
        name="no_fp8_device",
        patterns=(
            r"torch\._scaled_mm is only supported on",
            r"mm is not supported for float8_e4m3fn, please use",
        ),
        meaning="This device has no FP8 products: CUDA has them from compute capability 8.9 (Ada, Hopper), "
        "AMD from MI300.",
        cure="Take bf16 here. FP8 saves memory on such a device, and no time.",
        lesson="09",
        source="C++",
    ),
    Message(
        name="fp8_attention_scales",
        patterns=(
            r"\S+_descale must have dtype float32",
            r"When using SDPA with fp8, descale tensor",
        ),
        meaning="Attention in FP8 multiplies what it reads by the inverse of the scale it was stored with, "
        "and needs it in fp32.",
        cure="Hand over `q_descale`, `k_descale` and `v_descale` as fp32 tensors.",
        lesson="09",
        source="torch/nn/attention/experimental/_scaled_dot_product_attention_quantized.py",
    ),
)
