"""The census: what becomes of gradients that are multiplied by a loss scale and cast to a narrow format.

Nothing here loads PyTorch, so that whoever reads a report does not wait for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from amp_lessons.formats.dtypes import dtype_of

if TYPE_CHECKING:
    import torch

FATES = ("underflowed", "subnormal", "normal", "overflowed")


@dataclass(frozen=True)
class Census:
    """Gradients by their fate in ``dtype`` at a loss scale, and by the binade that they were in before.

    Every gradient is counted exactly once: as ``zero`` (before scaling), as ``nonfinite`` (inf or NaN before
    scaling), or under one of the fates, by its binade floor(log2(abs(g))) before scaling:

    - ``underflowed``: not zero before, zero afterwards
    - ``subnormal``: survives below the smallest normal number of ``dtype``, with fewer significant bits
    - ``normal``: survives with the full precision of ``dtype``
    - ``overflowed``: finite before, and beyond the largest finite value of ``dtype`` afterwards

    ``norm`` is the Euclidean norm of the finite gradients before scaling, ``underflowed_norm`` that of those
    that underflow; both are None where nobody asked for them. They are added up in fp64, so they depend in
    their last digits on the order, and censuses are compared without them.
    """

    JSON_KEYS: ClassVar = (
        "dtype", "scale", "zero", "nonfinite", "at_stake", "underflowed", "overflowed", "underflow_fraction",
        "underflow_norm_fraction", "norm", "underflowed_norm", "fates",
    )  # fmt: skip

    dtype_name: str = field(metadata={"key": "dtype"})
    scale: float
    zero: int = 0
    nonfinite: int = 0
    fates: Mapping[str, Mapping[int, int]] = field(default_factory=lambda: {fate: {} for fate in FATES})
    norm: float | None = field(default=None, compare=False)
    underflowed_norm: float | None = field(default=None, compare=False)

    @property
    def dtype(self) -> torch.dtype:
        """The format; ValueError where a report is read by a PyTorch that does not have it."""
        return dtype_of(self.dtype_name)

    @property
    def underflowed(self) -> int:
        """Non-zero gradients that become zero."""
        return sum(self.fates["underflowed"].values())

    @property
    def subnormal(self) -> int:
        """Gradients that survive below the smallest normal number."""
        return sum(self.fates["subnormal"].values())

    @property
    def normal(self) -> int:
        """Gradients that survive with full precision."""
        return sum(self.fates["normal"].values())

    @property
    def overflowed(self) -> int:
        """Finite gradients that leave the range of the format."""
        return sum(self.fates["overflowed"].values())

    @property
    def total(self) -> int:
        """All gradients: the sum of the six counts."""
        return self.zero + self.nonfinite + sum(sum(binades.values()) for binades in self.fates.values())

    @property
    def binades(self) -> dict[int, int]:
        """{floor(log2(abs(g))): count} of the finite non-zero gradients before scaling, ascending."""
        together: Counter[int] = Counter()
        for binades in self.fates.values():
            together.update(binades)
        return dict(sorted(together.items()))

    @property
    def at_stake(self) -> int:
        """The finite non-zero gradients: those that a cast can make something else of."""
        return self.total - self.zero - self.nonfinite

    @property
    def underflow_fraction(self) -> float:
        """The share of the gradients at stake that become zero; 0.0 when there is none."""
        return self.underflowed / self.at_stake if self.at_stake else 0.0

    @property
    def underflow_norm_fraction(self) -> float:
        """The norm of the gradients that become zero, as a share of the norm of all; 0.0 when that is 0.

        It says how far the gradient moves as a vector. Since a cast takes the smallest, it is at most the
        root of ``underflow_fraction``, and mostly far less. Raises ValueError for a census without norms.
        """
        if self.norm is None or self.underflowed_norm is None:
            raise ValueError("this census was taken without norms; use census(..., norms=True)")
        return self.underflowed_norm / self.norm if self.norm else 0.0

    def __add__(self, other: Census) -> Census:
        """Return the census of both sets of gradients. Raises ValueError unless dtype and scale agree."""
        if not isinstance(other, Census):
            return NotImplemented
        if (self.dtype_name, self.scale) != (other.dtype_name, other.scale):
            raise ValueError(
                "only censuses of one dtype and scale add up, not "
                f"{self.dtype} at {self.scale:g} and {other.dtype} at {other.scale:g}"
            )
        fates = {
            fate: dict(sorted((Counter(self.fates[fate]) + Counter(other.fates[fate])).items()))
            for fate in FATES
        }
        return Census(
            self.dtype_name,
            self.scale,
            self.zero + other.zero,
            self.nonfinite + other.nonfinite,
            fates,
            _together(self.norm, other.norm),
            _together(self.underflowed_norm, other.underflowed_norm),
        )


def _together(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else math.hypot(first, second)
