"""A device's roofline, and where a network's operations lie under it, in a few seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from amp_lessons.arguments import require_number
from amp_lessons.measure.operations import operation_rates_in_turns
from amp_lessons.measure.rates import (
    Device,
    Rate,
    Roofline,
    copy_rates,
    precision_names,
    product_rate,
    product_rates,
)
from amp_lessons.measure.stopwatch import usable_device

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
    if not on_cpu:
        return operation_rates_in_turns(names, device=device, seconds=seconds)
    products = operation_rates_in_turns(
        names,
        device=device,
        tokens=512,
        width=512,
        operations=("matrix product", "attention"),
        seconds=seconds,
    )
    # a result of 32 MiB or more glibc maps anew at every call, and the page faults are what is timed
    others = operation_rates_in_turns(
        names, device=device, tokens=7168, operations=("LayerNorm", "addition"), seconds=seconds
    )
    return tuple(sorted(products + others, key=lambda rate: list(names).index(rate.precision)))
