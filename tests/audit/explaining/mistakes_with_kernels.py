"""Mistakes with kernels that take some formats only: attention, complex and whole numbers, FP8 products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.audit.explaining.provoking import HALF, X, given

F8 = torch.float8_e4m3fn
QUERIES = torch.ones(1, 1, 4, 8, dtype=torch.float16)
BEHIND = torch.ones(4, 4, dtype=torch.bool).tril()


def _flash(queries: torch.Tensor) -> None:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        F.scaled_dot_product_attention(queries, queries, queries)


def _masked(mask: torch.Tensor) -> None:
    F.scaled_dot_product_attention(QUERIES, QUERIES, QUERIES, attn_mask=mask)


def _warning_each_time(code: Callable[[Any], object]) -> Callable[[Any], None]:
    """Some warnings of PyTorch's are given once in a process."""

    def run(subject: Any) -> None:
        before = torch.is_warn_always_enabled()
        torch.set_warn_always(True)
        try:
            code(subject)
        finally:
            torch.set_warn_always(before)

    return run


def _pairs(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(x.view(2, 2, 2))


class _Rotary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("freqs_cis", torch.polar(torch.ones(2), torch.ones(2)))


def _to_bf16(module: nn.Module) -> nn.Module:
    return module.to(torch.bfloat16)


def _whole(requires_grad: bool) -> nn.Parameter:
    return nn.Parameter(X.to(torch.int8), requires_grad)


def _weighted_bag(weight: torch.Tensor) -> None:
    F.embedding_bag(torch.tensor([[0]]), weight, per_sample_weights=torch.ones(1, 1), mode="sum")


def _replaced(values: torch.Tensor) -> None:
    nn.Linear(4, 2).weight.data = values


def _scaled(weight: torch.Tensor) -> None:
    scale = torch.tensor(1.0)
    product = torch._scaled_mm(weight.to(F8), weight.to(F8).t(), scale, scale, out_dtype=torch.bfloat16)
    if product.requires_grad:
        product.sum().backward()


WEIGHT = torch.ones(16, 16, requires_grad=True)

ATTENTION = (
    given("no_attention_kernel", _flash, QUERIES.to(F8), QUERIES),
    given("mask_of_another_dtype", _masked, BEHIND.bfloat16(), BEHIND),
)

COMPLEX = (
    given("complex_of_two_halves", _warning_each_time(lambda x: _pairs(x) * 2), HALF, X),
    given("complex_of_two_halves", lambda x: _pairs(x).cumsum(0), HALF, X),
    given(
        "imaginary_part_lost", _warning_each_time(lambda cast: cast(_Rotary())), _to_bf16, nn.Module.bfloat16
    ),
)

TWO_DTYPES = (
    given("compared_in_two_dtypes", lambda x: torch.allclose(x, X), HALF, HALF.float()),
    given("norm_in_several_kernels", _warning_each_time(lambda x: F.rms_norm(x, (4,), X[0])), HALF, X),
    given("product_of_two_dtypes", lambda x: torch.tensordot(x, X, 2), HALF, HALF.float()),
    given("layer_of_another_dtype", lambda x: F.prelu(x, X[0, :1]), HALF, HALF.float()),
    given("layer_of_another_dtype", _weighted_bag, HALF, X),
    given(
        "written_into_another_dtype", lambda x: HALF.clone().put_(torch.tensor([0]), x), X[0, 0], HALF[0, 0]
    ),
)

WHOLE_NUMBERS = (
    given("integers_have_no_gradient", _whole, True, False),
    given("integers_have_no_gradient", _replaced, X.to(torch.int8), X),
    given("scaled_product_without_gradient", _scaled, WEIGHT, WEIGHT.detach()),
)
