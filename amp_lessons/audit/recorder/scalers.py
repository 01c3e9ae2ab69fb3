"""Calls of gradient scalers as events."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from amp_lessons.audit.recorder import events, graph, places
from amp_lessons.audit.recorder.gradients import parameters_of
from amp_lessons.audit.recorder.later import Later, scale_of
from amp_lessons.audit.recorder.optimizers import OptimizerCalls
from amp_lessons.audit.recorder.shared import Known, Log, Part
from amp_lessons.precisions import HALF_DTYPES

_MOST_HELD = 4  # by an object that only hands on what it is given


def _pass_over_wrappers_of(scaler: torch.amp.GradScaler) -> None:
    """Take no line of a callable that holds little but the scaler, as NativeScaler, for one to mend."""
    for holder in places.holders_of(scaler):
        held = vars(holder).values()
        trains = any(isinstance(each, (torch.nn.Module, torch.optim.Optimizer)) for each in held)
        if callable(holder) and len(held) <= _MOST_HELD and not trains:
            places.pass_over(type(holder))


def _found_inf(scaler: torch.amp.GradScaler, optimizer: Any) -> bool:
    """Whether a scaler found inf or NaN when it last looked; it has read the answer itself just before."""
    found = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
    return any(bool(each) for each in found.values())


class ScalerCalls(Part):
    """Calls of scalers; a step that one skips never reaches the optimizer's own hooks."""

    def __init__(self, log: Log, known: Known, optimizers: OptimizerCalls) -> None:
        super().__init__(log, known)
        self._optimizers = optimizers
        self._scaled: set[int] = set()  # scalers that have been given a loss

    def made(self, scaler: torch.amp.GradScaler, device: str, wanted: bool) -> None:
        """Record that a scaler was made for ``device``, enabled if it was up to its maker."""
        refused = device if wanted and not scaler.is_enabled() else ""
        self._known.scalers[id(scaler)] = scaler
        self._log.record(
            events.ScalerMade,
            line=places.line_outside(),
            scaler=id(scaler),
            enabled=scaler.is_enabled(),
            disabled_for=refused,
            scale=scale_of(scaler).at_once(),
        )

    def state_loading(self, scaler: torch.amp.GradScaler, state_dict: Any) -> float | None:
        """Return the scale of a scaler that is about to be given a state, if that costs nothing."""
        return scale_of(scaler).at_once()

    def state_loaded(
        self, before: float | None, result: None, scaler: torch.amp.GradScaler, state_dict: Any
    ) -> None:
        """Record that a scaler was given the state of another; ``before`` was its scale."""
        now = scale_of(scaler).at_once()
        raised = before is not None and now is not None and now > before
        self._log.record(events.ScalerLoaded, scaler=id(scaler), raised=raised)

    def loss_given(self, scaler: torch.amp.GradScaler, outputs: Any) -> None:
        """Record what ``scaler.scale`` is given."""
        if id(scaler) not in self._scaled:
            self._scaled.add(id(scaler))
            self._log.safely(_pass_over_wrappers_of, scaler)
        self._known.scalers[id(scaler)] = scaler
        self._here.note("scale")
        if isinstance(outputs, Tensor):
            self._here.loss = Later(outputs) if outputs.numel() == 1 else Later(None)
        one = outputs if isinstance(outputs, Tensor) else None
        self._log.record(
            events.LossScaled,
            scaler=id(scaler),
            enabled=scaler.is_enabled(),
            dtype=None if one is None else one.dtype,
            elements=0 if one is None else one.numel(),
            made_by=() if one is None else graph.operations(one),
            outside=one is not None and graph.made_outside(one, self._here.switches),
            line=places.line_outside(),
            made_at=None if one is None else graph.line_of(one, graph.MADE_AT),
            cast_at=None if one is None else graph.line_of(one, graph.CAST_AT),
        )

    def loss_scaled(self, before: None, scaled: Any, scaler: torch.amp.GradScaler, outputs: Any) -> None:
        """Mark what ``scaler.scale`` returned, so that a backward pass through it is known."""
        if scaler.is_enabled():
            for tensor in scaled if isinstance(scaled, (list, tuple)) else [scaled]:
                graph.mark(tensor, id(scaler))
                self._known.scale_read |= isinstance(tensor, Tensor) and tensor.grad_fn is None

    def scale_read(self, scaler: torch.amp.GradScaler) -> None:
        """Note that somebody asked for the scale, with which a loss can be multiplied by hand."""
        self._known.scale_read = True

    def unscaling(self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> None:
        """Record that gradients are about to be divided by the scale."""
        self._here.optimizer = optimizer
        parameters = self._known.parameters_of(optimizer)
        self._known.look(parameters)
        self._known.record_mixing(parameters)
        self._here.note("unscale_")
        if scaler.is_enabled():
            self._log.record(
                events.Unscaled,
                scaler=id(scaler),
                optimizer=id(optimizer),
                change=self._known.book.change(parameters),
                clipped=self._here.clipped,
                outdated=self._known.book.outdated(parameters, id(scaler), self._known.updates[id(scaler)]),
                undone_at=self._known.book.undone_at(parameters),
            )

    def unscaled(
        self, before: None, result: None, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer
    ) -> None:
        """Note that the gradients have their true size now."""
        if scaler.is_enabled():
            self._known.book.unscaled(parameters_of(optimizer))

    @contextmanager
    def stepping(self, scaler: torch.amp.GradScaler, optimizer: Any, closure: Any) -> Iterator[None]:
        """Record a scaler's step, and afterwards whether it let the optimizer step."""
        self._log.safely(self._step_asked, scaler, optimizer, closure)
        before, self._here.scaler = self._here.scaler, scaler
        self._here.stepped = False
        try:
            yield
            if not self._here.stepped and scaler.is_enabled():  # a disabled one calls the optimizer
                self._log.safely(self._unseen, scaler, optimizer)
        finally:
            self._here.scaler = before

    def _step_asked(self, scaler: torch.amp.GradScaler, optimizer: Any, closure: Any) -> None:
        self._here.note("scaler.step")
        self._here.optimizer = optimizer
        if closure is not None:
            parameters = list(inspect.signature(type(optimizer).step).parameters.values())
            needed = len(parameters) > 1 and parameters[1].default is inspect.Parameter.empty
            self._log.record(events.ClosureGiven, wants=needed)
        self._known.parameters_of(optimizer)

    def _unseen(self, scaler: torch.amp.GradScaler, optimizer: Any) -> None:
        """Record a step that no optimizer's hooks have seen: it was skipped, or something stands in for one.

        The optimizer that another object stands in for is stepped by its owner afterwards, as in fastai.
        """
        stands_in = not isinstance(optimizer, torch.optim.Optimizer)
        meant = self._known.owner_of(parameters_of(optimizer)) if stands_in else None
        if meant is not None and not _found_inf(scaler, optimizer):
            self._known.checked[id(meant)] = scaler
            return
        stepped = meant or optimizer
        self._optimizers.look_before(stepped)
        happened = stands_in and not _found_inf(scaler, optimizer)
        self._optimizers.finish(stepped, id(scaler), scale_of(scaler), happened=happened)

    def updating(self, scaler: torch.amp.GradScaler, *_: Any, **__: Any) -> float | None:
        """Record that a scaler is about to change its scale; return it where that costs nothing."""
        self._here.note("update")
        return scale_of(scaler).at_once()

    def updated(
        self, before: float | None, result: None, scaler: torch.amp.GradScaler, *_: Any, **__: Any
    ) -> None:
        """Record that a scaler may have changed its scale."""
        self._known.updates[id(scaler)] += 1
        if scaler.is_enabled():
            self._log.record(
                events.Updated, scaler=id(scaler), before=before, after=scale_of(scaler).at_once()
            )

    def refused(self, method: str, error: Exception, again: bool = False) -> None:
        """Record that a scaler's method, or a backward pass, raised: perhaps one that had been before."""
        if isinstance(error, (RuntimeError, AssertionError, ValueError)):
            stepped = method == "step" and id(self._here.optimizer) in self._here.over_for
            parameters = [] if self._here.optimizer is None else parameters_of(self._here.optimizer)
            half = next((each for each in parameters if each.dtype in HALF_DTYPES), None)
            self._log.record(
                events.Refused,
                method=method,
                message=str(error),
                called=tuple(self._here.called),
                again=again or stepped,
                called_before=tuple(self._here.called_before),
                cleared_at=self._here.cleared_at,
                cast_at=self._optimizers.casts.since(half),
            )
