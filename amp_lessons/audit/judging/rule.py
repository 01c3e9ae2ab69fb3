"""What a rule is: a function that is called for events of one kind, and what it may remember between them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from amp_lessons.audit.findings import Finding
from amp_lessons.audit.recorder import events, graph
from amp_lessons.audit.seen import PrecisionSeen, StepSeen
from amp_lessons.formats.dtypes import dtype_name


@dataclass(frozen=True)
class Verdict:
    """What a rule says of an event: a finding, and why it is only ``likely``, where it is.

    ``line`` is the one to mend, where that is another than the event's.
    """

    finding: Finding
    likely: str = ""
    line: events.Line = None


_MOST_KEPT = 10_000  # events of a kind


@dataclass
class Memory:
    """What rules know of the training so far; ids are those of the objects themselves.

    ``done_of`` is what came of the last step that an optimizer was asked for, at None of the last one of all;
    ``made_of`` and ``steps_of`` count those that happened, and all. ``skipped_in_a_row`` counts the steps of
    an optimizer since the last one that happened, ``broken_in_a_row`` those among them, without a pause,
    whose loss was inf or NaN.
    """

    scaler_of: dict[int, int] = field(default_factory=dict)  # the scaler that last stepped an optimizer
    enabled_scalers: set[int] = field(default_factory=set)
    loaded_scalers: set[int] = field(default_factory=set)
    steps_of: Counter[int | None] = field(default_factory=Counter)
    made_of: Counter[int | None] = field(default_factory=Counter)
    doubled: Counter[int] = field(default_factory=Counter)
    skipped_in_a_row: Counter[int] = field(default_factory=Counter)
    broken_in_a_row: Counter[int] = field(default_factory=Counter)
    done_of: dict[int | None, events.StepDone] = field(default_factory=dict)
    steps_at_last_schedule: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    steps_skipped: int = 0
    advanced: Counter[int] = field(default_factory=Counter)  # of each schedule
    # the steps after which the weights of an optimizer were averaged
    averaged_at: dict[int | None, set[int]] = field(default_factory=lambda: defaultdict(set))
    skipped_since_update: set[int] = field(default_factory=set)  # by these scalers
    last_backward_scaled: bool = False
    unscaled_at: events.Line = None  # the last backward pass whose loss no scaler had scaled
    factor: float = 1.0  # by which the last loss that went backward was multiplied by hand
    in_fp16: bool = False  # the last backward pass went through what autocast computed in fp16
    autocast: dict[torch.dtype, None] = field(default_factory=dict)  # losses went backward through it
    switched_off: set[type[events.Event]] = field(default_factory=set)  # what had enabled=False
    saved: list[events.Saved] = field(default_factory=list)
    dropped: dict[int, list[events.Dropped]] = field(default_factory=lambda: defaultdict(list))
    # overflows whose gradients were cleared: those after which the scale stayed, and since the last update
    overflows_dropped: list[events.OverflowDropped] = field(default_factory=list)
    overflows_open: dict[int, list[events.OverflowDropped]] = field(default_factory=lambda: defaultdict(list))
    mixed: list[events.GradientsMixed] = field(default_factory=list)  # with applied ones, the first of them
    made_finite: events.Line = None  # the last gradient that was still scaled
    scalers_made: dict[int, events.ScalerMade] = field(default_factory=dict)
    still: tuple[str, ...] = ()  # layers of which half the weights in 16 bits were left as they were, last
    windows: Counter[int] = field(default_factory=Counter)  # steps of an optimizer on a sum of means
    decays: dict[int, tuple[events.StepAsked, float]] = field(default_factory=dict)  # the first, the largest
    by_hand: dict[torch.dtype, None] = field(default_factory=dict)  # losses went backward through it
    fp16_by_hand: events.Backward | None = None  # the first of such a loss that nothing had scaled
    zeros: dict[str, float] = field(default_factory=dict)  # the largest share of a layer's gradients
    any_scaled: bool = False  # losses, by a scaler
    asked: str = ""  # the precision that a framework was asked for
    steps: Callable[[], Sequence[StepSeen]] = tuple  # all of them, when they are asked for
    skipped: dict[int, events.StepDone] = field(default_factory=dict)  # by their numbers
    stepped_directly: events.Line = None  # an optimizer whose gradients a scaler had scaled, last

    @property
    def precision(self) -> PrecisionSeen:
        """The precision that the training ran in so far."""
        return PrecisionSeen(
            autocast_names=tuple(map(dtype_name, self.autocast)),
            autocast_off=events.AutocastEntered in self.switched_off,
            scaler=bool(self.enabled_scalers),
            scaler_off=events.ScalerMade in self.switched_off,
            by_hand_names=tuple(map(dtype_name, self.by_hand)),
        )

    def known(self, optimizer: int | None) -> int | None:
        """Return an optimizer that has stepped as it is, and None, which stands for all, for any other."""
        return optimizer if optimizer in self.done_of else None

    def remember(self, event: events.Event) -> None:
        """Take note of an event, after the rules have heard it."""
        if (isinstance(event, events.ScalerMade) and event.enabled) or (
            isinstance(event, events.LossScaled) and event.enabled
        ):
            self.enabled_scalers.add(event.scaler)
            self.any_scaled = self.any_scaled or isinstance(event, events.LossScaled)
            if isinstance(event, events.ScalerMade):
                self.scalers_made[event.scaler] = event
        elif isinstance(event, events.StepAsked):
            self._remember_asked(event)
        elif isinstance(event, events.UpdatesLost):
            self.still = event.still
        elif isinstance(event, events.Zeros):
            self.zeros |= {each: max(share, self.zeros.get(each, 0)) for each, share in event.shares.items()}
        elif isinstance(event, events.GradientsMixed):
            if event.applied and len(self.mixed) < _MOST_KEPT:
                self.mixed.append(event)
        elif isinstance(event, events.MadeFinite):
            self.made_finite = event.line
        elif isinstance(event, (events.ScalerMade, events.AutocastEntered)) and not event.enabled:
            self.switched_off.add(type(event))
        elif isinstance(event, events.Backward):
            self.last_backward_scaled = event.scaler is not None
            self.unscaled_at = self.unscaled_at if self.last_backward_scaled else event.line
            self.factor = event.factor
            self.in_fp16 = torch.float16 in event.forward
            self.autocast |= dict.fromkeys(sorted(event.forward, key=str))
            self._remember_inside(event)
        elif isinstance(event, events.ScalerLoaded):
            self.loaded_scalers.add(event.scaler)
        elif isinstance(event, events.StepDone):
            self._remember_step(event)
        elif isinstance(event, events.ScheduleStepped):
            self.steps_at_last_schedule[event.schedule] = self.steps_of[self.known(event.optimizer)]
            self.advanced[event.schedule] += 1
        elif isinstance(event, events.Averaged):
            self.averaged_at[self.known(event.optimizer)].add(event.step)
        elif isinstance(event, events.Updated):
            self.skipped_since_update.discard(event.scaler)
            dropped = self.overflows_open.pop(event.scaler, [])
            if event.before is not None and event.after is not None and event.after >= event.before:
                self.overflows_dropped += dropped
        elif isinstance(event, events.OverflowDropped):
            if len(self.overflows_dropped) < _MOST_KEPT:
                self.overflows_open[event.scaler].append(event)
        elif isinstance(event, events.Dropped):
            self.dropped[event.optimizer].append(event)
        elif isinstance(event, events.Saved):
            self.saved.append(event)

    def _remember_inside(self, event: events.Backward) -> None:
        inside = event.inside
        if inside is None or event.forward or inside.weights or inside.compiled:
            return
        self.by_hand |= dict.fromkeys(sorted(inside.halves, key=str))
        alone = event.scaler is None and event.factor < graph.LARGE_NUMBER
        if alone and torch.float16 in inside.halves and self.fp16_by_hand is None:
            self.fp16_by_hand = event

    def _remember_asked(self, event: events.StepAsked) -> None:
        self.asked = event.asked
        self.windows[event.optimizer] += bool(event.means_added_up)
        if event.scaled_by is not None and event.scaler is None:
            self.stepped_directly = event.line
        if event.decay is not None:
            first, largest = self.decays.get(event.optimizer, (event, 0.0))
            self.decays[event.optimizer] = first, max(largest, event.decay)

    def _remember_step(self, done: events.StepDone) -> None:
        for which in (done.optimizer, None):
            self.done_of[which] = done
            self.steps_of[which] += 1
            self.made_of[which] += done.happened
        self.steps_skipped += not done.happened
        if not done.happened and len(self.skipped) < _MOST_KEPT:
            self.skipped[done.step] = done
        if not done.happened and done.scaler is not None:
            self.skipped_since_update.add(done.scaler)
        self.skipped_in_a_row[done.optimizer] = (
            0 if done.happened else self.skipped_in_a_row[done.optimizer] + 1
        )
        self.broken_in_a_row[done.optimizer] = (
            self.broken_in_a_row[done.optimizer] + 1 if is_broken(done) else 0
        )
        if done.scaler is not None:
            self.scaler_of[done.optimizer] = done.scaler


def is_broken(done: events.StepDone) -> bool:
    """Whether a step was skipped whose loss was inf or NaN before it was scaled."""
    return not done.happened and done.loss is not None and not math.isfinite(done.loss)


Rule = Callable[[Any, Memory], Iterator[Verdict]]
RULES: dict[type, list[Rule]] = defaultdict(list)
_R = TypeVar("_R", bound=Rule)


def on(kind: type[events.Event]) -> Callable[[_R], _R]:
    """Call the decorated function for every event of ``kind``."""

    def register(rule: _R) -> _R:
        RULES[kind].append(rule)
        return rule

    return register


def seen(finding: Finding, line: events.Line = None) -> Verdict:
    """Say that it has happened, and on which ``line`` it is mended, if not on the event's."""
    return Verdict(finding, line=line)


def likely(finding: Finding, why: str, line: events.Line = None) -> Verdict:
    """Say that the signs speak for it, and which they are."""
    return Verdict(finding, why, line)
