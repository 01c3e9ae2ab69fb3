"""Look whether a step has left weights inf or NaN, where its gradients speak for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from amp_lessons.audit.numbers.buffers import all_finite
from amp_lessons.audit.numbers.naming import Names
from amp_lessons.audit.recorder.events import Event, StepDone, WeightsBroken
from amp_lessons.audit.recorder.gradients import parameters_of, sample_of
from amp_lessons.audit.recorder.later import is_captured, may_read
from amp_lessons.audit.seen import StepSeen


class BrokenWeights:
    """Report once of each optimizer that weights are inf or NaN, and since which of its steps.

    A few numbers of two gradients are read before a step, where nobody waits for them; weights are looked at
    only where one of those is no finite number. What a loop has put back until the next step, did no harm.
    """

    def __init__(self, names: Names, report: Callable[[Event], None]) -> None:
        self.first: WeightsBroken | None = None
        self._names, self._report = names, report
        self._told: set[int] = set()
        self._suspected: dict[int, tuple[torch.optim.Optimizer, WeightsBroken]] = {}
        self._before: tuple[str, ...] | None = None  # layers, where the gradients of this step are broken

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Look at the gradients that are about to be applied."""
        self._confirm(optimizer)
        suspicious = id(optimizer) not in self._told and _few_are_broken(optimizer)
        self._before = self._layers(optimizer) if suspicious else None

    def after_step(
        self, optimizer: torch.optim.Optimizer, done: StepDone, earlier: Callable[[], Sequence[StepSeen]]
    ) -> None:
        """Look at the weights; ``earlier`` returns the steps that this optimizer has made before."""
        before, self._before = self._before, None
        layers = before or (self._layers(optimizer) if before is not None and done.happened else ())
        if not layers:
            return
        step, in_backward = done.step, done.loss is not None and math.isfinite(done.loss)
        if before:
            finite = [each for each in earlier() if each.loss is not None and math.isfinite(each.loss)]
            if not finite:
                return  # they were never seen to be finite
            step, in_backward = finite[-1].index, False
        event = WeightsBroken(step=step, line=done.line, layers=layers, in_backward=in_backward)
        self._suspected[id(optimizer)] = optimizer, event

    def is_over(self) -> None:
        """Report what is broken at the end."""
        for optimizer, _ in list(self._suspected.values()):
            self._confirm(optimizer)

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


def _few_are_broken(optimizer: torch.optim.Optimizer) -> bool:
    gradients = [p.grad for p in parameters_of(optimizer) if p.grad is not None]
    if not gradients or is_captured():
        return False
    samples = [sample_of(each) for each in (gradients[0], gradients[-1]) if may_read(each)]
    return not all(bool(each.isfinite().all()) for each in samples if each is not None)
