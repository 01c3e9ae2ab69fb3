"""Adding many small numbers to a large one, when every intermediate sum must fit a format.

This is what an optimizer does to a weight, a matrix product to its accumulator and a running mean to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from numbers import Integral

import torch
from torch import Tensor

from amp_lessons._base.arguments import require, require_items, require_number, require_whole
from amp_lessons.devices import fp32_products, without_autocast
from amp_lessons.formats import rounding
from amp_lessons.formats.catalogue import FORMATS
from amp_lessons.formats.compare import relative_error
from amp_lessons.formats.floats import FloatFormat, require_format


def running_sum(
    increments: Tensor,
    float_format: FloatFormat,
    method: str = "plain",
    *,
    start: float | Tensor = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return every partial sum of ``increments`` (steps, ...) added to ``start``, as ``float_format`` has it.

    The increments are used as they are; round them first where the format is to hold them too. Additions are
    float32, and their results are rounded. ``method`` is one of ``SUM_METHODS``:

    - "plain": each sum is rounded to nearest. An increment below half the spacing at the sum changes nothing.
    - "fp32_copy": the sum is kept in float32; what is returned is that copy, rounded.
    - "kahan": what rounding took from each sum is kept in a second variable of the same format, and added to
      the next increment (W. Kahan, "Further remarks on reducing truncation errors", CACM 8(1), 1965).
    - "stochastic": each sum is rounded up or down at random, right on average; ``generator`` (on the device
      of ``increments``) makes it repeatable.
    """
    require(increments, Tensor, "increments", "a float32 tensor such as torch.ones(10)")
    require_format(float_format, "float_format")
    if increments.dim() == 0 or len(increments) == 0:
        shape = tuple(increments.shape)
        raise ValueError(f"increments has at least one, along its first dimension, not the shape {shape}")
    if method not in SUM_METHODS:
        raise ValueError(f"There is no method {method!r}; there are {', '.join(SUM_METHODS)}.")
    increments = rounding.as_float32(increments)
    first = _expand(start, increments)
    stochastic = partial(float_format.round_stochastically, generator=generator)
    round_sum = stochastic if method == "stochastic" else float_format.quantize
    return torch.stack(list(SUM_METHODS[method](increments, first, round_sum)))


def _expand(start: float | Tensor, increments: Tensor) -> Tensor:
    """Return ``start`` as float32, in the shape of each increment."""
    if not isinstance(start, Tensor):
        start = torch.tensor(require_number(start, "start"), dtype=torch.float32)
    shape = increments.shape[1:]
    try:
        return start.to(increments.device, torch.float32).expand(shape)
    except RuntimeError as error:
        raise ValueError(
            f"start is a number, or a tensor that can be expanded to {tuple(shape)}, the shape of each "
            f"increment; its shape is {tuple(start.shape)}"
        ) from error


Rounding = Callable[[Tensor], Tensor]


def _round_each_sum(increments: Tensor, start: Tensor, rounded: Rounding) -> Iterator[Tensor]:
    total = rounded(start)
    for increment in increments:
        total = rounded(total + increment)
        yield total


def _round_a_copy(increments: Tensor, start: Tensor, rounded: Rounding) -> Iterator[Tensor]:
    total = start
    for increment in increments:
        total = total + increment
        yield rounded(total)


def _carry_what_was_lost(increments: Tensor, start: Tensor, rounded: Rounding) -> Iterator[Tensor]:
    total, lost = rounded(start), torch.zeros_like(start)
    for increment in increments:
        wanted = rounded(increment + lost)
        new_total = rounded(total + wanted)
        lost = rounded(wanted - rounded(new_total - total))
        total = new_total
        yield total


SUM_METHODS: dict[str, Callable[[Tensor, Tensor, Rounding], Iterator[Tensor]]] = {
    "plain": _round_each_sum,
    "fp32_copy": _round_a_copy,
    "kahan": _carry_what_was_lost,
    "stochastic": _round_each_sum,
}


def repeated_update(
    update: float, float_format: FloatFormat, steps: int, *, start: float = 1.0
) -> dict[str, list[float]]:
    """Return a weight of ``float_format`` after each of ``steps`` times ``update``, by ``SUM_METHODS``."""
    updates = torch.full(
        (require_whole(steps, "steps"),), require_number(update, "update"), dtype=torch.float32
    )
    require_number(start, "start")
    return {
        method: running_sum(
            updates, float_format, method, start=start, generator=torch.Generator().manual_seed(0)
        ).tolist()
        for method in SUM_METHODS
    }


# --- matrix products in low precision: what rounding the operands costs, and what rounding the sum costs

_FP32 = FORMATS["fp32"]


def product(a: Tensor, b: Tensor, operands: FloatFormat, accumulator: FloatFormat = _FP32) -> Tensor:
    """Return (rows, inner) @ (inner, columns) with operands and accumulator in the given formats, as float32.

    The operands are rounded once; the products of two of at most 12 significant bits are exact in float32, as
    they are in a tensor core. With the fp32 accumulator the sum is PyTorch's own float32 matrix product, on
    the device of ``a`` and never in TF32: ``product(a, b, FORMATS["tf32"])`` is TF32 emulated anywhere. With
    any other the sum runs along the inner dimension one by one, and each partial sum is rounded.
    """
    _check(a, b, operands, accumulator)
    if accumulator is _FP32:
        return _product_of_fp32(operands.quantize(a), operands.quantize(b), tf32=False)
    return _partial_sums(a, b, operands, accumulator)[-1]


def product_errors(
    a: Tensor, b: Tensor, operands: FloatFormat, accumulator: FloatFormat, inner_dimensions: Sequence[int]
) -> list[float]:
    """Return how far off the product of the first k columns of ``a`` with the first k rows of ``b`` is.

    One for each k in ``inner_dimensions``: ‖product − exact‖ / ‖exact‖, exact being the float64 product of
    the float32 matrices as they are, so that it counts the rounding of operands and accumulator alike.
    """
    _check(a, b, operands, accumulator)
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
    _check(a, b)
    if not (a.is_cuda and torch.cuda.get_device_capability(a.device) >= (8, 0)):
        raise ValueError("TF32 needs a and b on an NVIDIA GPU of compute capability 8.0 or more (Ampere).")
    return _product_of_fp32(rounding.as_float32(a), rounding.as_float32(b), tf32=True)


def _product_of_fp32(a: Tensor, b: Tensor, *, tf32: bool) -> Tensor:
    """Return a @ b, also where autocast would round both to 16 bits."""
    with fp32_products(tf32=tf32), without_autocast(a.device.type):
        return a @ b


def _check(a: Tensor, b: Tensor, operands: FloatFormat = _FP32, accumulator: FloatFormat = _FP32) -> None:
    for name, matrix in (("a", a), ("b", b)):
        require(matrix, Tensor, name, "a float32 matrix such as torch.randn(4, 4)")
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0] or not a.shape[1]:
        raise ValueError(
            f"Give matrices (rows, inner) and (inner, columns), not {tuple(a.shape)} and {tuple(b.shape)}."
        )
    require_format(operands, "operands")
    require_format(accumulator, "accumulator")


def _partial_sums(a: Tensor, b: Tensor, operands: FloatFormat, accumulator: FloatFormat) -> Tensor:
    columns, rows = operands.quantize(a).T, operands.quantize(b)
    return running_sum(columns.unsqueeze(2) * rows.unsqueeze(1), accumulator)
