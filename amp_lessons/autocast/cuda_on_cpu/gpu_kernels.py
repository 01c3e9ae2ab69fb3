"""Which kernels a GPU would use, for models that run on fake tensors of the CPU.

Two operations keep something else for the backward pass on a GPU than on a CPU. Dropout keeps a mask of one
byte per element instead of a tensor of random factors. Attention runs in one fused kernel that never stores
the matrix of attention weights, while the CPU stores it as soon as there is dropout.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from amp_lessons import devices
from amp_lessons._base.whole_process import shared
from amp_lessons.autocast.cast_policy import map_tensors
from amp_lessons.precisions import HALF_DTYPES, HALVES

# --- put kernels into PyTorch's table, which all threads share, for as long as somebody is inside a block


@contextmanager
def library(dispatch_key: str, kernels: Mapping[str, Callable[..., Any]], **options: bool) -> Iterator[None]:
    """Use these kernels, by ATen name without ``aten::``, for calls under ``dispatch_key`` in this block.

    ``options`` are those of ``torch.library.Library.impl``.
    """
    installed = torch.library.Library("aten", "IMPL", dispatch_key)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of kernels being replaced, which is the point
            for name, kernel in kernels.items():
                installed.impl(name, kernel, **options)
        yield
    finally:
        installed._destroy()


# --- what kernels of a GPU do otherwise

Tensor = torch.Tensor

_LARGEST_FUSED_HEAD = 256  # FlashAttention's limit, https://github.com/Dao-AILab/flash-attention


@shared
@contextmanager
def cuda_kernels() -> Iterator[None]:
    """Let fake tensors run through dropout and attention as on a CUDA GPU; real tensors are not affected."""
    with library("AutogradCPU", {"dropout": _dropout, "scaled_dot_product_attention": _attention}):
        yield


def _dropout(x: Tensor, p: float, train: bool) -> Tensor:
    if isinstance(x, FakeTensor) and train and 0 < p < 1:
        return torch.ops.aten.native_dropout(x, p, train)[0]
    return torch.ops.aten.dropout.default.decompose(x, p, train)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    aten: Any = torch.ops.aten
    fused = isinstance(query, FakeTensor) and query.dim() == 4 and query.shape[-1] <= _LARGEST_FUSED_HEAD
    if not fused:
        return aten.scaled_dot_product_attention.default.decompose(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if attn_mask is None and query.dtype in HALF_DTYPES:
        return aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, False, scale=scale
        )[0]
    if enable_gqa:
        repeats = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value))
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, _bias(attn_mask, query, key), keep, dropout_p, is_causal, scale=scale
    )[0]


def _bias(mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """Turn a mask of any shape, boolean or not, into what the fused kernel adds to the scores."""
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])


# --- products of tensors in 16 bits on processors that have no instructions for them

_ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"
_PRODUCTS = {
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::convolution",
    "aten::convolution_backward",
    _ATTENTION,
    f"{_ATTENTION}_backward",
}


class ProductsInFp32(TorchDispatchMode):
    """Compute products of ``dtypes`` in fp32 and round the result, as tensor cores do.

    Without instructions for them a CPU takes five to fifty times as long to multiply in 16 bits as in fp32.
    Dtypes, shapes and what autograd saves stay the same; values are at least as accurate.
    """

    def __init__(self, *dtypes: torch.dtype) -> None:
        super().__init__()
        self._dtypes = dtypes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        dtype = args[0].dtype if func._schema.name in _PRODUCTS else None
        if dtype is None or dtype not in self._dtypes:
            return func(*args, **kwargs)
        named = {name: map_tensors(self._widened, value) for name, value in kwargs.items()}
        result = func(*map_tensors(self._widened, args), **named)
        if func._schema.name == _ATTENTION:
            return result[0].to(dtype), *result[1:]  # the second result, a logarithm, is fp32 in any case
        return map_tensors(lambda tensor: tensor.to(dtype), result)

    def _widened(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.float() if tensor.dtype in self._dtypes else tensor


@contextmanager
def quick_products() -> Iterator[None]:
    """Compute in fp32, and round, products in those 16-bit formats that this CPU has no instructions for.

    Where it has them, or PyTorch's kernels know another way, nothing changes. Decorates a function, too.
    """
    cpu = devices.describe().cpu
    slow = [HALVES[name] for name, how in (("fp16", cpu.fp16), ("bf16", cpu.bf16)) if how == "fallback"]
    with ProductsInFp32(*slow) if slow else nullcontext():
        yield
