"""What several rules ask of a training so far; what one alone has to know it remembers itself."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from amp_lessons.audit.recorder import events

if TYPE_CHECKING:
    import torch

    from amp_lessons.audit.seen import StepSeen

_MOST_KEPT = 10_000  # events of a kind
_E = TypeVar("_E", bound=events.Event)


class Past:
    """The events before the one that is judged: the last of each kind, and what steps and precision were."""

    def __init__(self, numbers: Callable[[], Sequence[StepSeen]]) -> None:
        self.steps = Steps(numbers)
        self.precision = Precision()
        self._last: dict[type, events.Event] = {}

    def last(self, kind: type[_E]) -> _E | None:
        """Return the last event of a kind, None before the first."""
        event = self._last.get(kind)
        return event if isinstance(event, kind) else None

    def note(self, event: events.Event) -> None:
        """Take note of an event, after it has been judged."""
        self._last[type(event)] = event
        self.steps.note(event)
        self.precision.note(event)


class Steps:
    """What became of the steps: who judges a skipped one asks how many there were, of whom, and by whom.

    Optimizers and scalers are the ids of the objects themselves; None stands for all optimizers together.
    ``asked`` and ``made`` count all steps and those that happened, ``skipped_in_a_row`` those since the last
    one that happened. ``done`` is what came of the last one, ``skipped`` holds those that were, by their
    numbers, ``scaler_of`` the scaler that last stepped an optimizer, ``unchecked`` optimizers that one has
    stepped, and that were called directly too, ``averaged`` the steps after which the weights were averaged.
    ``numbers()`` is what was seen of all steps.
    """

    def __init__(self, numbers: Callable[[], Sequence[StepSeen]]) -> None:
        self.numbers = numbers
        self.asked: Counter[int | None] = Counter()
        self.made: Counter[int | None] = Counter()
        self.done: dict[int | None, events.StepDone] = {}
        self.skipped_in_a_row: Counter[int] = Counter()
        self.skipped: dict[int, events.StepDone] = {}
        self.scaler_of: dict[int, int] = {}
        self.unchecked: set[int] = set()
        self.averaged: defaultdict[int | None, set[int]] = defaultdict(set)

    def known(self, optimizer: int | None) -> int | None:
        """Return an optimizer that has stepped as it is, and None, which stands for all, for any other."""
        return optimizer if optimizer in self.done else None

    def just_skipped(self, optimizer: int | None) -> bool:
        """Whether the last step was skipped."""
        return optimizer in self.done and not self.done[optimizer].happened

    def times_averaged(self, average: events.Averaged) -> int:
        """Count the steps after which averages took in the same weights, this one among them."""
        return len(self.averaged[self.known(average.optimizer)] | {average.step})

    def note(self, event: events.Event) -> None:
        """Count a step, or an average."""
        if isinstance(event, events.Averaged):
            self.averaged[self.known(event.optimizer)].add(event.step)
        if not isinstance(event, events.StepDone):
            return
        for which in (event.optimizer, None):
            self.done[which] = event
            self.asked[which] += 1
            self.made[which] += event.happened
        self.skipped_in_a_row[event.optimizer] += 1
        if event.happened:
            self.skipped_in_a_row[event.optimizer] = 0
        elif len(self.skipped) < _MOST_KEPT:
            self.skipped[event.step] = event
        if event.scaler is not None:
            self.scaler_of[event.optimizer] = event.scaler
        elif event.optimizer in self.scaler_of:
            self.unchecked.add(event.optimizer)


class Precision:
    """In which precision the training ran, which decides what a mistake costs it, and is reported beside.

    ``autocast`` and ``by_hand`` hold the dtypes, in order, of what losses went backward through, under
    autocast and without it; ``scaled`` says that a scaler was in use, ``off`` what had ``enabled=False``.
    """

    def __init__(self) -> None:
        self.autocast: dict[torch.dtype, None] = {}
        self.by_hand: dict[torch.dtype, None] = {}
        self.scaled = False
        self.off: set[type[events.Event]] = set()

    @property
    def in_fp16(self) -> bool:
        """Whether a loss went backward through what autocast computed in fp16."""
        return "torch.float16" in map(str, self.autocast)

    def note(self, event: events.Event) -> None:
        """Take note of a backward pass, or of what autocast and scalers were told."""
        if isinstance(event, (events.ScalerMade, events.LossScaled)) and event.enabled:
            self.scaled = True
        elif isinstance(event, (events.ScalerMade, events.AutocastEntered)) and not event.enabled:
            self.off.add(type(event))
        elif isinstance(event, events.Backward):
            self.autocast |= dict.fromkeys(sorted(event.forward, key=str))
            self.by_hand |= dict.fromkeys(sorted(event.by_hand, key=str))
