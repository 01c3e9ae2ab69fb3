"""A network's operations, from matrix product to addition, measured to find their place under the roof."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from amp_lessons._base.arguments import require_items, require_number, require_whole
from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.devices import fp32_products
from amp_lessons.measure.rates import (
    Device,
    Rate,
    Roofline,
    copy_rates,
    precision_names,
    product_rate,
    product_rates,
    random_values,
)
from amp_lessons.measure.stopwatch import time_steps, usable_device
from amp_lessons.precisions import Precision, precision

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
            # mean, variance (subtract, square, add), shift, scale
            lambda tokens, width: 6.0 * tokens * width,
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
            for operation in _find_operations(operations) if group else ():
                rates += _rates(operation, group, place, count, width, seconds)
    order = [kind.name for kind in kinds]
    return tuple(sorted(rates, key=lambda rate: order.index(rate.precision)))


def _find_operations(operations: Iterable[str]) -> list[Operation]:
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
        moved = {name: sum(each.nbytes for each in (*call.inputs, call())) for name, call in calls.items()}
        timings = time_steps(calls, device=place, seconds=seconds)
    return [Rate(operation.name, name, tokens, flop, moved[name], timings[name]) for name in calls]


class _Call:
    """One call of an operation on tensors of one precision, under its autocast."""

    def __init__(
        self, operation: Operation, kind: Precision, place: torch.device, tokens: int, width: int
    ) -> None:
        draw = torch.Generator(place)
        self.inputs = [random_values(shape, kind, draw) for shape in operation.shapes(tokens, width)]
        self._operation, self._place, self._dtype = operation, place.type, kind.autocast_dtype

    def __call__(self) -> Tensor:
        with torch.autocast(self._place, dtype=self._dtype, enabled=self._dtype is not None):
            return self._operation.run(*self.inputs)


# --- a device's roofline, and where a network's operations lie under it, in a few seconds

_PATIENCE_S = 0.3  # for one product; measuring it takes at least fifteen of them
_PATIENCE_MS = {True: 50.0, False: 100.0}  # for one product of the survey, on a CPU or not


@dataclass(frozen=True)
class Survey:
    """The roofline of one device, and what operations of a network reach there, in every precision."""

    roofline: Roofline
    operations: tuple[Rate, ...]

    def with_product(self, rate: Rate) -> Survey:
        """Return a copy that knows of one more product, so that the roof rises if that was the fastest."""
        return replace(self, roofline=replace(self.roofline, products=(*self.roofline.products, rate)))

    def fraction_of_roof(self, rate: Rate) -> float:
        """Return what share of the most that the roof allows was reached."""
        return rate.flop_per_s / self.roofline.attainable_flop_per_s(rate.precision, rate.intensity)

    def largest_size(self, precision: str) -> int:
        """Return up to which size a square product is quickly measured here, from the best rate so far."""
        return int((_PATIENCE_S * self.roofline.flop_per_s(precision) / 2) ** (1 / 3))

    def square_product(self, size: int, precision: str) -> Rate | None:
        """Return the latest square product of this size that was measured, if there is one."""
        found = [
            rate
            for rate in self.roofline.products
            if (rate.operation, rate.size, rate.precision) == ("matrix product", size, precision)
        ]
        return found[-1] if found else None

    def measure_product(self, size: int, precision: str) -> Rate:
        """Time a square product on this device.

        Raises ``ValueError`` for one that would take too long to measure.
        """
        most = self.largest_size(precision)
        if size > most:
            raise ValueError(
                f"A product of size {size:,} in {precision} would keep {self.roofline.device} busy for too "
                f"long; up to {most:,} it is measured."
            )
        return product_rate(size, precision, device=self.roofline.device, seconds=0.05)


def survey(
    *, device: Device, precisions: Iterable[str] | None = None, seconds_per_point: float = 0.03
) -> Survey:
    """Measure the roofline of ``device`` and four operations under it, in every precision that it knows.

    On a CPU with fewer and smaller tensors than ``roofline`` and ``operation_rates`` take by themselves, yet
    larger ones than its caches hold where that matters. In each operation the precisions take turns.
    """
    names = precision_names(precisions, device)
    require_number(seconds_per_point, "seconds_per_point", above=0)
    on_cpu = usable_device(device).type == "cpu"
    product_sizes = (256, 512, 1024) if on_cpu else None
    copy_sizes = (2**26,) if on_cpu else None
    quick: dict[str, Any] = {"device": device, "seconds": seconds_per_point}
    copies = copy_rates(names[0], sizes=copy_sizes, **quick)  # bytes move alike, whatever they mean
    # fp16 without fp16 arithmetic is as slow per operation in a large product as in one of 512 rows
    products = [
        rate
        for name in names
        for rate in product_rates(name, sizes=product_sizes, longest_call_ms=_PATIENCE_MS[on_cpu], **quick)
    ]
    operations = _operations(names, device, on_cpu, seconds_per_point)
    layers = [replace(rate, operation="layer") for rate in operations if rate.operation == "matrix product"]
    roof = Roofline(
        str(device),
        (*products, *layers),  # the roof is the best product, and a layer's may be that
        tuple(replace(rate, precision=name) for rate in copies for name in names),
    )
    return Survey(roof, operations)


def _operations(names: Sequence[str], device: Device, on_cpu: bool, seconds: float) -> tuple[Rate, ...]:
    measure = partial(operation_rates_in_turns, names, device=device, seconds=seconds)
    if not on_cpu:
        return measure()
    products = measure(tokens=512, width=512, operations=("matrix product", "attention"))
    # a result of 32 MiB or more glibc maps anew at every call, and the page faults are what is timed
    others = measure(tokens=7168, operations=("LayerNorm", "addition"))
    return tuple(sorted(products + others, key=lambda rate: list(names).index(rate.precision)))
