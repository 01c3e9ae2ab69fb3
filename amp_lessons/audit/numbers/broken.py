"""Look whether a step has left weights inf or NaN, where its gradients speak for it."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from amp_lessons.audit.numbers.buffers import all_finite
from amp_lessons.audit.numbers.naming import Names
from amp_lessons.audit.recorder.events import Event, StepDone, WeightsBroken
from amp_lessons.audit.recorder.gradients import parameters_of, sample_of
from amp_lessons.audit.recorder.later import is_captured, may_read
from amp_lessons.audit.seen import StepSeen

_Earlier = Callable[[], Sequence[StepSeen]]


class BrokenWeights:
    """Report once of each optimizer that weights are inf or NaN, and since which of its steps.

    A few numbers of two gradients are read before a step, where nobody waits for them; weights are looked at
    only where one of those is no finite number, and once more at the end where the last steps were not looked
    at, on a device. What a loop has put back until the next step, did no harm.
    """

    def __init__(self, names: Names, report: Callable[[Event], None]) -> None:
        self.first: WeightsBroken | None = None
        self._names, self._report = names, report
        self._told: set[int] = set()
        self._suspected: dict[int, tuple[torch.optim.Optimizer, WeightsBroken]] = {}
        self._before: tuple[str, ...] | None = None  # layers, where the gradients of this step are broken
        self._unread: dict[int, tuple[weakref.ref[torch.optim.Optimizer], StepDone, _Earlier]] = {}

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Look at the gradients that are about to be applied."""
        self._confirm(optimizer)
        suspicious = id(optimizer) not in self._told and _few_are_broken(optimizer)
        self._before = self._layers(optimizer) if suspicious else None

    def after_step(self, optimizer: torch.optim.Optimizer, done: StepDone, earlier: _Earlier) -> None:
        """Look at the weights; ``earlier`` returns the steps that this optimizer has made so far."""
        before, self._before = self._before, None
        self._unread.pop(id(optimizer), None)
        if isinstance(optimizer, torch.optim.Optimizer) and not any(map(may_read, _ends(optimizer))):
            self._unread[id(optimizer)] = weakref.ref(optimizer), done, earlier
        elif before:
            self._suspect(optimizer, before, done, earlier)
        elif before is not None and done.happened and (layers := self._layers(optimizer)):
            in_backward = done.loss is not None and math.isfinite(done.loss)
            event = WeightsBroken(step=done.step, line=done.line, layers=layers, in_backward=in_backward)
            self._suspected[id(optimizer)] = optimizer, event

    def is_over(self) -> None:
        """Report what is broken at the end."""
        for reference, done, earlier in self._unread.values():
            optimizer = reference()
            if optimizer is not None and id(optimizer) not in self._told and not is_captured():
                self._suspect(optimizer, self._layers(optimizer), done, earlier)
        for optimizer, _ in list(self._suspected.values()):
            self._confirm(optimizer)

    def _suspect(
        self, optimizer: torch.optim.Optimizer, layers: tuple[str, ...], done: StepDone, earlier: _Earlier
    ) -> None:
        """Take the last step whose loss was finite for the one that broke these layers, if there is one."""
        finite = [each for each in earlier() if each.loss is not None and math.isfinite(each.loss)]
        if layers and finite:
            event = WeightsBroken(step=finite[-1].index, line=done.line, layers=layers, in_backward=False)
            self._suspected[id(optimizer)] = optimizer, event

    def _confirm(self, optimizer: torch.optim.Optimizer) -> None:
        _, event = self._suspected.pop(id(optimizer), (None, None))
        if event is not None and self._layers(optimizer):
            self._told.add(id(optimizer))
            self.first = self.first or event
            self._report(event)

    def _layers(self, optimizer: torch.optim.Optimizer) -> tuple[str, ...]:
        """Name the layers with trained weights that are not finite."""
        trained = [p for p in parameters_of(optimizer) if p.requires_grad]
        return tuple(name for name, own in self._names.by_layer(trained).items() if not all_finite(own))


def _ends(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the first and the last gradient."""
    gradients = [p.grad for p in parameters_of(optimizer) if p.grad is not None]
    return [gradients[0], gradients[-1]] if gradients else []


def _few_are_broken(optimizer: torch.optim.Optimizer) -> bool:
    if is_captured():
        return False
    samples = [sample_of(each) for each in _ends(optimizer) if may_read(each)]
    return not all(bool(each.isfinite().all()) for each in samples if each is not None)
