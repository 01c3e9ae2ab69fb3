"""What PyTorch says in C++ and a CPU cannot provoke stands in its libraries, as the entries have it."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import pytest
import torch

from amp_lessons import audit
from amp_lessons.audit.explaining import MESSAGES
from tests.audit.explaining.provoking import heard
from tests.audit.explaining.said_by_torch import TORCH, messages, said_by_torch
from tests.audit.explaining.test_mistakes import MISTAKES

CPU = "lib/libtorch_cpu.so"
CUDA = "lib/libtorch_cuda.so"
C10_CUDA = "lib/libc10_cuda.so"
PYTHON = "lib/libtorch_python.so"
HEADER = "include/ATen/autocast_mode.h"

# What a file of PyTorch's holds of a message in one piece, and the message that is made of it.
IN_FILES = (
    ("unsafe_to_autocast", CPU, "torch.nn.BCELoss are unsafe to autocast.", "binary_cross_entropy and {}"),
    ("autocast_device_unknown", HEADER, "unknown device type for autocast", "{} in get_lower_precision"),
    (
        "old_spelling",
        PYTHON,
        "torch.set_autocast_gpu_dtype(dtype) is deprecated. ",
        "{}Please use torch.set_autocast_dtype('cuda', dtype) instead.",
    ),
    ("autocast_in_a_script", CPU, "Unsupported autocast syntax", "{}"),
    ("autocast_in_a_script", CPU, "Autocast has invalid fast_dtype attribute", "{}"),
    ("autocast_in_a_script", CPU, "Autocast _enabled argument must be a constant", "{}"),
    ("autocast_in_a_script", CPU, "Unsupported case by AMP & JIT", "{}"),
    ("autocast_in_a_script", CPU, "Calls are not expected with AMP & JIT", "{}"),
    ("autocast_in_a_script", CPU, "Unexpected prim::CallMethod form with AMP & JIT", "{}"),
    (
        "layer_of_another_dtype",
        CPU,
        " tensors are not the same dtype, found input tensor with ",
        "Input and parameter{}Half and parameter tensor with Float",
    ),
    ("layer_of_another_dtype", CPU, ") should be the same", "Input type (float) and bias type (c10::Half{}"),
    ("scaled_product", CPU, "mat1 and mat2 must be fp8 types, got: ", "{}Float and Float"),
    ("scaled_product", CPU, "Expected mat1 to be Float8 matrix got ", "{}Float"),
    ("out_of_memory", C10_CUDA, "CUDA out of memory. Tried to allocate ", "{}2.00 GiB. GPU 0 has a total"),
    (
        "bf16_gradients_on_cuda",
        CUDA,
        "_amp_foreach_non_finite_check_and_unscale_cuda",
        "\"{}\" not implemented for 'BFloat16'",
    ),
)

# As they stand in public reports: the CPU's libraries do not hold them, or other versions say them so.
REPORTED = (
    ("no_fp8_device", "torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0"),
    (
        "autocast_off_without_cuda",
        "User provided device_type of 'cuda', but CUDA is not available. Disabling",
    ),
    ("no_16_bit_kernel", "\"addmm_impl_cpu_\" not implemented for 'Half'"),
    ("constant_too_large", "value cannot be converted to type at::Half without overflow"),
    ("gradient_of_another_dtype", "assigned grad has data of a different type"),
    ("gradient_of_another_dtype", "Cannot set grad_dtype to 'BFloat16' because there is already a gradient"),
    (
        "shards_of_two_dtypes",
        "`FlatParameter` requires uniform dtype but got torch.float16 and torch.float32",
    ),
    ("bf16_gradients_on_cuda", IN_FILES[-1][3].format(IN_FILES[-1][2])),
    ("product_of_two_dtypes", "expected mat1 and mat2 to have the same dtype, but got: float != c10::Half"),
    ("out_of_memory", "CUDA error: out of memory"),
    (
        "no_16_bit_algebra",
        "cuFFT only supports dimensions whose sizes are powers of two when computing in half precision",
    ),
    *(  # by PyTorch 2.15, in Python or CUDA's libraries
        ("fused_state_dtypes", "Mixed-precision fused Adam requires bfloat16 optimizer states, got Float"),
        ("result_dtype_of_a_product", "out_dtype must be float32 for fp8 inputs on ROCm, got torch.bfloat16"),
        (
            "kernel_for_other_dtypes",
            "qlinear_prepack expects int8 or float8_e4m3fn weight, got torch.float32",
        ),
        ("kernel_for_other_dtypes", "input must have dtype BFloat16, Half, or Float, but got torch.float64"),
        (
            "kernel_for_other_dtypes",
            "FlexGEMM scaled grouped GEMMs are not supported yet; only bf16 "
            "torch.nn.functional.grouped_mm with offs is supported",
        ),
        ("kernel_for_other_dtypes", "FlexGEMM QUACK grouped_mm supports only bf16/fp16 k-major 2-D A"),
        ("kernel_for_other_dtypes", "expected mat1 dtype in [bfloat16, float16, float] and mat2 dtype int8"),
        ("kernel_for_other_dtypes", "Expected dtype to be float16, bfloat16, or float32, got torch.int8"),
        ("kernel_for_other_dtypes", "mkldnn tensor only can be converted to be a float, bfloat16, Half"),
        ("compiler_at_fault", "Expected device to be set for bf16 support check"),
        ("compiler_at_fault", "expected float32 or bfloat16, got torch.float16"),
        (
            "fp32_product_in_tf32_only",
            "FlexGEMM QUACK computes float32 GEMM operands in TF32, but torch.back",
        ),
        ("no_fp8_device", "Could not run 'aten::_scaled_addmm.out' with arguments from the 'CPU' backend."),
    ),
    *(  # by frameworks, as their published source and public reports had it on 25 November 2026
        (
            "scale_at_minimum",
            "Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        ),
        ("scale_at_minimum", "Minimum loss scale reached (0.0001). Your loss is probably exploding."),
        (
            "step_skipped",
            "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 16384, reducing to 8192",
        ),
        ("step_skipped", "OVERFLOW! Skipping step. Attempted loss scale: 65536, reducing to 32768"),
        ("step_skipped", "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0"),
        (
            "trainer_without_bf16",
            "Your setup doesn't support bf16/(cpu, tpu, neuroncore). You need torch>=1.10",
        ),
        (
            "engine_without_bf16",
            "Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4",
        ),
        ("launcher_without_16_bits", "fp16 mixed precision requires a GPU (not 'cpu')."),
        (
            "no_16_bit_product",
            "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmStridedBatchedEx(handle, opa, "
            "opb, (int)m, (int)n, (int)k, (void*)&falpha, a, CUDA_R_16BF, (int)lda, stridea, b, CUDA_R_16BF",
        ),
        ("flash_attention_in_fp32", "FlashAttention only support fp16 and bf16 data type"),
        (
            "flash_attention_in_fp32",
            "Flash Attention 2 only supports torch.float16 and torch.bfloat16 dtypes, but the current",
        ),
        (
            "inputs_cast_to_fp16",
            "MatMul8bitLt: inputs will be cast from torch.bfloat16 to float16 during quantization",
        ),
        (
            "slow_4_bit_layer",
            "Input type into Linear4bit is torch.float16, but bnb_4bit_compute_dtype=torch.float32 (default)",
        ),
        (
            "fp8_size",
            "Expected trailing dimension of mat1 to be divisible by 16 but got mat1 shape: (16",
        ),
        ("fp8_size", "mat2 shape (33x16) must be divisible by 16"),
        (
            "fp8_size",
            "FP8 execution requires 2D input matrices with height divisible by 8 and width divisible by 16, "
            "but got tensor with dims=[896, 712]",
        ),
        (
            "fp8_size",
            "Tensor dimensions are not compatible for FP8 execution: (2048 % 8 != 0, 767 % 16 != 0)",
        ),
        (
            "fp8_layers_of_two_dtypes",
            "All layers must have the same last seen input_dtype, got {",
        ),
        (
            "nan_in_an_image_model",
            "A tensor with all NaNs was produced in VAE. This could be",
        ),
        ("nan_in_an_image_model", "A tensor with NaNs was produced in Unet."),
    ),
)


@pytest.mark.parametrize(("name", "file", "piece", "whole"), IN_FILES)
def test_a_file_of_pytorchs_holds_the_words(name, file, piece, whole):
    assert audit.explain(whole.format(piece)).name == name
    path = Path(torch.__file__).parent / file
    if not path.exists():
        pytest.skip(f"this PyTorch has no {file}")
    with path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        assert content.find(piece.encode()) != -1


@pytest.mark.parametrize(("name", "text"), REPORTED)
def test_what_was_reported_is_explained(name, text):
    assert audit.explain(text).name == name


def _witnesses() -> list[str]:
    """Return every message that was found, provoked or reported."""
    sources = {message.source for message in MESSAGES} - {"C++"}
    files = [TORCH.parent / source for source in sources if (TORCH.parent / source).exists()]
    return [
        *(said.text for said in said_by_torch()),
        *(text for file in files for text in messages(file.read_text("utf-8"))),
        *(str(each) for mistake in MISTAKES for each in heard(mistake.made)),
        *(whole.format(piece) for _, _, piece, whole in IN_FILES),
        *(text for _, text in REPORTED),
    ]


def test_every_pattern_has_a_witness():
    """None is made up."""
    said = [" ".join(text.split()) for text in _witnesses()]
    patterns = [pattern for message in MESSAGES for pattern in message.patterns]
    unseen = [each for each in patterns if not any(re.search(each, text) for text in said)]
    assert set(unseen) <= {_IN_A_PROCESS_OF_ITS_OWN}


_IN_A_PROCESS_OF_ITS_OWN = r"mix of the legacy and new APIs to set the (TF32 status|matmul precision)"
