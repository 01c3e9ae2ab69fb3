"""Products that were made during a recording, by which engine, and what the casts lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amp_lessons.fp8.products import Engine
from amp_lessons.fp8.recipes import Role

if TYPE_CHECKING:
    from amp_lessons.fp8.layer import Quantized


@dataclass(frozen=True)
class CastMade:
    """One cast of one tensor: ``role`` "input", "weight" or "gradient"; counts are of elements."""

    role: Role
    format: str
    elements: int
    saturated: int
    underflowed: int
    amax: float
    bytes_of_values: float
    bytes_of_scales: float

    @classmethod
    def of(cls, role: Role, made: Quantized) -> CastMade:
        """Take down what a counted cast did."""
        return cls(
            role,
            made.cast.element.name,
            made.values.numel(),
            made.saturated or 0,
            made.underflowed or 0,
            float(made.amax.amax()) if made.amax.numel() else 0.0,
            made.bytes_of_values,
            made.bytes_of_scales,
        )


@dataclass(frozen=True)
class ProductMade:
    """One product of a linear layer; ``layer`` is its name in the converted model, "" for ``fp8.linear``.

    ``product`` is "output", "input_gradient" or "weight_gradient". ``casts`` is empty where nothing was cast.
    """

    layer: str
    product: str
    engine: Engine
    casts: tuple[CastMade, ...]


# not a context variable: autograd runs backward in threads of its own
_RECORDINGS: list[list[ProductMade]] = []


@contextmanager
def record() -> Iterator[list[ProductMade]]:
    """Take down every product that ``fp8`` makes inside, in order; counting takes as long as casting."""
    made: list[ProductMade] = []
    _RECORDINGS.append(made)
    try:
        yield made
    finally:
        _RECORDINGS[:] = [each for each in _RECORDINGS if each is not made]


def is_recording() -> bool:
    """Say whether a recording is under way, so that casts are to be counted."""
    return bool(_RECORDINGS)


def note(layer: str, product: str, engine: Engine, *operands: tuple[Role, Quantized]) -> None:
    """Add a product to the recordings that are under way."""
    if _RECORDINGS:
        made = ProductMade(layer, product, engine, tuple(CastMade.of(*operand) for operand in operands))
        for recording in _RECORDINGS:
            recording.append(made)
