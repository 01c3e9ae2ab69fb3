"""What somebody would see of one run: curves and numbers, without a word about the cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amp_lessons.text.tables import Table


@dataclass(frozen=True)
class Curve:
    """One quantity over a run; ``quantity`` names its unit, ``over`` what is counted on the other axis.

    ``at`` holds where on that axis each value stands; without it they are counted from 1.
    """

    quantity: str
    over: str
    values: tuple[float, ...]
    at: tuple[int, ...] | None = None

    @property
    def places(self) -> tuple[int, ...]:
        """Return where on the other axis each value stands."""
        return self.at or tuple(range(1, len(self.values) + 1))


@dataclass(frozen=True)
class Observed:
    """One run of a patient's code, or of a mended one's; ``numbers`` maps what was counted to its number."""

    curves: tuple[Curve, ...]
    numbers: dict[str, float]

    def curve(self, quantity: str) -> tuple[float, ...]:
        """Return the values of one curve. Raises KeyError for a quantity that was not watched."""
        return {each.quantity: each.values for each in self.curves}[quantity]

    def __str__(self) -> str:
        return str(self._table())

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self._table()._repr_mimebundle_()

    def _table(self) -> Table:
        rows = [(f"{c.quantity}, by {c.over}", " ".join(f"{v:.4g}" for v in c.values)) for c in self.curves]
        rows += [(name, f"{number:.4g}") for name, number in self.numbers.items()]
        return Table(("seen", "in this run"), rows)
