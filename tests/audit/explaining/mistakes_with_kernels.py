"""Mistakes with kernels that take some formats only: attention, complex and whole numbers, FP8 products."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.audit.explaining.provoking import HALF, Mistake, X

F8 = torch.float8_e4m3fn
QUERIES = torch.ones(1, 1, 4, 8, dtype=torch.float16)
BEHIND = torch.ones(4, 4, dtype=torch.bool).tril()


def _flash(queries: torch.Tensor) -> None:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        F.scaled_dot_product_attention(queries, queries, queries)


def _masked(mask: torch.Tensor) -> None:
    F.scaled_dot_product_attention(QUERIES, QUERIES, QUERIES, attn_mask=mask)


def _warning_each_time(code: Callable[[], object]) -> Callable[[], None]:
    """Some warnings of PyTorch's are given once in a process."""

    def run() -> None:
        before = torch.is_warn_always_enabled()
        torch.set_warn_always(True)
        try:
            code()
        finally:
            torch.set_warn_always(before)

    return run


def _pairs(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(x.view(2, 2, 2))


class _Rotary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("freqs_cis", torch.polar(torch.ones(2), torch.ones(2)))


def _whole(**more: bool) -> nn.Parameter:
    return nn.Parameter(X.to(torch.int8), **more)


def _replaced(values: torch.Tensor) -> None:
    nn.Linear(4, 2).weight.data = values


def _scaled(weight: torch.Tensor) -> None:
    scale = torch.tensor(1.0)
    product = torch._scaled_mm(weight.to(F8), weight.to(F8).t(), scale, scale, out_dtype=torch.bfloat16)
    if product.requires_grad:
        product.sum().backward()


def _without_gradient(weight: torch.Tensor) -> None:
    with torch.no_grad():
        _scaled(weight)


WEIGHT = torch.ones(16, 16, requires_grad=True)

ATTENTION = (
    Mistake("no_attention_kernel", lambda: _flash(QUERIES.to(F8)), lambda: _flash(QUERIES)),
    Mistake("mask_of_another_dtype", lambda: _masked(BEHIND.bfloat16()), lambda: _masked(BEHIND)),
)

COMPLEX = (
    Mistake(
        "complex_of_two_halves",
        _warning_each_time(lambda: _pairs(HALF) * 2),
        _warning_each_time(lambda: _pairs(HALF.float()) * 2),
    ),
    Mistake(
        "complex_of_two_halves",
        lambda: _pairs(HALF).cumsum(0),
        lambda: _pairs(HALF.float()).cumsum(0),
    ),
    Mistake(
        "imaginary_part_lost",
        _warning_each_time(lambda: _Rotary().to(torch.bfloat16)),
        _warning_each_time(lambda: _Rotary().bfloat16()),
    ),
)

TWO_DTYPES = (
    Mistake(
        "compared_in_two_dtypes",
        lambda: torch.allclose(HALF, X),
        lambda: torch.allclose(HALF.float(), X, rtol=1e-3),
    ),
    Mistake(
        "norm_in_several_kernels",
        _warning_each_time(lambda: F.rms_norm(HALF, (4,), X[0])),
        _warning_each_time(lambda: F.rms_norm(HALF.float(), (4,), X[0])),
    ),
    Mistake(
        "product_of_two_dtypes",
        lambda: torch.tensordot(HALF, X, 2),
        lambda: torch.tensordot(HALF.to(X.dtype), X, 2),
    ),
    Mistake(
        "layer_of_another_dtype",
        lambda: F.prelu(HALF, X[0, :1]),
        lambda: F.prelu(HALF.float(), X[0, :1]),
    ),
    Mistake(
        "layer_of_another_dtype",
        lambda: F.embedding_bag(torch.tensor([[0]]), HALF, per_sample_weights=torch.ones(1, 1), mode="sum"),
        lambda: F.embedding_bag(torch.tensor([[0]]), X, per_sample_weights=torch.ones(1, 1), mode="sum"),
    ),
    Mistake(
        "written_into_another_dtype",
        lambda: HALF.clone().put_(torch.tensor([0]), torch.ones(1)),
        lambda: HALF.clone().put_(torch.tensor([0]), torch.ones(1).half()),
    ),
)

WHOLE_NUMBERS = (
    Mistake("integers_have_no_gradient", _whole, lambda: _whole(requires_grad=False)),
    Mistake(
        "integers_have_no_gradient",
        lambda: _replaced(X.to(torch.int8)),
        lambda: _replaced(X.bfloat16().float()),
    ),
    Mistake("scaled_product_without_gradient", lambda: _scaled(WEIGHT), lambda: _without_gradient(WEIGHT)),
)
