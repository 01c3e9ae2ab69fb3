"""Rates of matrix products and of memory on a device, per precision: the two lines of its roofline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral

import torch

from amp_lessons._base.arguments import require_items, require_number, require_whole
from amp_lessons._base.text.describing import describe
from amp_lessons.devices import fp32_products, free_bytes, tensor_core_formats
from amp_lessons.measure.stopwatch import Timing, time_step, usable_device
from amp_lessons.precisions import PRECISIONS, Precision, precision

Device = str | torch.device

_LONGEST_CALL_MS = 100.0
_SHARE_OF_FREE_MEMORY = 0.25  # leave room for whatever else the notebook holds


@dataclass(frozen=True)
class Rate:
    """One operation, how much it computes and moves, and how long it took.

    ``moved_bytes`` counts every operand read once and every result written once: what cannot be avoided.
    """

    operation: str
    precision: str
    size: int
    flop: float
    moved_bytes: int
    timing: Timing

    @property
    def flop_per_s(self) -> float:
        """Floating-point operations per second."""
        return self.timing.throughput(self.flop)

    @property
    def bytes_per_s(self) -> float:
        """Unavoidable bytes per second."""
        return self.timing.throughput(self.moved_bytes)

    @property
    def intensity(self) -> float:
        """Floating-point operations per unavoidable byte."""
        return self.flop / self.moved_bytes


@dataclass(frozen=True)
class Roof:
    """The bounds on operations in one precision: at most so many of them, and so many bytes, per second."""

    precision: str
    flop_per_s: float
    bytes_per_s: float

    @property
    def ridge_point(self) -> float:
        """The intensity (FLOP per byte) above which products, not memory, are what bounds."""
        return self.flop_per_s / self.bytes_per_s

    def attainable_flop_per_s(self, intensity: float) -> float:
        """Return the most that the roof allows an operation of this intensity."""
        return min(self.flop_per_s, intensity * self.bytes_per_s)

    def promise(self, size: int) -> Promise:
        """Return the most that the roof allows a product of two square matrices of ``size`` rows."""
        intensity = product_intensity(size, self.precision)
        return Promise(self.precision, size, intensity, self.attainable_flop_per_s(intensity))


@dataclass(frozen=True)
class Promise:
    """A product of two square matrices of ``size`` rows, and how fast a roof lets it be."""

    precision: str
    size: int
    intensity: float
    flop_per_s: float


@dataclass(frozen=True)
class Roofline:
    """The bounds on operations on one device: the best product rate and the rate of memory, per precision.

    The model is Williams, Waterman and Patterson's, https://doi.org/10.1145/1498765.1498785.
    """

    device: str
    products: tuple[Rate, ...]
    copies: tuple[Rate, ...]

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions for which both lines were measured, in order of measurement."""
        copied = {rate.precision for rate in self.copies}
        return tuple(dict.fromkeys(rate.precision for rate in self.products if rate.precision in copied))

    def flop_per_s(self, precision: str) -> float:
        """Return the best product rate found: the flat part of the roof."""
        return max(rate.flop_per_s for rate in _of(self.products, precision))

    def bytes_per_s(self, precision: str) -> float:
        """Return the rate of the largest copy, which no cache holds: the slope of the roof."""
        return max(_of(self.copies, precision), key=lambda rate: rate.moved_bytes).bytes_per_s

    def roof(self, precision: str) -> Roof:
        """Return both lines of one precision."""
        return Roof(precision, self.flop_per_s(precision), self.bytes_per_s(precision))

    @property
    def roofs(self) -> list[Roof]:
        """The roofs of all ``precisions``."""
        return [self.roof(precision) for precision in self.precisions]

    def ridge_point(self, precision: str) -> float:
        """Return the intensity (FLOP per byte) above which products, not memory, are what bounds."""
        return self.roof(precision).ridge_point

    def attainable_flop_per_s(self, precision: str, intensity: float) -> float:
        """Return the most that the roof allows an operation of this intensity."""
        return self.roof(precision).attainable_flop_per_s(intensity)


def roofline(
    *, device: Device, precisions: Iterable[str] | None = None, seconds_per_point: float = 0.1
) -> Roofline:
    """Measure product and copy rates on ``device``, by default in every precision that it knows."""
    names = precision_names(precisions, device)
    require_number(seconds_per_point, "seconds_per_point", above=0)
    products = [
        rate for name in names for rate in product_rates(name, device=device, seconds=seconds_per_point)
    ]
    copies = [rate for name in names for rate in copy_rates(name, device=device, seconds=seconds_per_point)]
    return Roofline(str(device), tuple(products), tuple(copies))


def precisions_on(device: Device) -> tuple[str, ...]:
    """Return the precisions to measure on ``device``; TF32 needs an NVIDIA GPU of compute capability 8."""
    place = usable_device(device)
    return tuple(name for name, kind in PRECISIONS.items() if not kind.tf32 or _has_tf32(place))


def precision_names(precisions: Iterable[str] | None, device: Device) -> tuple[str, ...]:
    """Return the precisions that were named; of none, all that ``device`` knows. Raises as ``precision``."""
    known = precisions_on(device)
    if precisions is None:
        return known
    names = require_items(precisions, str, "precisions", 'a name such as "fp16"')
    if not names:
        raise ValueError(f"precisions is at least one name, such as {', '.join(known)}")
    return tuple(precision(name).name for name in names)


def _has_tf32(place: torch.device) -> bool:
    if place.type != "cuda":
        return False
    name, capability = torch.cuda.get_device_name(place), torch.cuda.get_device_capability(place)
    return "tf32" in tensor_core_formats(capability, name)


def product_intensity(size: int, precision_name: str) -> float:
    """Return the FLOP per unavoidable byte of a product of two square matrices of ``size`` rows."""
    require_whole(size, "size")
    return 2 * size**3 / (3 * size**2 * precision(precision_name).dtype.itemsize)


def product_rate(
    size: int | tuple[int, int, int], precision_name: str, *, device: Device, seconds: float = 0.1
) -> Rate:
    """Time one product of an m x k with a k x n matrix; a single ``size`` stands for all three.

    The second matrix is stored transposed, as ``torch.nn.Linear`` stores its weight; PyTorch's fp16 loop on a
    CPU is several times as slow with any other layout. The matrices hold normally distributed values: a GPU
    multiplies zeros faster, as they cost less power.
    """
    m, n, k = _three_sizes(size)
    kind, place = precision(precision_name), usable_device(device)
    draw = torch.Generator(place)  # its own: the notebook's random numbers go on as if nothing was measured
    a, b = random_values((m, k), kind, draw), random_values((n, k), kind, draw).t()
    out = a.new_empty(m, n)
    with fp32_products(tf32=kind.tf32):
        timing = time_step(lambda: torch.mm(a, b, out=out), device=place, seconds=seconds)
    moved_bytes = a.nbytes + b.nbytes + out.nbytes
    return Rate("matrix product", kind.name, max(m, n, k), 2.0 * m * n * k, moved_bytes, timing)


def _three_sizes(size: int | tuple[int, int, int]) -> tuple[int, int, int]:
    if isinstance(size, Integral):
        size = (int(size),) * 3
    if not isinstance(size, (tuple, list)) or len(size) != 3:
        raise TypeError(f"size is a whole number, or three of them (m, n, k), not {describe(size)}")
    m, n, k = (require_whole(each, "each size of a product") for each in size)
    return m, n, k


def product_rates(
    precision_name: str,
    *,
    device: Device,
    sizes: Sequence[int] | None = None,
    seconds: float = 0.1,
    longest_call_ms: float = _LONGEST_CALL_MS,
) -> tuple[Rate, ...]:
    """Time square products of growing size, until one would take too long or fill the memory."""
    kind, place = precision(precision_name), usable_device(device)
    require_number(longest_call_ms, "longest_call_ms", above=0)
    rates: list[Rate] = []
    for size in _whole(sizes) or _product_sizes(place):
        if 3 * size**2 * kind.dtype.itemsize > _SHARE_OF_FREE_MEMORY * free_bytes(place):
            break
        if rates and rates[-1].timing.median_ms * (size / rates[-1].size) ** 3 > longest_call_ms:
            break
        rates.append(product_rate(size, precision_name, device=place, seconds=seconds))
    return tuple(rates)


def copy_rates(
    precision_name: str, *, device: Device, sizes: Sequence[int] | None = None, seconds: float = 0.1
) -> tuple[Rate, ...]:
    """Time copies of ``sizes`` bytes; small ones stay in a cache, the largest shows the memory's own rate."""
    kind, place = precision(precision_name), usable_device(device)
    wanted = _whole(sizes) or _copy_sizes(place)
    fitting = [size for size in wanted if 2 * size <= _SHARE_OF_FREE_MEMORY * free_bytes(place)]
    return tuple(_copy_rate(size, kind, place, seconds) for size in fitting or [min(wanted)])


def _whole(sizes: Sequence[int] | None) -> tuple[int, ...]:
    found = require_items(() if sizes is None else sizes, Integral, "sizes", "a whole number")
    return tuple(require_whole(size, "each item of sizes") for size in found)


def _copy_rate(size: int, kind: Precision, place: torch.device, seconds: float) -> Rate:
    source = random_values((1, size // kind.dtype.itemsize), kind, torch.Generator(place))
    target = torch.empty_like(source)
    timing = time_step(lambda: target.copy_(source), device=place, seconds=seconds)
    return Rate("copy", kind.name, size, 0.0, source.nbytes + target.nbytes, timing)


def _product_sizes(place: torch.device) -> Sequence[int]:
    """Powers of two; on a GPU, which measures faster than one can look, also the sizes halfway."""
    if place.type != "cuda":
        return [2**power for power in range(7, 13)]
    powers = [2**power for power in range(8, 15)]
    return sorted(powers + [3 * size // 2 for size in powers[:-1]])


def _copy_sizes(place: torch.device) -> Sequence[int]:
    return [2**power for power in range(20, 31 if place.type == "cuda" else 29, 2)]


def random_values(shape: tuple[int, ...], kind: Precision, draw: torch.Generator) -> torch.Tensor:
    """Return normally distributed values in this precision, on the device of the generator."""
    return torch.randn(shape, generator=draw, dtype=torch.float32, device=draw.device).to(kind.dtype)


def _of(rates: Sequence[Rate], precision_name: str) -> list[Rate]:
    found = [rate for rate in rates if rate.precision == precision_name]
    if not found:
        measured = ", ".join(dict.fromkeys(rate.precision for rate in rates)) or "nothing"
        raise ValueError(f"no rate was measured in {precision_name!r}, only in {measured}")
    return found
