"""Operations that were never written for 16 or 8 bits, and the switches for TF32."""

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
        name="complex_of_two_halves",
        patterns=(
            r"ComplexHalf support is experimental",
            r"\"[^\"]+\" not implemented for 'ComplexHalf'",
        ),
        meaning="A complex number of two fp16 numbers (`complex32`): an FFT of fp16, or fp16 pairs viewed "
        "as complex, makes it. Few operations exist for it, and each part ends at 65,504. bf16 has no "
        "complex format at all.",
        cure="Make complex numbers from fp32, `torch.view_as_complex(x.float())`, "
        "`torch.fft.rfft(x.float())`, in an `enabled=False` region, and cast the real result back.",
        lesson="02",
        source="C++",
    ),
    Message(
        name="imaginary_part_lost",
        patterns=(r"Casting complex values to real discards the imaginary part",),
        meaning="Complex numbers were cast to a real format, and half of each is gone. "
        "`model.to(torch.bfloat16)` does it to complex buffers, such as the `freqs_cis` of rotary "
        "embeddings; `half()` and `bfloat16()` leave them. In a backward pass it may be harmless: the "
        "gradient of a real tensor is real.",
        cure="Cast with `model.bfloat16()`, or keep such a buffer as two real ones (cosine and sine). "
        "Where only the real part is meant, say so: `x.real`.",
        lesson="02",
        source="C++",
    ),
    Message(
        name="no_convolution_for_this",
        patterns=(
            r"GET was unable to find an engine to execute this computation",
            r"getCudnnDataTypeFromScalarType\(\) not supported for BFloat16",
        ),
        meaning="cuDNN has no way to compute this convolution: not for this dtype and shape on this GPU, "
        "or not in the memory that is free. bf16 on a GPU older than Ampere is one case; but fp32 meets "
        "the first message too, most of all where two packages of cuDNN lie over each other.",
        cure="Run the layer once in fp32 with autocast off. If that works, leave it in such an island, or "
        "take fp16. If it fails as well, the dtype has no part in it: free memory, look at `pip list` for "
        "a second `nvidia-cudnn`, or say `torch.backends.cudnn.enabled = False`.",
        lesson="02",
        source="C++",
        seen_at="https://github.com/pytorch/pytorch/issues/88571",
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
            r"cuFFT (only supports dimensions whose sizes are powers of two|doesn't support bfloat16)",
        ),
        meaning="This operation (linear algebra, FFT, quantiles) exists in fp32 and fp64 only, and its "
        "input came out of a 16-bit operation. A 16-bit result would have few correct digits. CUDA's 16-bit "
        "FFT is for sizes that are powers of two.",
        cure=_IN_FP32,
        lesson="02",
        source="C++",
    ),
    Message(
        name="kernel_for_other_dtypes",
        patterns=(
            r"expected \S+ to be f32/f16/bf16, got",
            r"expected input to be f32 or bf16",
            r"only supports (bf16|fp16, bf16)",
            r"only bf16 torch\.nn\.functional\.grouped_mm",
            r"grouped_mm supports only bf16/fp16",
            r"Expected mat_[ab] to be Float32, BFloat16 or Float16",
            r"input must have dtype BFloat16, Half, or Float, but got",
            r"expected mat1 dtype in \[bfloat16",
            r"Expected dtype to be float16, bfloat16, or float32",
            r"output_dtype must be one of float32, bfloat16",
            r"cvt_e8m0_rceil requires",
            r"ForeachMMCublasLt only supports",
            r"MKLDNN only support float, bfloat16, and half",
            r"mkldnn(_to_dense)? (expects|tensor only can be converted to be a) float",
            r"to be a float, bfloat16, half, uint8, int8 mkldnn tensor",
            r"float8 mkldnn_tensor input, we should not change the data type",
            r"qlinear_prepack expects int8 or float8",
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
    Message(
        name="bf16_in_a_triton_kernel",
        patterns=(r"Feature '[^']*bf16[^']*' requires \.target sm_80",),
        meaning="Triton has compiled a kernel with bf16 for a GPU older than Ampere (V100, T4, RTX 20), "
        "which has no instruction for it. PyTorch's own kernels emulate bf16 there; those of "
        "`torch.compile`, or of a library, do not.",
        cure="Take fp16, to train with a `GradScaler`. Or keep bf16 without `torch.compile` and without "
        "that library's kernels; it is slow there.",
        lesson="05",
        source="ptxas, for Triton",
        seen_at="https://github.com/deepspeedai/DeepSpeed/issues/3947",
    ),
    Message(
        name="compiler_at_fault",
        patterns=(
            r"Expected device to be set for bf16 support check",
            r"expected float32 or bfloat16, got",
        ),
        meaning="`torch.compile` found something that its authors held to be impossible: a fault of the "
        "compiler's, not of your dtypes.",
        cure="Leave the function that it compiled as it is, `@torch.compiler.disable`, and report it to "
        "PyTorch.",
        lesson="05",
        source="torch/_inductor/compile_fx.py",
    ),
)


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
        name="scaled_product_without_gradient",
        patterns=(r"derivative for aten::_scaled_(grouped_)?mm(_v2)? is not implemented",),
        meaning="PyTorch's scaled product is a building block, with no backward pass: its gradients need "
        "scales of their own, and often another FP8 format.",
        cure="To train, convert the layers with torchao, `convert_to_float8_training(model)`, or take "
        "Transformer Engine; or write an `autograd.Function` with the two products of the backward pass. "
        "To run a model only, call it under `torch.no_grad()`.",
        lesson="09",
        source="C++",
        seen_at="https://github.com/pytorch/pytorch/issues/166729",
    ),
    Message(
        name="no_fp8_device",
        patterns=(
            r"torch\._scaled_mm is only supported on",
            r"mm is not supported for float8_e4m3fn(/float8_e4m3fnuz)?, please use",
            r"Could not run 'aten::_scaled_\w+(\.\w+)?' with arguments",
        ),
        meaning="This device does not have this FP8 product: CUDA has them from compute capability 8.9 (Ada, "
        "Hopper), AMD from MI300, a CPU only plain ones.",
        cure="Take bf16 here. FP8 saves memory on such a device, and no time.",
        lesson="09",
        source="C++",
    ),
    Message(
        name="no_product_in_cublaslt",
        patterns=(r"CUBLAS_STATUS_NOT_SUPPORTED when calling `?cublasLtMatmulAlgoGetHeuristic",),
        meaning="cuBLASLt has no such product on this GPU, mostly one in FP8. Below compute capability 8.9 "
        "(A100, RTX 30) there is none, which old versions of PyTorch say in no other words; 12.0 (RTX 50) "
        "lacks one with a scale per row, and some layouts.",
        cure="Below 8.9 take bf16. From there on take one scale for each tensor, and the second matrix "
        "column-major (`weight.t()`). If nothing is in FP8, look whether another CUDA library than "
        "PyTorch's own is loaded, by `LD_LIBRARY_PATH`.",
        lesson="09",
        source="C++",
        seen_at="https://github.com/pytorch/pytorch/issues/108411",
    ),
    Message(
        name="fp8_attention_scales",
        patterns=(
            r"_descale must have dtype float32",
            r"When using SDPA with fp8, descale tensor",
        ),
        meaning="Attention in FP8 multiplies what it reads by the inverse of the scale it was stored with, "
        "and needs it in fp32.",
        cure="Hand over `q_descale`, `k_descale` and `v_descale` as fp32 tensors.",
        lesson="09",
        source="torch/nn/attention/experimental/_scaled_dot_product_attention_quantized.py",
    ),
)


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
        name="fp32_product_in_tf32_only",
        patterns=(r"computes float32 GEMM operands in TF32, but",),
        meaning="This product, compiled together with what follows it, multiplies fp32 matrices in TF32 "
        "only, and TF32 is not allowed here.",
        cure="Allow TF32, `torch.set_float32_matmul_precision('high')`, or hand over 16-bit matrices.",
        lesson="05",
        source="torch/_inductor/kernel/flex_gemm/lowering.py",
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
