"""What else a network does, from matrix product to addition, measured to find its place under the roof."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from amp_lessons.arguments import require_items, require_whole
from amp_lessons.devices import fp32_products
from amp_lessons.measure.rates import Device, Rate, random_values
from amp_lessons.measure.stopwatch import time_steps, usable_device
from amp_lessons.precisions import Precision, precision
from amp_lessons.text.nearest import did_you_mean

Tensor = torch.Tensor


@dataclass(frozen=True)
class Operation:
    """An operation as a transformer of ``width`` channels applies it to ``tokens`` tokens.

    ``shapes`` gives the shapes of what it reads, ``flop`` its floating-point operations; both take tokens and
    width. One multiplication or addition is one FLOP.
    """

    name: str
    run: Callable[..., Tensor]
    shapes: Callable[[int, int], tuple[tuple[int, ...], ...]]
    flop: Callable[[int, int], float]


_HEAD = 64  # channels per attention head, as in GPT-2 and BERT
_CONTEXT = 512  # tokens that attend to each other


def _attention_shape(tokens: int, width: int) -> tuple[int, ...]:
    context = min(_CONTEXT, tokens)
    return (tokens // context, width // _HEAD, context, _HEAD)


def _attention_flop(tokens: int, width: int) -> float:
    batch, heads, context, channels = _attention_shape(tokens, width)
    return 4.0 * batch * heads * context**2 * channels  # Q K^T and its product with V, 2 FLOP each


OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation(
            "matrix product",
            F.linear,
            lambda tokens, width: ((tokens, width), (width, width)),
            lambda tokens, width: 2.0 * tokens * width**2,
        ),
        Operation(
            "attention",
            F.scaled_dot_product_attention,
            lambda tokens, width: (_attention_shape(tokens, width),) * 3,
            _attention_flop,
        ),
        Operation(
            "LayerNorm",
            lambda x: F.layer_norm(x, x.shape[-1:]),
            lambda tokens, width: ((tokens, width),),
            lambda tokens, width: (
                6.0 * tokens * width
            ),  # mean, variance (subtract, square, add), shift, scale
        ),
        Operation(
            "addition",
            torch.add,
            lambda tokens, width: ((tokens, width),) * 2,
            lambda tokens, width: 1.0 * tokens * width,
        ),
    )
}


def operation_rates(
    precision_name: str,
    *,
    device: Device,
    tokens: int | None = None,
    width: int = 1024,
    operations: Iterable[str] = tuple(OPERATIONS),
    seconds: float = 0.1,
) -> tuple[Rate, ...]:
    """Time each operation as a training step in this precision runs it: autocast, on tensors of its dtype.

    An operation that autocast runs in fp32 therefore gains nothing and pays for its casts. By default there
    are tokens enough that no cache holds the activations (32,768 on a GPU, 4,096 on a CPU).
    """
    return operation_rates_in_turns(
        (precision_name,), device=device, tokens=tokens, width=width, operations=operations, seconds=seconds
    )


def operation_rates_in_turns(
    precision_names: Iterable[str],
    *,
    device: Device,
    tokens: int | None = None,
    width: int = 1024,
    operations: Iterable[str] = tuple(OPERATIONS),
    seconds: float = 0.1,
) -> tuple[Rate, ...]:
    """Time each operation as ``operation_rates`` does, in several precisions that take turns.

    So their timings may be compared: what slows the machine down for a second slows all of them down. TF32,
    which is a setting of the whole process, takes no turns. ``seconds`` is for each operation and precision.
    The rates come by precision, then by operation.
    """
    kinds, place = [precision(name) for name in precision_names], usable_device(device)
    default = 32768 if place.type == "cuda" else 4096
    count = default if tokens is None else require_whole(tokens, "tokens")
    width = require_whole(width, "width")
    rates: list[Rate] = []
    for tf32 in (False, True):  # switching takes a tenth of a millisecond: too long to be part of a sample
        group = [kind for kind in kinds if kind.tf32 == tf32]
        with fp32_products(tf32=tf32):
            for operation in _named(operations) if group else ():
                rates += _rates(operation, group, place, count, width, seconds)
    order = [kind.name for kind in kinds]
    return tuple(sorted(rates, key=lambda rate: order.index(rate.precision)))


def _named(operations: Iterable[str]) -> list[Operation]:
    names = require_items(operations, str, "operations", 'a name such as "attention"')
    unknown = next((name for name in names if name not in OPERATIONS), None)
    if unknown is not None:
        raise ValueError(f"no operation is called {unknown!r}; {did_you_mean(unknown, OPERATIONS)}")
    return [OPERATIONS[name] for name in names]


def _rates(
    operation: Operation, kinds: list[Precision], place: torch.device, tokens: int, width: int, seconds: float
) -> list[Rate]:
    calls = {kind.name: _Call(operation, kind, place, tokens, width) for kind in kinds}
    flop = operation.flop(tokens, width)
    with torch.no_grad():
        moved_bytes = {
            name: sum(tensor.nbytes for tensor in (*call.inputs, call())) for name, call in calls.items()
        }
        timings = time_steps(calls, device=place, seconds=seconds)
    return [Rate(operation.name, name, tokens, flop, moved_bytes[name], timings[name]) for name in calls]


class _Call:
    """One call of an operation on tensors of one precision, under its autocast."""

    def __init__(
        self, operation: Operation, kind: Precision, place: torch.device, tokens: int, width: int
    ) -> None:
        draw = torch.Generator(place)
        self.inputs = [random_values(shape, kind, draw) for shape in operation.shapes(tokens, width)]
        self._operation, self._kind, self._place = operation, kind, place

    def __call__(self) -> Tensor:
        with _autocast(self._kind, self._place):
            return self._operation.run(*self.inputs)


def _autocast(kind: Precision, place: torch.device) -> Any:
    return torch.autocast(place.type, dtype=kind.autocast_dtype, enabled=kind.autocast_dtype is not None)
