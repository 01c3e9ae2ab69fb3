"""Gradients clipped, cleared and applied, as events."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from amp_lessons.audit.recorder import events
from amp_lessons.audit.recorder.autograd import CastCalls
from amp_lessons.audit.recorder.breaking import BreakingLines
from amp_lessons.audit.recorder.gradients import parameters_of, sample_of
from amp_lessons.audit.recorder.later import Later, may_read, scale_of
from amp_lessons.audit.recorder.places import line_outside, own_line
from amp_lessons.audit.recorder.shared import Known, Log, Part
from amp_lessons.precisions import HALF_DTYPES

_NONE = Later(None)


class GradientCalls(Part):
    """Gradients between backward and the step: they are clipped, or set to zero.

    ``on_cleared`` is called after they were set to zero.
    """

    def __init__(self, log: Log, known: Known, on_cleared: Callable[[], None]) -> None:
        super().__init__(log, known)
        self._on_cleared = on_cleared
        self._weights: dict[int, list[tuple[int, Tensor | None]]] = {}  # of optimizers that have not stepped

    def clipped(self, *, by_value: bool, limit: float, parameters: Iterable[Tensor]) -> None:
        """Record that gradients are about to be clipped."""
        parameters = list(parameters)
        self._known.look(parameters)
        scaler = self._known.scaler_on(parameters)
        self._here.clipped = True
        self._here.note("clip")
        book = self._known.book
        late = self._here.over and not book.fresh(parameters) and book.waiting(parameters)
        self._log.record(
            events.Clipped,
            by_value=by_value,
            scaled=scaler is not None,
            scale=scale_of(scaler).at_once() if scaler is not None else None,
            limit=limit,
            after_step=late,
        )

    def clamped(self, tensors: Tensor | Iterable[Tensor], *bounds: Any, **named: Any) -> None:
        """Record ``clamp_`` on tensors, which are gradients where ``clip_grad_value_`` calls it."""
        caller = sys._getframe(3).f_code.co_name  # of the spy, of ``safely``, of this
        if caller == "clip_grad_value_" and not self._here.clipped:
            wanted = {id(each) for each in ([tensors] if isinstance(tensors, Tensor) else tensors)}
            all_owned = [p for o in self._known.of_this_thread().values() for p in parameters_of(o)]
            owners = [p for p in all_owned if id(p.grad) in wanted]
            lowest, *_ = *bounds, *named.values()
            self.clipped(by_value=True, limit=abs(float(lowest)), parameters=owners)

    def sent_by(self, before: None, result: None, model: Any, state: Any, hook: Any) -> None:
        """Record by which hook DDP sends gradients, where that casts them to 16 bits."""
        name = getattr(hook, "__name__", "")
        if "16_compress" in name:
            self._log.record(events.SummedInHalf, hook=name)

    def cleared(self, before: None, result: None, by: Any, *_: Any, **__: Any) -> None:
        """Record that gradients were set to zero by their optimizer or by their model."""
        if isinstance(by, torch.optim.Optimizer):
            self._known.used_here(by)
        parameters = parameters_of(by) if isinstance(by, torch.optim.Optimizer) else list(by.parameters())
        self._record_dropped(parameters)
        if "zero_grad" not in self._here.since_backward():
            self._here.cleared_at = own_line()
        self._here.note("zero_grad")
        self._known.book.cleared(parameters)
        self._known.forget_losses(parameters)
        self._on_cleared()

    def _record_dropped(self, parameters: list[Tensor]) -> None:
        """Record gradients about to be cleared that nothing has used."""
        scaler = self._known.scaler_on(parameters)
        loss = self._here.loss.at_once()
        touching = {"unscale_", "scaler.step", "update", "optimizer.step"}
        untouched = touching.isdisjoint(self._here.since_backward())
        broken = loss is not None and not math.isfinite(loss)
        if scaler is not None and untouched and broken and self._known.book.holds_all_scaled(parameters):
            scale = scale_of(scaler).at_once()
            self._log.record(events.OverflowDropped, scaler=id(scaler), scale=scale)
        for key, optimizer in self._known.of_this_thread().items():
            own = parameters_of(optimizer)
            if key not in self._known.stepped and self._known.book.unused(own, parameters):
                self._log.record(events.Dropped, optimizer=key, moved=self._moved(key, own))

    def _moved(self, optimizer: int, parameters: list[Tensor]) -> bool:
        """Whether weights are other than when last asked: by some of their numbers, if they may be read."""
        now = [(p._version, sample_of(p.detach()) if may_read(p) else None) for p in parameters]
        before, self._weights[optimizer] = self._weights.get(optimizer, now), now
        return any(
            was[0] != other[0] or (was[1] is not None and other[1] is not None and not was[1].equal(other[1]))
            for was, other in zip(before, now, strict=False)
        )


class OptimizerCalls(Part):
    """Steps of optimizers and of the schedules of their learning rates.

    ``before_step`` is called before each step of an optimizer, with the step's number, the scale that its
    gradients still carry (1 for none), the loss scale, and the 16-bit dtype that autocast used; and
    ``after_step`` afterwards, with what came of it, the loss scale and the last loss. Where a closure
    computes the gradients, ``closure_begins`` comes before it, and ``before_step`` when the step is over.
    """

    def __init__(
        self,
        log: Log,
        known: Known,
        casts: CastCalls,
        before_step: Callable[[torch.optim.Optimizer, int, Later, Later, torch.dtype | None], None],
        after_step: Callable[[torch.optim.Optimizer, events.StepDone, Later, Later, Later], None],
        closure_begins: Callable[[torch.optim.Optimizer], None],
    ) -> None:
        super().__init__(log, known)
        self.casts, self.breaking = casts, BreakingLines(log.safely)
        self._before_step, self._after_step = before_step, after_step
        self._closure_begins = closure_begins
        self._asked_before = _asked_of_accelerate()  # by a training that is over, or by whoever watches none

    def made(self, before: None, result: None, optimizer: torch.optim.Optimizer, *_: Any, **__: Any) -> None:
        """Watch an optimizer that was made."""
        self._known.parameters_of(optimizer)

    def begins(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Record that an optimizer begins to step, whoever called it."""
        checked = self._known.checked.pop(id(optimizer), None)
        if self._here.scaler is None and checked is not None:
            self._here.scaler, self._here.lent = checked, True
        scaler = self._here.scaler
        closure = any(callable(each) for each in (*args, *kwargs.values()))
        parameters = self._known.parameters_of(optimizer)
        self._known.look(parameters)
        self._known.record_mixing(parameters)
        self._here.stepped = True
        self._here.stepping = True
        self._here.step_in_autocast = any(torch.is_autocast_enabled(p.device.type) for p in parameters[:1])
        self._here.note("optimizer.step")
        carried = self._known.carried(optimizer)
        half = next((p for p in parameters if p.dtype in HALF_DTYPES), None)
        change = self._known.book.change(parameters)
        added_up, made_at = self._known.means_added_up(optimizer)
        divided = change in ("by a factor", "undone") and not self._here.clipped
        # gradients are inf or NaN, as the loss is: that is cheaper to ask, and does not suffice
        loss = self._known.loss_of(optimizer).at_once()
        broken = not closure and loss is not None and not math.isfinite(loss)
        overflowed = broken and not self._known.book.all_finite(parameters)
        nesting = torch.autocast_increment_nesting() - 1  # a context that is off keeps autocast's cache, too
        torch.autocast_decrement_nesting()
        made_just_now = torch._C._current_graph_task_id() != -1  # a hook on a gradient asks, within backward
        self._log.record(
            events.StepAsked,
            optimizer=id(optimizer),
            scaler=id(scaler) if scaler is not None and scaler.is_enabled() else None,
            scaled_by=self._known.book.scaled_by(parameters) or None,
            scale=carried.at_once(),
            unscaled=self._known.book.any_unscaled(parameters),
            cleared="zero_grad" in self._here.since_backward() and not self._here.stepped_before_clearing(),
            spent=self._here.stepped_before_clearing() and any(p.grad is not None for p in parameters),
            fresh=made_just_now or self._known.book.fresh(parameters),
            waiting=made_just_now or self._known.book.waiting(parameters),
            by_closure=closure,
            autocast=self._here.step_in_autocast or (bool(parameters) and nesting > 0),
            change=change,
            undone_at=self._known.book.undone_at(parameters),
            overflowed=overflowed,
            half=None if half is None else half.dtype,
            eps_vanishes=_vanishing_eps(optimizer),
            cleared_at=self._here.cleared_at,
            cast_at=self.casts.since(half),
            decay=None if half is None else _decay_of_halves(optimizer),
            asked="" if self._asked_before else _asked_of_accelerate(),
            means_added_up=0 if divided else added_up,
            means_made_at=made_at,
        )
        if closure:
            self._closure_begins(optimizer)
        else:
            self.look_before(optimizer)

    def ends(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Record that an optimizer has stepped; a fused one may have left the weights alone."""
        self._here.stepping = False
        cast, self._here.cast_in_step = self._here.cast_in_step, None
        if cast is not None:
            self._log.record(events.ProductsInStep, dtype=cast, line=line_outside())
        scaler = self._here.scaler
        if any(callable(each) for each in (*args, *kwargs.values())):
            self.look_before(optimizer)
        enabled = scaler is not None and scaler.is_enabled()
        scaled_by = scaler if enabled else self._known.scaler_of(parameters_of(optimizer))
        found_inf = Later(getattr(optimizer, "found_inf", None))
        self.finish(
            optimizer,
            id(scaler) if enabled else None,
            scale_of(scaled_by) if scaled_by is not None else Later(self._here.by_hand),
            happened=not found_inf.at_once(),
            found_inf=found_inf,
        )
        if self._here.lent:
            self._here.scaler, self._here.lent = None, False

    def look_before(self, optimizer: torch.optim.Optimizer) -> None:
        """Call ``before_step`` with what the step is about to apply."""
        scaler = self._here.scaler
        halves = self._here.forward & HALF_DTYPES
        used = next(iter(halves)) if len(halves) == 1 else None
        scale = scale_of(scaler) if scaler is not None else self._known.carried(optimizer)
        with self.breaking.paused():
            self._before_step(optimizer, self._log.steps, self._known.carried(optimizer), scale, used)

    def finish(
        self,
        optimizer: torch.optim.Optimizer,
        scaler: int | None,
        scale: Later,
        happened: bool,
        found_inf: Later = _NONE,
    ) -> None:
        """Record that a step is over: made by the optimizer, or skipped by the scaler.

        A fused optimizer skips it by itself where it ``found_inf``; until that is read from its device, the
        step is taken to have ``happened``.
        """
        line = line_outside()
        self._known.book.applied(parameters_of(optimizer), line)
        self._known.stepped.add(id(optimizer))
        self._here.over, self._here.penalty = True, None
        self._here.over_for.add(id(optimizer))
        if not self._here.backwards:  # the pass that steps it within may go on to others
            self._here.forward.clear()
        loss = self._known.loss_of(optimizer)
        losses = self._known.losses.pop(id(optimizer), ())
        done = events.StepDone(
            step=self._log.steps,
            line=line,
            optimizer=id(optimizer),
            scaler=scaler,
            happened=happened,
            loss=loss.at_once() if happened else loss.read(),  # the scaler has waited for a skipped one
            backwards=max(1, len(losses)),
            backward_at=frozenset(each.line for each in losses),
            broken_at=self.breaking.line(),
            grown=None if happened else self.breaking.grown(),
        )
        self.breaking.step_is_over(happened)
        self._log.report(done)
        with self.breaking.paused():
            self._after_step(optimizer, done, scale, loss, found_inf)
        self._log.steps += 1

    @contextmanager
    def schedule(self, schedule: Any, first: bool) -> Iterator[None]:
        """Record a step of a learning rate schedule; those that it calls itself are part of it."""
        depth = self._here.schedules
        self._here.schedules = depth + 1
        try:
            yield
        finally:
            self._here.schedules = depth
        if depth == 0 and not first:
            optimizer = getattr(schedule, "optimizer", None)
            self._known.schedules[id(schedule)] = schedule
            self._log.safely(
                self._log.record,
                events.ScheduleStepped,
                schedule=id(schedule),
                optimizer=None if optimizer is None else id(optimizer),
                in_step=self._here.stepping,
            )


def _asked_of_accelerate() -> str:
    """Return the precision that Accelerate was asked for, "" where it is not in use."""
    module = sys.modules.get("accelerate.state")
    state = module.AcceleratorState._shared_state if module is not None else {}
    return str(state.get("_mixed_precision") or "")


def _decay_of_halves(optimizer: torch.optim.Optimizer) -> float | None:
    """Return the largest part that a step takes by itself from weights in 16 bits, before it updates them.

    None where nothing is taken, or together with the update: by a fused step, or as a part of the gradient.
    """
    parts = [
        float(group["lr"]) * group["weight_decay"]
        for group in optimizer.param_groups
        if isinstance(optimizer, torch.optim.AdamW) or group.get("decoupled_weight_decay")
        if group["weight_decay"] and not group.get("fused") and not isinstance(group["lr"], Tensor)
        if any(p.dtype in HALF_DTYPES for p in group["params"])
    ]
    return max(parts, default=None)


def _vanishing_eps(optimizer: torch.optim.Optimizer) -> tuple[float, torch.dtype] | None:
    """Return an eps and the dtype of the weights in which it is 0, None where there is none.

    A fused optimizer adds it in fp32.
    """
    for group in optimizer.param_groups:
        eps = None if group.get("fused") else group.get("eps")
        for dtype in {p.dtype for p in group["params"]} & HALF_DTYPES:
            if eps and float(torch.tensor(eps, dtype=dtype)) == 0.0:
                return float(eps), dtype
    return None
