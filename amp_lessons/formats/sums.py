"""Adding many small numbers to a large one, when every intermediate sum must fit a format.

This is what an optimizer does to a weight, a matrix product to its accumulator and a running mean to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from amp_lessons.arguments import require, require_number, require_whole
from amp_lessons.formats import rounding
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
      the next increment (W. Kahan, "Further remarks on reducing truncation errors", CACM 8(1), 1965). -
      "stochastic": each sum is rounded up or down at random, right on average; ``generator`` (on the device
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
    first = _expanded(start, increments)
    stochastic = partial(float_format.round_stochastically, generator=generator)
    round_sum = stochastic if method == "stochastic" else float_format.quantize
    return torch.stack(list(SUM_METHODS[method](increments, first, round_sum)))


def _expanded(start: float | Tensor, increments: Tensor) -> Tensor:
    """Return ``start`` as float32, in the shape of each increment."""
    if not isinstance(start, Tensor):
        start = torch.tensor(require_number(start, "start"))
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
    updates = torch.full((require_whole(steps, "steps"),), require_number(update, "update"))
    require_number(start, "start")
    return {
        method: running_sum(
            updates, float_format, method, start=start, generator=torch.Generator().manual_seed(0)
        ).tolist()
        for method in SUM_METHODS
    }
