"""What a step is given, and what it gives back: figures, and agreements that hold or do not."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

Amount = int | float | str


@dataclass(frozen=True)
class Place:
    """Where a step measures: on ``device``, models and tensors of ``preset`` size (``full`` or ``small``).

    ``bench_folder`` is where ``amp-lessons bench`` keeps what it measures.
    """

    device: str
    preset: str
    bench_folder: str

    @property
    def is_full(self) -> bool:
        """Whether the sizes are those for a GPU; the others are for trying the steps on a CPU."""
        return self.preset == "full"


@dataclass(frozen=True)
class Figure:
    """Something measured for which nobody claimed a value."""

    name: str
    value: Amount
    unit: str = ""


@dataclass(frozen=True)
class Agreement:
    """What was claimed beforehand beside what was measured.

    ``tolerance`` is a share of what was measured, and ``reason`` says why it is that large; at 0 the two have
    to be equal. Where either is a word they have to be equal anyway.
    """

    about: str
    claimed: Amount
    measured: Amount
    reason: str
    tolerance: float = 0.0
    unit: str = ""

    @property
    def agrees(self) -> bool:
        """Whether claim and measurement agree."""
        if isinstance(self.claimed, str) or isinstance(self.measured, str):
            return self.claimed == self.measured
        return abs(self.claimed - self.measured) <= self.tolerance * abs(self.measured)

    @property
    def ratio(self) -> float | None:
        """What was claimed as a multiple of what was measured; None where there is no such thing."""
        if isinstance(self.claimed, str) or isinstance(self.measured, str) or not self.measured:
            return None
        return self.claimed / self.measured


@dataclass(frozen=True)
class Found:
    """What one part of a step came to; ``lines`` are text to be kept as it is."""

    figures: tuple[Figure, ...] = ()
    agreements: tuple[Agreement, ...] = ()
    lines: tuple[str, ...] = ()


class NotPossibleError(Exception):
    """A part needs something that this machine lacks; the message says what."""


def needed(*modules: str) -> None:
    """Raise NotPossibleError unless all these modules can be imported; it names those that cannot."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise NotPossibleError(f"this Python lacks {', '.join(missing)}")
