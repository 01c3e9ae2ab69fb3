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
from tests.audit.explaining.said_by_frameworks import FRAMEWORKS
from tests.audit.explaining.said_by_torch import TORCH, said_by_torch, said_in
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
    *(  # by other versions of PyTorch, and on other devices
        ("no_scaler_in_torch_amp", "module 'torch.amp' has no attribute 'GradScaler'"),
        ("no_scaler_in_torch_amp", "module 'torch' has no attribute 'GradScaler'"),
        (
            "no_scaler_in_torch_amp",
            "cannot import name 'GradScaler' from 'torch.amp' (/lib/torch/amp/__init__.py)",
        ),
        ("autocast_off_for_this_dtype", "MPS Autocast only supports dtype of torch.bfloat16 currently."),
        (
            "no_scaler_on_this_device",
            "The operator 'aten::_amp_foreach_non_finite_check_and_unscale_' is not currently implemented "
            "for the MPS",
        ),
        (
            "no_fp64_on_mps",
            "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64.",
        ),
        (
            "no_fp64_on_mps",
            "Cannot convert a float64 Tensor to MPS as the MPS framework doesn't support float64.",
        ),
        (
            "no_bf16_on_mps",
            "Trying to convert BFloat16 to the MPS backend but it does not have support for that",
        ),
        ("no_bf16_on_mps", "MPS BFloat16 is only supported on MacOS 14 or newer"),
        ("no_bf16_on_mps", "MPS bfloat16 type is supported on MacOS 14.0 or newer."),
        ("no_bf16_on_mps", "Mixed precision training with bfloat16 is not supported on MPS. Please use fp16"),
        (
            "no_fp8_on_mps",
            "Trying to convert Float8_e4m3fn to the MPS backend but it does not have support for",
        ),
        ("no_convolution_for_this", "GET was unable to find an engine to execute this computation"),
        ("no_convolution_for_this", "getCudnnDataTypeFromScalarType() not supported for BFloat16"),
        (
            "mask_of_another_dtype",
            "Expected attn_mask dtype to be bool or to match query dtype, but got attn_mask.dtype: float "
            "and  query.dtype: struct c10::BFloat16 instead.",
        ),
        (
            "no_attention_kernel",
            "Expected query, key and value to all be of dtype: {Half, BFloat16}. Got Query dtype: float, "
            "Key dtype",
        ),
        ("probabilities_not_finite", "probability tensor contains either inf, nan or element < 0"),
        ("no_autocast_on_mps", "User specified an unsupported autocast device_type 'mps'"),
        (
            "cpu_autocast_in_fp16",
            "Currently, AutocastCPU only support Bfloat16 as the autocast_cpu_dtype",
        ),
        ("average_in_another_dtype", "expected dtype float for end but got dtype c10::BFloat16."),
        (
            "average_in_another_dtype",
            "expected dtype torch.bfloat16 for weight, but got torch.float32",
        ),
        (
            "no_product_in_cublaslt",
            "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmulAlgoGetHeuristic( ltHandle, "
            "computeDesc.descriptor(), Adesc.descriptor()",
        ),
        (
            "layer_of_another_dtype",
            "Input type (torch.cuda.FloatTensor) and weight type (torch.cuda.HalfTensor) should be the same",
        ),
        ("integers_have_no_gradient", "only Tensors of floating point dtype can require gradients"),
        (
            "layer_of_another_dtype",
            "Expected tensor for argument #1 'input' to have the same type as tensor for argument #2 "
            "'weight'; but type torch.cuda.HalfTensor does not equal torch.cuda.FloatTensor (while checking "
            "arguments for cudnn_batch_norm)",
        ),
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
    *FRAMEWORKS,
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
def test_what_was_reported_is_explained_by_one_entry(name, text):
    assert [message.name for message in MESSAGES if message.matches(text)] == [name]


def _witnesses() -> list[str]:
    """Return every message that was found, provoked or reported."""
    sources = {message.source for message in MESSAGES} - {"C++"}
    files = [TORCH.parent / source for source in sources if (TORCH.parent / source).exists()]
    return [
        *(said.text for said in said_by_torch()),
        *(text for file in files for text in said_in(file)),
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
