"""Operations that were never written for 16 bits."""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message

_IN_FP32 = (
    "Compute it in fp32 in an island: `with torch.autocast(device, enabled=False): y = op(x.float())`. "
    "Without autocast `.float()` before it does."
)

KERNELS = (
    Message(
        name="no_16_bit_kernel",
        patterns=(r"\"(?!_amp_)[^\"]+\" not implemented for '(Half|BFloat16)'",),
        meaning="The operation named first has no kernel for this dtype on this device. Autocast casts "
        "only the operations on its lists; what comes between runs in the dtype of its inputs, here 16 "
        "bits. The CPU has fewer 16-bit kernels than CUDA: a model that was cast with `half()` for a GPU "
        "often fails on it.",
        cure=_IN_FP32 + " On a CPU take bf16, of which it has more kernels.",
        lesson="02",
        source="C++",
    ),
    Message(
        name="no_16_bit_algebra",
        patterns=(
            r"(Low|Half) precision dtypes not supported",
            r"Unsupported dtype (Half|BFloat16)",
            r"Expected both inputs to be Half, Float or Double tensors but got",
            r"doesn't handle types other than float and double",
            r"input tensor must be either float or double dtype",
            r"Quantize only works on Float Tensor, got (Half|BFloat16)",
        ),
        meaning="This operation (linear algebra, FFT, quantiles) exists in fp32 and fp64 only, and its "
        "input came out of a 16-bit operation. A 16-bit result would have few correct digits.",
        cure=_IN_FP32,
        lesson="02",
        source="C++",
    ),
    Message(
        name="kernel_for_other_dtypes",
        patterns=(
            r"expected \S+ to be f32/f16/bf16, got",
            r"expected input to be f32 or bf16",
            r"\S+ only supports (bf16|fp16, bf16)",
            r"output_dtype must be one of float32, bfloat16",
            r"cvt_e8m0_rceil requires",
            r"ForeachMMCublasLt only supports",
            r"MKLDNN only support float, bfloat16, and half",
            r"tensor dtype is \S+ while expected to be FP16",
            r"only supported dtypes for dynamic quantized linear",
            r"half_to_float is True but",
            r"Unsupported reduction dtype",
            r"expected [AB]\.dtype float8_e4m3fn",
        ),
        meaning="A special kernel (quantised, sparse or fused) was called with a dtype that it was not "
        "written for; the message lists those that it takes.",
        cure="Cast its inputs to one of the dtypes that the message lists, or call the ordinary operation. "
        "Under autocast look at the dtype of what really arrives: `print(x.dtype)` before the call.",
        lesson="02",
        source="torch/_meta_registrations.py",
    ),
    Message(
        name="no_bf16_in_this_compiler",
        patterns=(
            r"does not support bfloat16 compilation natively",
            r"(^|: )BF16 is not supported",
        ),
        meaning="`torch.compile` found that this GPU has no arithmetic in bf16, and leaves that code "
        "uncompiled.",
        cure="Take fp16 with a `GradScaler`, or a GPU of compute capability 8.0 and up.",
        lesson="01",
        source="torch/_inductor/compile_fx.py",
    ),
)
