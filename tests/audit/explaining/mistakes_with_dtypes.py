"""Mistakes with autocast, with tensors of two dtypes, and with numbers that a format cannot hold."""

from __future__ import annotations

from contextlib import nullcontext

import ml_dtypes
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributions import Normal

from tests.audit.explaining.provoking import HALF, Mistake, X, given

F8 = torch.float8_e4m3fn
SQUARE = torch.eye(4)
EYES = SQUARE[None]
CPU = {"device_type": "cpu"}


def _autocast(dtype: torch.dtype = torch.bfloat16, enabled: bool = True) -> torch.autocast:
    return torch.autocast("cpu", dtype=dtype, enabled=enabled)


def _multiplied(under_autocast: bool) -> torch.Tensor:
    with _autocast(enabled=under_autocast):
        return SQUARE @ SQUARE.half()


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return grad @ b.T, a.T @ grad


class _ProductUnderAutocast(_Product):
    forward = staticmethod(torch.amp.custom_fwd(_Product.forward, device_type="cpu"))
    backward = staticmethod(torch.amp.custom_bwd(_Product.backward, device_type="cpu"))


def _joined(other: torch.Tensor) -> None:
    with torch.autocast("cpu", dtype=torch.float16):
        torch.cat([other, X])


def _own_function(function: type[torch.autograd.Function]) -> None:
    a, b = (SQUARE.clone().requires_grad_() for _ in range(2))
    with _autocast():
        product = function.apply(a, b)
    product.sum().backward()


def _cuda_autocast(loss: object) -> None:
    """Ask CUDA's autocast of a loss, with tensors that have no values."""
    with FakeTensorMode():
        predicted = torch.empty(4, device="cuda", dtype=torch.float16)
        torch.set_autocast_enabled("cuda", True)
        try:
            loss(predicted, predicted)
        finally:
            torch.set_autocast_enabled("cuda", False)


def _written(dtype: torch.dtype) -> None:
    out = torch.zeros(2, 4, dtype=torch.float32)
    out[torch.tensor([0])] = HALF[:1].to(dtype)


def _norm(parameters: torch.dtype) -> torch.Tensor:
    return nn.LayerNorm(4).to(parameters)(X)


def _convolve(inputs: torch.dtype) -> torch.Tensor:
    return nn.Conv2d(1, 1, 1)(torch.ones(1, 1, 2, 2).to(inputs))


def _set_weight(as_attribute: bool) -> None:
    layer = nn.Linear(4, 4)
    if as_attribute:
        layer.weight = layer.weight.half()
    with torch.no_grad():
        layer.half().weight.copy_(SQUARE)


def _attend(dtype: torch.dtype) -> torch.Tensor:
    q = k = X[None]
    return F.scaled_dot_product_attention(q.to(dtype), k.to(dtype), HALF[None])


def _loss(cast: bool) -> None:
    predicted, target = HALF.clone().requires_grad_(), X
    F.binary_cross_entropy(predicted.float() if cast else predicted, target).backward()


def _scaled_product(dtype: torch.dtype) -> None:
    matrix, scale = torch.ones(16, 16).to(dtype), torch.tensor(1.0)
    torch._scaled_mm(matrix, matrix.T, scale, scale, out_dtype=torch.bfloat16)


def _in_fp32(late: bool) -> None:
    weight = HALF.clone().requires_grad_()
    if not late:
        weight.grad_dtype = torch.float32
    weight.sum().backward()
    weight.grad_dtype = torch.float32


def _grouped(
    dtype: torch.dtype = torch.bfloat16, of_weights: torch.dtype = torch.bfloat16, **more: object
) -> torch.Tensor:
    """Multiply two groups of rows, each by its own matrix."""
    ends = torch.tensor([2, 4], dtype=torch.int32)
    rows, weights = torch.ones(4, 16), torch.ones(2, 16, 16)
    return F.grouped_mm(rows.to(dtype), weights.to(of_weights), offs=ends, **more)


def _added_to(dtype: torch.dtype) -> torch.Tensor:
    matrix, scale, each = torch.ones(16, 16).to(F8), torch.tensor(1.0), F.ScalingType.TensorWise
    return F.scaled_addmm(torch.ones(16, 16, dtype=dtype), matrix, matrix.T, scale, each, scale, each)


def _distances(island: bool) -> None:
    with _autocast():
        hidden = nn.Linear(4, 4)(X)
        with _autocast(enabled=False) if island else nullcontext():
            torch.histogram(hidden.float() if island else hidden, 4)


def _spectrum(signal: torch.Tensor) -> torch.Tensor:
    return torch.stft(signal.flatten(), 4, window=torch.ones(4, dtype=signal.dtype), return_complex=True)


def _sample(logits: torch.Tensor) -> None:
    torch.multinomial(logits.softmax(-1), 1)


def _set_precision(name: str) -> None:
    torch.backends.cuda.matmul.fp32_precision = name


LOGITS, TINY = torch.tensor([0.0, 1e5]), torch.tensor(1e-9)  # beyond fp16

AUTOCAST = (
    given("autocast_off_for_this_dtype", _autocast, torch.float32, torch.bfloat16),
    given("unsafe_to_autocast", _cuda_autocast, F.binary_cross_entropy, F.binary_cross_entropy_with_logits),
    Mistake("no_such_name_in_torch_amp", lambda: torch.amp.cuda, lambda: torch.amp.custom_fwd),
    given("autocast_device_unknown", torch.autocast, "gpu", "cpu"),
    given("autocast_device_unknown", torch.autocast, "meta", "cpu"),
    given("autocast_device_is_no_string", torch.autocast, torch.device("cpu"), torch.device("cpu").type),
    given("custom_function_without_device", lambda of: torch.amp.custom_fwd(id, **of), {}, CPU),
    Mistake("old_spelling", lambda: torch.cpu.amp.autocast(), lambda: torch.amp.autocast("cpu")),
    Mistake("old_spelling", lambda: torch.cpu.amp.GradScaler(), lambda: torch.amp.GradScaler("cpu")),
    given("old_spelling_with_a_device", lambda amp: amp.autocast(**CPU), torch.cuda.amp, torch.amp),
    given("old_spelling_with_a_device", lambda amp: amp.GradScaler(device="cpu"), torch.cuda.amp, torch.amp),
)

DTYPES = (
    given("product_of_two_dtypes", _multiplied, False, True),
    given("product_of_two_dtypes", lambda x: torch.einsum("ij,jk->ik", X, x), SQUARE.half(), SQUARE),
    given("product_of_two_dtypes", lambda x: torch.addmm(SQUARE, SQUARE, x), SQUARE.half(), SQUARE),
    given("fp64_beside_fp32", lambda x: X @ x, SQUARE.double(), SQUARE),
    given("fp64_beside_fp32", nn.Linear(4, 4), X.double(), X),
    given("fp64_beside_fp32", _convolve, torch.float64, torch.float32),
    given("fp64_beside_fp32", lambda dtype: nn.Conv1d(2, 1, 1).to(dtype)(X), torch.float64, torch.float32),
    given("fp64_beside_fp32", lambda x: torch.bmm(x, EYES), EYES.double(), EYES),
    given("fp64_beside_fp32", lambda x: torch.bmm(EYES, x), EYES.double(), EYES),
    given("whole_numbers_in_a_product", lambda x: HALF @ x, SQUARE.to(torch.uint8), SQUARE.half()),
    given("whole_numbers_in_a_product", nn.Linear(4, 4), X.long(), X),
    given("whole_numbers_in_a_product", _convolve, torch.uint8, torch.float32),
    given("whole_numbers_in_a_product", lambda x: torch.bmm(EYES, x), EYES.to(torch.int8), EYES),
    given("tensor_for_a_parameter", _set_weight, True, False),
    given("product_of_two_dtypes", lambda x: SQUARE.mv(x[0]), HALF, X),
    given("product_of_two_dtypes", lambda x: X[0].dot(x[0]), HALF, X),
    given("product_of_two_dtypes", _own_function, _Product, _ProductUnderAutocast),
    given("layer_of_another_dtype", lambda x: F.conv1d(x[None], x[None, :, :1], torch.ones(1)), HALF, X),
    given("layer_of_another_dtype", nn.LSTM(4, 4), HALF, HALF.float()),
    given("norm_of_two_dtypes", _norm, torch.float16, torch.float32),
    given("attention_of_two_dtypes", _attend, torch.float32, torch.float16),
    given("written_into_another_dtype", _written, torch.float16, torch.float32),
    given("written_into_another_dtype", lambda x: X.index_add(0, torch.tensor([0]), x), HALF[:1], X[:1]),
    given("written_into_another_dtype", lambda x: X.scatter(0, torch.tensor([[0]]), x), HALF, X),
    given("written_into_another_dtype", lambda x: X.masked_scatter(X > 0, x), HALF, X),
    given("out_of_another_dtype", lambda x: torch.mm(SQUARE, SQUARE, out=x), SQUARE.half(), SQUARE.clone()),
    given("result_of_another_dtype", lambda x: x.add_(HALF), X.long(), X.clone()),
    given("two_16_bit_formats", _joined, X.bfloat16(), X),
    given("loss_of_two_dtypes", _loss, False, True),
    Mistake(
        "no_bf16_from_numpy",
        lambda: torch.from_numpy(np.ones(2, ml_dtypes.bfloat16)),
        lambda: torch.from_numpy(np.ones(2, ml_dtypes.bfloat16).astype(np.float32)).bfloat16(),
    ),
    given("numpy_has_no_bf16", lambda x: x.numpy(), X.bfloat16(), X),
    given("numpy_has_no_bf16", lambda x: x.numpy(), X.to(F8), X),
    given("no_16_bit_kernel", _distances, False, True),
    given("no_16_bit_algebra", torch.linalg.inv, SQUARE.half(), SQUARE),
    given("no_16_bit_algebra", lambda x: torch.complex(x, x), X.bfloat16(), X),
    given("no_16_bit_algebra", lambda x: torch.linalg.lstsq(x, x), SQUARE.half(), SQUARE),
    given("no_16_bit_algebra", lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), HALF, X),
    given("no_16_bit_algebra", lambda x: x.quantile(0.5), HALF, X),
    given("no_16_bit_algebra", torch.fft.fft, X.bfloat16(), X),
    given("no_16_bit_algebra", lambda x: x.pinverse(), HALF, X),
    given("no_16_bit_algebra", _spectrum, HALF, X),
    given(
        "no_16_bit_algebra", lambda x: torch.sparse.sampled_addmm((x.T @ x).to_sparse_csr(), x.T, x), HALF, X
    ),
    given("complex_of_two_halves", torch.view_as_complex, torch.ones(4, 2).bfloat16(), torch.ones(4, 2)),
    given("tensors_of_two_dtypes", lambda x: torch.linalg.solve(SQUARE, x), SQUARE.bfloat16(), SQUARE),
    given("tensors_of_two_dtypes", lambda x: torch.baddbmm(x[None], X[None], SQUARE[None]), HALF, X),
    given("tensors_of_two_dtypes", lambda x: torch.linalg.householder_product(SQUARE, x[0]), HALF, X),
    given("cast_to_whole_numbers", nn.Linear(4, 4).to, torch.int8, X.dtype),
    given("kernel_for_other_dtypes", lambda x: x.to_mkldnn(), X.double(), X),
    given("kernel_for_other_dtypes", X.to_mkldnn, torch.float64, torch.float16),
    given("kernel_for_other_dtypes", X.to(torch.int8).to_mkldnn().to_dense, torch.float32, None),
)

GROUPED = (
    given("product_of_two_dtypes", lambda of: _grouped(torch.bfloat16, of), torch.float32, torch.bfloat16),
    given("kernel_for_other_dtypes", lambda of: _grouped(of, of), torch.float64, torch.float32),
    given("result_dtype_of_a_product", lambda to: _grouped(out_dtype=to), torch.float32, torch.bfloat16),
)

GRADIENTS = (given("gradient_of_another_dtype", _in_fp32, True, False),)

ADDED = (
    Mistake("no_fp8_device", lambda: _added_to(torch.float32), lambda: _scaled_product(F8)),
    Mistake("kernel_for_other_dtypes", lambda: _added_to(torch.float64), lambda: _scaled_product(F8)),
)

NUMBERS = (
    given("numbers_cast_beyond_fp16", np.full(2, 1e6).astype, np.float16, np.float32),
    given("nan_surfaces_elsewhere", torch.linalg.svd, SQUARE * torch.nan, SQUARE),
    given("unknown_precision", torch.set_float32_matmul_precision, "fast", "highest"),
    given("unknown_precision", _set_precision, "fast", "none"),
    given("constant_too_large", lambda x: HALF.masked_fill(HALF > 0, x), -1e9, torch.finfo(HALF.dtype).min),
    given("probabilities_not_finite", _sample, LOGITS.half(), LOGITS),
    given("invalid_distribution", lambda x: Normal(0.0, x, validate_args=True), TINY.half(), TINY),
    given("nan_surfaces_elsewhere", int, X[0, 0] * torch.nan, X[0, 0]),
    given("out_of_memory", torch.empty, 2**52, 2),
    Mistake("no_fp8_kernel", lambda: X.to(F8) + X.to(F8), lambda: (X.to(F8).float() + 1).to(F8)),
    given("no_fp8_promotion", lambda x: x + X, X.to(F8), X.to(F8).float()),
    given("constant_too_large_for_fp8", X.to(F8).fill_, 1e6, torch.finfo(F8).max),
    Mistake(
        "scaled_product",
        lambda: torch._scaled_mm(torch.ones(16, 16).to(F8), torch.ones(16, 16).to(F8).T),
        lambda: _scaled_product(F8),
    ),
    given("scaled_product", _scaled_product, torch.float32, F8),
)
