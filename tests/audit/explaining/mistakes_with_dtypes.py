"""Mistakes with autocast, with tensors of two dtypes, and with numbers that a format cannot hold."""

from __future__ import annotations

from contextlib import nullcontext

import ml_dtypes
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.audit.explaining.provoking import HALF, Mistake, X

F8 = torch.float8_e4m3fn
SQUARE = torch.eye(4)


def _autocast(enabled: bool = True) -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled)


def _under_autocast(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    with _autocast():
        return a @ b


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


def _grouped(dtype: torch.dtype, of_weights: torch.dtype, **more: object) -> torch.Tensor:
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


LOGITS = torch.tensor([0.0, 1e5])  # beyond fp16

AUTOCAST = (
    Mistake(
        "autocast_off_for_this_dtype",
        lambda: torch.autocast("cpu", dtype=torch.float32),
        lambda: torch.autocast("cpu", enabled=False),
    ),
    Mistake(
        "unsafe_to_autocast",
        lambda: _cuda_autocast(F.binary_cross_entropy),
        lambda: _cuda_autocast(F.binary_cross_entropy_with_logits),
    ),
    Mistake("no_such_name_in_torch_amp", lambda: torch.amp.cuda, lambda: torch.amp.custom_fwd),
    Mistake("autocast_device_unknown", lambda: torch.autocast("gpu"), lambda: torch.autocast("cpu")),
    Mistake("autocast_device_unknown", lambda: torch.autocast("meta"), lambda: torch.autocast("cpu")),
    Mistake(
        "autocast_device_is_no_string",
        lambda: torch.autocast(torch.device("cpu")),
        lambda: torch.autocast(torch.device("cpu").type),
    ),
    Mistake(
        "custom_function_without_device",
        lambda: torch.amp.custom_fwd(lambda ctx: ctx),
        lambda: torch.amp.custom_fwd(lambda ctx: ctx, device_type="cpu"),
    ),
    Mistake("old_spelling", lambda: torch.cpu.amp.autocast(), lambda: torch.amp.autocast("cpu")),
    Mistake("old_spelling", lambda: torch.cpu.amp.GradScaler(), lambda: torch.amp.GradScaler("cpu")),
    Mistake(
        "old_spelling_with_a_device",
        lambda: torch.cuda.amp.autocast(device_type="cuda"),
        lambda: torch.amp.autocast(device_type="cpu"),
    ),
    Mistake(
        "old_spelling_with_a_device",
        lambda: torch.cuda.amp.GradScaler(device="cuda"),
        lambda: torch.amp.GradScaler(device="cpu"),
    ),
)

DTYPES = (
    Mistake(
        "product_of_two_dtypes",
        lambda: SQUARE @ SQUARE.half(),
        lambda: _under_autocast(SQUARE, SQUARE.half()),
    ),
    Mistake("product_of_two_dtypes", lambda: torch.einsum("ij,jk->ik", X, SQUARE.half()), lambda: X @ SQUARE),
    Mistake(
        "product_of_two_dtypes",
        lambda: torch.addmm(SQUARE, SQUARE, SQUARE.half()),
        lambda: torch.addmm(SQUARE, SQUARE, SQUARE.half().float()),
    ),
    Mistake("fp64_beside_fp32", lambda: X @ SQUARE.double(), lambda: X @ SQUARE.double().float()),
    Mistake("fp64_beside_fp32", lambda: nn.Linear(4, 4)(X.double()), lambda: nn.Linear(4, 4)(X)),
    Mistake("fp64_beside_fp32", lambda: _convolve(torch.float64), lambda: _convolve(torch.float32)),
    Mistake("fp64_beside_fp32", lambda: nn.Conv1d(2, 1, 1).double()(X), lambda: nn.Conv1d(2, 1, 1)(X)),
    Mistake(
        "fp64_beside_fp32",
        lambda: torch.bmm(SQUARE[None].double(), SQUARE[None]),
        lambda: torch.bmm(SQUARE[None].double().float(), SQUARE[None]),
    ),
    Mistake(
        "fp64_beside_fp32",
        lambda: torch.bmm(SQUARE[None], SQUARE[None].double()),
        lambda: torch.bmm(SQUARE[None], SQUARE[None].double().float()),
    ),
    Mistake(
        "whole_numbers_in_a_product",
        lambda: HALF @ SQUARE.to(torch.uint8),
        lambda: HALF @ SQUARE.to(torch.uint8).to(HALF.dtype),
    ),
    Mistake("whole_numbers_in_a_product", lambda: nn.Linear(4, 4)(X.long()), lambda: nn.Linear(4, 4)(X)),
    Mistake("whole_numbers_in_a_product", lambda: _convolve(torch.uint8), lambda: _convolve(torch.float32)),
    Mistake(
        "whole_numbers_in_a_product",
        lambda: torch.bmm(SQUARE[None], SQUARE[None].to(torch.int8)),
        lambda: torch.bmm(SQUARE[None], SQUARE[None].to(torch.int8).float()),
    ),
    Mistake("tensor_for_a_parameter", lambda: _set_weight(as_attribute=True), lambda: _set_weight(False)),
    Mistake("product_of_two_dtypes", lambda: SQUARE.mv(HALF[0]), lambda: SQUARE.mv(X[0])),
    Mistake("product_of_two_dtypes", lambda: X[0].dot(HALF[0]), lambda: X[0].dot(X[0])),
    Mistake(
        "product_of_two_dtypes",
        lambda: _own_function(_Product),
        lambda: _own_function(_ProductUnderAutocast),
    ),
    Mistake(
        "layer_of_another_dtype",
        lambda: F.conv1d(HALF[None], torch.ones(1, 2, 1).half(), torch.ones(1)),
        lambda: F.conv1d(X[None], torch.ones(1, 2, 1), torch.ones(1)),
    ),
    Mistake("layer_of_another_dtype", lambda: nn.LSTM(4, 4)(HALF), lambda: nn.LSTM(4, 4)(HALF.float())),
    Mistake("norm_of_two_dtypes", lambda: _norm(torch.float16), lambda: _norm(torch.float32)),
    Mistake("attention_of_two_dtypes", lambda: _attend(torch.float32), lambda: _attend(torch.float16)),
    Mistake("written_into_another_dtype", lambda: _written(torch.float16), lambda: _written(torch.float32)),
    Mistake(
        "written_into_another_dtype",
        lambda: X.index_add(0, torch.tensor([0]), HALF[:1]),
        lambda: X.index_add(0, torch.tensor([0]), HALF[:1].to(X.dtype)),
    ),
    Mistake(
        "written_into_another_dtype",
        lambda: X.scatter(0, torch.zeros(1, 4, dtype=torch.long), HALF),
        lambda: X.scatter(0, torch.zeros(1, 4, dtype=torch.long), X),
    ),
    Mistake(
        "written_into_another_dtype",
        lambda: X.masked_scatter(X > 0, HALF),
        lambda: X.masked_scatter(X > 0, X),
    ),
    Mistake(
        "out_of_another_dtype",
        lambda: torch.mm(SQUARE.half(), SQUARE.half(), out=torch.empty(4, 4)),
        lambda: torch.mm(SQUARE.half(), SQUARE.half(), out=torch.empty(4, 4, dtype=torch.float16)),
    ),
    Mistake("result_of_another_dtype", lambda: X.long().add_(HALF), lambda: X.clone().add_(HALF)),
    Mistake("two_16_bit_formats", lambda: _joined(X.bfloat16()), lambda: _joined(X.bfloat16().float())),
    Mistake("loss_of_two_dtypes", lambda: _loss(cast=False), lambda: _loss(cast=True)),
    Mistake(
        "no_bf16_from_numpy",
        lambda: torch.from_numpy(np.ones(2, ml_dtypes.bfloat16)),
        lambda: torch.from_numpy(np.ones(2, ml_dtypes.bfloat16).astype(np.float32)).bfloat16(),
    ),
    Mistake("numpy_has_no_bf16", lambda: X.bfloat16().numpy(), lambda: X.bfloat16().float().numpy()),
    Mistake("numpy_has_no_bf16", lambda: X.to(F8).numpy(), lambda: X.to(F8).float().numpy()),
    Mistake("no_16_bit_kernel", lambda: _distances(island=False), lambda: _distances(island=True)),
    Mistake("no_16_bit_algebra", lambda: torch.linalg.inv(SQUARE.half()), lambda: torch.linalg.inv(SQUARE)),
    Mistake(
        "no_16_bit_algebra",
        lambda: torch.complex(X.bfloat16(), X.bfloat16()),
        lambda: torch.complex(X.bfloat16().float(), X.bfloat16().float()),
    ),
    Mistake(
        "no_16_bit_algebra",
        lambda: torch.linalg.lstsq(SQUARE.half(), SQUARE.half()),
        lambda: torch.linalg.lstsq(SQUARE, SQUARE),
    ),
    Mistake(
        "no_16_bit_algebra",
        lambda: torch.quantize_per_tensor(HALF, 0.1, 0, torch.qint8),
        lambda: torch.quantize_per_tensor(HALF.float(), 0.1, 0, torch.qint8),
    ),
    Mistake("no_16_bit_algebra", lambda: HALF.quantile(0.5), lambda: HALF.float().quantile(0.5)),
    Mistake("no_16_bit_algebra", lambda: torch.fft.fft(X.bfloat16()), lambda: torch.fft.fft(X)),
    Mistake("no_16_bit_algebra", lambda: HALF.pinverse(), lambda: HALF.float().pinverse()),
    Mistake("no_16_bit_algebra", lambda: _spectrum(HALF), lambda: _spectrum(HALF.float())),
    Mistake(
        "no_16_bit_algebra",
        lambda: torch.sparse.sampled_addmm(SQUARE.half().to_sparse_csr(), HALF.T, HALF),
        lambda: torch.sparse.sampled_addmm(SQUARE.to_sparse_csr(), X.T, X),
    ),
    Mistake(
        "complex_of_two_halves",
        lambda: torch.view_as_complex(torch.ones(4, 2).bfloat16()),
        lambda: torch.view_as_complex(torch.ones(4, 2)),
    ),
    Mistake(
        "tensors_of_two_dtypes",
        lambda: torch.linalg.solve(SQUARE, SQUARE.bfloat16()),
        lambda: torch.linalg.solve(SQUARE, SQUARE.bfloat16().float()),
    ),
    Mistake(
        "tensors_of_two_dtypes",
        lambda: torch.baddbmm(HALF[None], X[None], SQUARE[None]),
        lambda: torch.baddbmm(X[None], X[None], SQUARE[None]),
    ),
    Mistake(
        "tensors_of_two_dtypes",
        lambda: torch.linalg.householder_product(SQUARE, HALF[0]),
        lambda: torch.linalg.householder_product(SQUARE, X[0]),
    ),
    Mistake(
        "cast_to_whole_numbers", lambda: nn.Linear(4, 4).to(torch.int8), lambda: nn.Linear(4, 4).to(X.dtype)
    ),
    Mistake("kernel_for_other_dtypes", lambda: X.double().to_mkldnn(), lambda: X.to_mkldnn()),
    Mistake(
        "kernel_for_other_dtypes", lambda: X.to_mkldnn(torch.float64), lambda: X.to_mkldnn(torch.float16)
    ),
    Mistake(
        "kernel_for_other_dtypes",
        lambda: X.to(torch.int8).to_mkldnn().to_dense(torch.float32),
        lambda: X.to(torch.int8).to_mkldnn().to_dense().float(),
    ),
)

GROUPED = (
    Mistake(
        "product_of_two_dtypes",
        lambda: _grouped(torch.bfloat16, torch.float32),
        lambda: _grouped(torch.bfloat16, torch.bfloat16),
    ),
    Mistake(
        "kernel_for_other_dtypes",
        lambda: _grouped(torch.float64, torch.float64),
        lambda: _grouped(torch.float32, torch.float32),
    ),
    Mistake(
        "result_dtype_of_a_product",
        lambda: _grouped(torch.bfloat16, torch.bfloat16, out_dtype=torch.float32),
        lambda: _grouped(torch.bfloat16, torch.bfloat16),
    ),
)

GRADIENTS = (Mistake("gradient_of_another_dtype", lambda: _in_fp32(late=True), lambda: _in_fp32(late=False)),)

ADDED = (
    Mistake("no_fp8_device", lambda: _added_to(torch.float32), lambda: _scaled_product(F8)),
    Mistake("kernel_for_other_dtypes", lambda: _added_to(torch.float64), lambda: _scaled_product(F8)),
)

NUMBERS = (
    Mistake(
        "numbers_cast_beyond_fp16",
        lambda: np.full(2, 1e6, np.float32).astype(np.float16),
        lambda: torch.from_numpy(np.full(2, 1e6, np.float32)),
    ),
    Mistake(
        "nan_surfaces_elsewhere",
        lambda: torch.linalg.svd((SQUARE.half() * 1e5).float() - torch.inf),
        lambda: torch.linalg.svd(SQUARE * 1e5),
    ),
    Mistake(
        "unknown_precision",
        lambda: torch.set_float32_matmul_precision("fast"),
        lambda: torch.set_float32_matmul_precision(torch.get_float32_matmul_precision()),
    ),
    Mistake(
        "unknown_precision",
        lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "fast"),
        lambda: torch.set_float32_matmul_precision(torch.get_float32_matmul_precision()),
    ),
    Mistake(
        "constant_too_large",
        lambda: HALF.masked_fill(HALF > 0, -1e9),
        lambda: HALF.masked_fill(HALF > 0, torch.finfo(HALF.dtype).min),
    ),
    Mistake(
        "probabilities_not_finite", lambda: _sample(LOGITS.half()), lambda: _sample(LOGITS.bfloat16().float())
    ),
    Mistake(
        "invalid_distribution",
        lambda: torch.distributions.Normal(0.0, torch.tensor(1e-9).half(), validate_args=True),
        lambda: torch.distributions.Normal(0.0, torch.tensor(1e-9).float(), validate_args=True),
    ),
    Mistake("nan_surfaces_elsewhere", lambda: int(X[0, 0] * torch.nan), lambda: int(X[0, 0])),
    Mistake("out_of_memory", lambda: torch.empty(2**52), lambda: torch.empty(2)),
    Mistake("no_fp8_kernel", lambda: X.to(F8) + X.to(F8), lambda: (X.to(F8).float() + 1).to(F8)),
    Mistake("no_fp8_promotion", lambda: X.to(F8) + X, lambda: X.to(F8).float() + X),
    Mistake(
        "constant_too_large_for_fp8",
        lambda: X.to(F8).fill_(1e6),
        lambda: X.to(F8).fill_(torch.finfo(F8).max),
    ),
    Mistake(
        "scaled_product",
        lambda: torch._scaled_mm(torch.ones(16, 16).to(F8), torch.ones(16, 16).to(F8).T),
        lambda: _scaled_product(F8),
    ),
    Mistake("scaled_product", lambda: _scaled_product(torch.float32), lambda: _scaled_product(F8)),
)
