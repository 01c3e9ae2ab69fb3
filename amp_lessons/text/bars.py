"""A bar that says how far a loop has come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def with_bar(steps: Iterable[T], total: int | None, what: str) -> Iterator[T]:
    """Yield ``steps`` below a bar that counts them, of ``total`` if known; it goes away at the end."""
    from tqdm.auto import tqdm  # it brings widgets along in a notebook

    return iter(tqdm(steps, total=total, desc=what, leave=False))
