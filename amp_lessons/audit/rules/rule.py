"""What a rule is: a function that is asked about every event of a kind, and may remember what it needs.

Nothing here, nor in the modules of rules, needs PyTorch before there is an event: reports of ranks are
joined, and codes looked up, without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from amp_lessons.audit.findings import Finding
from amp_lessons.audit.recorder import events
from amp_lessons.formats import dtypes

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Verdict:
    """What a rule says of an event: a finding, and why it is only ``likely``, where it is.

    ``line`` is the one to mend, where that is another than the event's; of which event it is, only a rule
    that is asked at the end has to say, by ``about``.
    """

    finding: Finding
    line: events.Line = None
    about: events.Event | None = None
    likely: str = ""


Verdicts = Iterator[Verdict]


seen = Verdict  # it has happened


def likely(
    finding: Finding, why: str, line: events.Line = None, about: events.Event | None = None
) -> Verdict:
    """Say that the signs speak for it, and which they are."""
    return Verdict(finding, line, about, why)


class AtTheEnd:
    """No event, but that none has come since: a rule for it is given the past alone."""


@dataclass
class Entry:
    """A function that is asked about events of a ``kind``, or a method of the rule that it is ``of``."""

    kind: type
    last: bool
    ask: Callable[..., Iterable[Verdict] | None]
    of: type[Rule] | None = None


RULES: list[Entry] = []
_A = TypeVar("_A", bound=Callable[..., Iterable[Verdict] | None])


def on(kind: type[events.Event] | type[AtTheEnd], last: bool = False) -> Callable[[_A], _A]:
    """Ask the decorated function, or method of a ``Rule``, about every event of ``kind``, and the ``Past``.

    Of findings that weigh the same and come of one event, those that are asked for ``last`` are said last.
    """

    def enter(ask: _A) -> _A:
        RULES.append(Entry(kind, last, ask))
        return ask

    return enter


class Rule:
    """A rule that remembers: each training has an instance of its own."""

    def __init_subclass__(cls) -> None:
        for entry in RULES:
            if entry.ask in vars(cls).values():
                entry.of = cls


HALVES = ("fp16", "bf16")


def dtype_name(dtype: torch.dtype | None) -> str:
    """Return the short name of a dtype, "fp16" for one; "" without any."""
    return "" if dtype is None else dtypes.dtype_name(dtype)
