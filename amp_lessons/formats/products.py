"""Matrix products in low precision: what rounding the operands costs, and what rounding the sum costs."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor

from amp_lessons.arguments import require, require_items
from amp_lessons.devices import fp32_products
from amp_lessons.formats import rounding
from amp_lessons.formats.catalogue import FORMATS
from amp_lessons.formats.compare import relative_error
from amp_lessons.formats.floats import FloatFormat, require_format
from amp_lessons.formats.sums import running_sum

_FP32 = FORMATS["fp32"]


def product(a: Tensor, b: Tensor, operands: FloatFormat, accumulator: FloatFormat = _FP32) -> Tensor:
    """Return (rows, inner) @ (inner, columns) with operands and accumulator in the given formats, as float32.

    The operands are rounded once; the products of two of at most 12 significant bits are exact in float32, as
    they are in a tensor core. With the fp32 accumulator the sum is PyTorch's own float32 matrix product, on
    the device of ``a`` and never in TF32: ``product(a, b, FORMATS["tf32"])`` is TF32 emulated anywhere. With
    any other the sum runs along the inner dimension one by one, and each partial sum is rounded.
    """
    _check_shapes(a, b)
    _check_formats(operands, accumulator)
    if accumulator is _FP32:
        with fp32_products(tf32=False):
            return operands.quantize(a) @ operands.quantize(b)
    return _partial_sums(a, b, operands, accumulator)[-1]


def product_errors(
    a: Tensor, b: Tensor, operands: FloatFormat, accumulator: FloatFormat, inner_dimensions: Sequence[int]
) -> list[float]:
    """Return the relative error of the product of the first k columns of ``a`` with the first k rows of
    ``b``.

    One for each k in ``inner_dimensions``: ‖product − exact‖ / ‖exact‖, exact being the float64 product of
    the float32 matrices as they are, so that it counts the rounding of operands and accumulator alike.
    """
    _check_shapes(a, b)
    _check_formats(operands, accumulator)
    require_items(inner_dimensions, Integral, "inner_dimensions", "a whole number")
    if not all(1 <= k <= a.shape[1] for k in inner_dimensions):
        raise ValueError(f"Inner dimensions run from 1 to {a.shape[1]} here, not {list(inner_dimensions)}.")
    if accumulator is _FP32:
        products = [product(a[:, :k], b[:k], operands) for k in inner_dimensions]
    else:
        sums = _partial_sums(a, b, operands, accumulator)
        products = [sums[k - 1] for k in inner_dimensions]
    exact = [a[:, :k].double() @ b[:k].double() for k in inner_dimensions]
    return [relative_error(*pair) for pair in zip(products, exact, strict=True)]


def tf32_product(a: Tensor, b: Tensor) -> Tensor:
    """Return a @ b as this GPU computes it in TF32; both float32, on CUDA with compute capability >= 8.0."""
    _check_shapes(a, b)
    if not (a.is_cuda and torch.cuda.get_device_capability(a.device) >= (8, 0)):
        raise ValueError("TF32 needs a and b on an NVIDIA GPU of compute capability 8.0 or more (Ampere).")
    with fp32_products(tf32=True):
        return rounding.as_float32(a) @ rounding.as_float32(b)


def _check_formats(operands: FloatFormat, accumulator: FloatFormat) -> None:
    require_format(operands, "operands")
    require_format(accumulator, "accumulator")


def _check_shapes(a: Tensor, b: Tensor) -> None:
    for name, matrix in (("a", a), ("b", b)):
        require(matrix, Tensor, name, "a float32 matrix such as torch.randn(4, 4)")
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0] or not a.shape[1]:
        raise ValueError(
            f"Give matrices (rows, inner) and (inner, columns), not {tuple(a.shape)} and {tuple(b.shape)}."
        )


def _partial_sums(a: Tensor, b: Tensor, operands: FloatFormat, accumulator: FloatFormat) -> Tensor:
    columns, rows = operands.quantize(a).T, operands.quantize(b)
    return running_sum(columns.unsqueeze(2) * rows.unsqueeze(1), accumulator)
