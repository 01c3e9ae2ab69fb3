"""State that the parts of a recorder share: its log, the calls of each thread, its optimizers and scalers."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from amp_lessons.audit.recorder import events
from amp_lessons.audit.recorder.gradients import GradientBook, parameters_of
from amp_lessons.audit.recorder.later import Later, Sum, scale_of
from amp_lessons.audit.recorder.places import own_line

_MOST_LOSSES = 10_000  # of one step
_LONGEST_ROUND = 200  # names of calls that are kept between two steps
_MOST_SWITCHES = 1_000  # of autocast, on or off


@dataclass(frozen=True)
class Taken:
    """Where gradients of a scaled loss were taken that may become a penalty; ``count`` is autograd's."""

    count: int
    scaler: int
    line: events.Line


class Loss(NamedTuple):
    """A loss that went backward: where, where it was made, and whether it is a mean as it is."""

    number: Later
    line: events.Line
    made_at: events.Line
    averaged: bool


class Here(threading.local):
    """Calls of one thread since its last step, and those under way.

    ``called`` holds the names of the calls of the round that a backward pass began, in order, and
    ``called_before`` those of the round before.
    """

    def __init__(self) -> None:
        self.called: list[str] = []
        self.called_before: list[str] = []
        self.clipped = False
        self.over = False  # a step has been asked for since the last backward pass
        self.over_for: set[int] = set()  # the optimizers that have made, or skipped, theirs in this round
        self.forward: set[torch.dtype] = set()  # autocast was entered in
        # those that are open: since when, whether on, whether a library holds them open
        self.autocasts: list[tuple[events.Line, bool, bool]] = []
        # autograd's count of operations where autocast was switched, and whether it was on from there
        self.switches: deque[tuple[int, bool]] = deque(maxlen=_MOST_SWITCHES)
        self.evaluating_since: events.Line = None  # where ``eval`` was last called
        self.cleared_at: events.Line = None  # gradients, first since the last backward pass
        self.loss = Later(None)  # the last one
        self.by_hand = 1.0  # a large number that it was multiplied by before it went backward
        self.scaled = 0, -1  # the scaler of a loss whose gradients were taken last, and before which step
        self.penalty: Taken | None = None
        self.batched: Taken | None = None  # the same, inside of vmap
        self.scaler: torch.amp.GradScaler | None = None  # whose step is under way
        self.optimizer: torch.optim.Optimizer | None = None  # that a scaler was last asked to step
        self.stepped = False  # the optimizer, in the scaler's step
        self.stepping = False  # an optimizer's step is under way
        self.step_in_autocast = False  # it began inside autocast
        self.cast_in_step: torch.dtype | None = None  # to which autocast has cast products in it
        self.lent = False  # ``scaler`` is one that has let the optimizer step before
        self.backwards = 0  # backward passes under way, one inside the other
        self.schedules = 0  # the same of steps of schedules
        self.in_original = False  # a method of a tensor's that is spied on is under way

    def note_switch(self, derived_since: int | None = None) -> None:
        """Note whether autocast is on from here; what autograd has derived has the dtypes of what was."""
        if derived_since is not None:
            self.switches.append((derived_since, True))
        on = bool(self.autocasts) and self.autocasts[-1][1]
        self.switches.append((torch.autograd._get_sequence_nr(), on))

    def note(self, name: str) -> None:
        """Add a call to the round."""
        if len(self.called) < _LONGEST_ROUND:
            self.called.append(name)

    def begin_round(self) -> None:
        """Begin a new round where a step has ended the last one."""
        if self.over:
            self.called_before, self.called = self.called, []
            self.over_for.clear()
            self.over = self.clipped = False

    def since_backward(self) -> list[str]:
        """Return what was called after the last backward pass, the last call first."""
        called = self.called[::-1]
        return called[: called.index("backward")] if "backward" in called else []

    def stepped_before_clearing(self) -> bool:
        """Whether a step came between the last backward pass and the first clearing of gradients."""
        called = self.since_backward()[::-1]
        before = called[: called.index("zero_grad")] if "zero_grad" in called else []
        return bool({"scaler.step", "optimizer.step"} & set(before))


class Log:
    """Where events go, with the number of the step, from 0, before which they happened.

    ``steps`` counts those that optimizers were asked for; ``troubles`` are errors of the audit itself.
    """

    def __init__(self, report: Callable[[events.Event], None]) -> None:
        self.steps = 0
        self.troubles: list[str] = []
        self.here = Here()
        self.report = report

    def safely(self, observe: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call ``observe``; whatever goes wrong in it is noted here and does not reach the training."""
        try:
            return observe(*args, **kwargs)
        except Exception as error:
            trouble = f"{getattr(observe, '__name__', 'observer')}: {type(error).__name__}: {error}"
            if trouble not in self.troubles:
                self.troubles.append(trouble)
            return None

    def record(self, kind: Callable[..., events.Event], **facts: Any) -> None:
        """Make an event of what was seen, with the person's own line, and report it."""
        line = facts.pop("line", None) or own_line()
        self.report(kind(step=self.steps, line=line, **facts))


class Known:
    """The optimizers and scalers of a training, and what became of the gradients of their parameters."""

    def __init__(self, log: Log, found_optimizer: Callable[[torch.optim.Optimizer], None]) -> None:
        self.optimizers: dict[int, torch.optim.Optimizer] = {}
        self.scalers: dict[int, torch.amp.GradScaler] = {}
        self.schedules: dict[int, Any] = {}  # kept, as those are: another one could be given its id
        self.updates: Counter[int] = Counter()  # of each scaler
        self.scale_read = False  # any scaler's
        self.checked: dict[int, torch.amp.GradScaler] = {}  # optimizers that it has let step, by their owner
        self.stepped: set[int] = set()  # optimizers that a step was asked of
        # those that went backward into an optimizer's parameters, since its last step or zero_grad
        self.losses: dict[int, deque[Loss]] = defaultdict(partial(deque, maxlen=_MOST_LOSSES))
        self.book = GradientBook()
        self._log, self._found_optimizer = log, found_optimizer
        self._used: set[int] = set()  # optimizers that were made, or have stepped, since
        self._threads: dict[int, int] = {}  # the thread that last used an optimizer

    def may_be_used(self, optimizer: torch.optim.Optimizer) -> None:
        """Watch an optimizer that was there before; its model is looked for when it steps."""
        self.optimizers[id(optimizer)] = optimizer

    def in_use(self) -> dict[int, torch.optim.Optimizer]:
        """Return the optimizers that were made, or have stepped, under the watch: more may be in memory."""
        return {key: each for key, each in list(self.optimizers.items()) if key in self._used}

    def used_here(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that this thread uses an optimizer."""
        self._threads[id(optimizer)] = threading.get_ident()

    def parameters_of(self, optimizer: torch.optim.Optimizer) -> list[Tensor]:
        """Return the parameters of an optimizer that this thread uses, and watch it from now on."""
        self.used_here(optimizer)
        if id(optimizer) not in self._used:
            self._used.add(id(optimizer))
            self.optimizers[id(optimizer)] = optimizer
            self._log.safely(self._found_optimizer, optimizer)
        return parameters_of(optimizer)

    def owner_of(self, parameters: Iterable[Tensor]) -> torch.optim.Optimizer | None:
        """Return the optimizer of exactly these parameters, if there is one."""
        wanted = {id(p) for p in parameters}
        alike = (o for o in self.of_this_thread().values() if {id(p) for p in parameters_of(o)} == wanted)
        return next((each for each in alike if isinstance(each, torch.optim.Optimizer)), None)

    def of_this_thread(self) -> dict[int, torch.optim.Optimizer]:
        """Return the optimizers that no other thread uses: to read what another frees would be the end."""
        here = threading.get_ident()
        return {key: o for key, o in list(self.optimizers.items()) if self._threads.get(key, here) == here}

    def loss_of(self, optimizer: torch.optim.Optimizer) -> Later:
        """Return what an optimizer's gradients are of: the sum of the losses that went backward for them."""
        losses = self.losses.get(id(optimizer))
        return Sum(loss.number for loss in losses) if losses else self._log.here.loss

    def means_added_up(self, optimizer: torch.optim.Optimizer) -> tuple[int, events.Line]:
        """Return how many means of one line an optimizer's gradients are the sum of, and which line it is.

        0 where there is one loss, where they are of several lines, or where one is no mean as it is.
        """
        losses = self.losses.get(id(optimizer), ())
        kinds = {(loss.line, loss.made_at, loss.averaged) for loss in losses}
        line, made_at, averaged = kinds.pop() if len(kinds) == 1 else (None, None, False)
        return (len(losses), made_at or line) if averaged and len(losses) > 1 else (0, None)

    def forget_losses(self, cleared: Iterable[Tensor]) -> None:
        """Forget the losses whose gradients were set to zero."""
        those = {id(parameter) for parameter in cleared}
        for key, optimizer in self.of_this_thread().items():
            if key in self.losses and any(id(each) in those for each in parameters_of(optimizer)):
                del self.losses[key]

    def scaler_on(self, parameters: Iterable[Tensor]) -> torch.amp.GradScaler | None:
        """Return the scaler by whose scale gradients are still multiplied, None where there is none."""
        return self.scalers.get(self.book.scaled_by(parameters))

    def scaler_of(self, parameters: Iterable[Tensor]) -> torch.amp.GradScaler | None:
        """Return the scaler by whose scale gradients are multiplied, or were, None where there is none."""
        return self.scalers.get(self.book.scaler_of(parameters))

    def carried(self, optimizer: torch.optim.Optimizer) -> Later:
        """Return the scale that an optimizer's gradients still carry, 1 for none."""
        scaler = self.scaler_on(parameters_of(optimizer))
        return scale_of(scaler) if scaler is not None else Later(1.0)

    def look(self, parameters: Iterable[Tensor]) -> None:
        """Notice what was done to gradients, but for clipping, after which they are taken as they are."""
        parameters = list(parameters)
        scaler = self.scaler_of(parameters)
        scale = scale_of(scaler).at_once() if scaler is not None else None
        self.book.look(parameters, scale)

    def record_mixing(self, parameters: list[Tensor]) -> None:
        """Record gradients that are about to be used, and were added to others that do not belong there.

        Until then it does no harm: a GAN's generator fills gradients of the discriminator, which are cleared.
        """
        added = self.book.added_to(parameters)
        if added is not None:
            self._log.record(
                events.GradientsMixed,
                added=added,
                line=added.line,
                cleared=self.book.cleared_applied(parameters),
                scales=tuple(scale_of(self.scalers[each]).at_once() for each in added.scalers or ()),
            )


class Part:
    """One part of a recorder, which turns one kind of calls into events."""

    def __init__(self, log: Log, known: Known) -> None:
        self._log, self._known = log, known
        self._here = log.here
