"""Turn calls of scalers, optimizers and autograd into events, and keep what the next event needs to know.

A spy must never become the training's own exception, never change a number and never make a device wait. So
what goes wrong in here is kept as one of the ``troubles``, nothing is written to anybody's tensors, and
numbers that lie on a device are kept there until a sampled step waits for it anyway.
"""

from __future__ import annotations

import math
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from amp_lessons.audit.recorder import events, graph
from amp_lessons.audit.recorder.gradients import GradientBook, parameters_of, sample_of
from amp_lessons.audit.recorder.later import Later, is_batched, is_free_to_read, scale_of
from amp_lessons.audit.recorder.places import own_line
from amp_lessons.precisions import HALVES

_LONGEST_ROUND = 200  # names of calls that are kept between two steps
_HALVES = frozenset(HALVES.values())


@dataclass(frozen=True)
class _Taken:
    """Where gradients of a scaled loss were taken that may become a penalty; ``count`` is autograd's."""

    count: int
    scaler: int
    line: events.Line


class _Round:
    """What a thread has called since its last step, and what is known of the pass that is under way."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.called_before: list[str] = []  # in the round before
        self.clipped = False
        self.over = False  # a step has been asked for since the last backward pass
        self.forward: set[torch.dtype] = set()  # autocast was entered in
        self.autocast_ended: int | None = None  # where autograd's count of operations was then
        self.loss = Later(None)  # the last one
        self.penalty: _Taken | None = None


class Recorder:
    """Everything that was called, told to ``hear`` as events, in order.

    ``before_step`` is called before each step of an optimizer, with the step's number, the scale that its
    gradients still carry (1 for none), the loss scale, and the 16-bit dtype that autocast used; and
    ``after_step`` afterwards, with what came of it, the loss scale and the last loss. Where a closure
    computes the gradients, ``closure_begins`` comes before it, and ``before_step`` when the step is over.
    """

    def __init__(
        self,
        hear: Callable[[events.Event], None],
        before_step: Callable[[torch.optim.Optimizer, int, Later, Later, torch.dtype | None], None],
        after_step: Callable[[torch.optim.Optimizer, events.StepDone, Later, Later], None],
        found_optimizer: Callable[[torch.optim.Optimizer], None],
        cleared: Callable[[], None] = lambda: None,
        closure_begins: Callable[[torch.optim.Optimizer], None] = lambda optimizer: None,
    ) -> None:
        self.steps = 0
        self.troubles: list[str] = []
        self.optimizers: dict[int, torch.optim.Optimizer] = {}
        self._used: set[int] = set()  # optimizers that were made, or have stepped, since
        self._stepped: set[int] = set()  # optimizers that a step was asked of
        self._hear, self._before_step, self._after_step = hear, before_step, after_step
        self._found_optimizer, self._cleared = found_optimizer, cleared
        self._closure_begins = closure_begins
        self._book = GradientBook()
        self._updates: Counter[int] = Counter()  # of each scaler
        self._scalers: dict[int, torch.amp.GradScaler] = {}
        self._losses: dict[int, Later] = {}  # the last one that went backward into an optimizer's parameters
        self._weights: dict[int, list[tuple[int, Tensor | None]]] = {}  # of optimizers that have not stepped
        self._threads: dict[int, int] = {}  # the thread that last used an optimizer
        self._local = threading.local()

    @property
    def _round(self) -> _Round:
        if not hasattr(self._local, "round"):
            self._local.round = _Round()
        return self._local.round

    def _of_this_thread(self) -> dict[int, torch.optim.Optimizer]:
        """Return the optimizers that no other thread uses: to read what another frees would be the end."""
        here = threading.get_ident()
        return {key: o for key, o in list(self.optimizers.items()) if self._threads.get(key, here) == here}

    # --- what every observation goes through

    def safely(self, observe: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call ``observe``; whatever goes wrong in it is noted here and does not reach the training."""
        try:
            return observe(*args, **kwargs)
        except Exception as error:
            trouble = f"{getattr(observe, '__name__', 'observer')}: {type(error).__name__}: {error}"
            if trouble not in self.troubles:
                self.troubles.append(trouble)
            return None

    def tell(self, kind: Callable[..., events.Event], **facts: Any) -> None:
        """Make an event of what was seen, with the person's own line, and let the judges hear it."""
        line = facts.pop("line", None) or own_line()
        self._hear(kind(step=self.steps, line=line, **facts))

    def _look(self, parameters: Iterable[Tensor]) -> None:
        """Notice what was done to gradients; what clipping does to them is told otherwise."""
        parameters = list(parameters)
        scaler = self._scalers.get(self._book.scaler_of(parameters))
        scale = scale_of(scaler).at_once() if scaler is not None and not self._round.clipped else None
        self._book.look(parameters, scale)

    def is_scaled_gradient(self, tensor: Tensor) -> bool:
        """Whether a tensor holds a gradient that is still multiplied by the loss scale."""
        return self._book.is_scaled(tensor)

    def sample_gradients(self, sampling: bool) -> None:
        """Say whether gradients that lie on a device are to be sampled in this step."""
        self._book.sampling = sampling

    def _tell_of_mixing(self, parameters: Iterable[Tensor]) -> None:
        """Tell of gradients that are about to be used, and were added to others that do not belong there.

        Until then it does no harm: a GAN's generator fills gradients of the discriminator, which are cleared.
        """
        added = self._book.added_to(parameters)
        if added is not None:
            self.tell(events.GradientsMixed, applied=added.applied, line=added.line)

    def _note(self, name: str) -> None:
        if len(self._round.called) < _LONGEST_ROUND:
            self._round.called.append(name)

    # --- scalers

    def scaler_made(self, scaler: torch.amp.GradScaler, device: str, wanted: bool) -> None:
        """Hear that a scaler was made for ``device``, enabled if it was up to its maker."""
        refused = device if wanted and not scaler.is_enabled() else ""
        self._scalers[id(scaler)] = scaler
        self.tell(events.ScalerMade, scaler=id(scaler), enabled=scaler.is_enabled(), disabled_for=refused)

    def state_loaded(self, scaler: torch.amp.GradScaler, before: float | None) -> None:
        """Hear that a scaler was given the state of another; ``before`` was its scale."""
        now = scale_of(scaler).at_once()
        raised = before is not None and now is not None and now > before
        self.tell(events.ScalerLoaded, scaler=id(scaler), raised=raised)

    def loss_given(self, scaler: torch.amp.GradScaler, outputs: Any) -> None:
        """Hear what ``scaler.scale`` is given."""
        self._scalers[id(scaler)] = scaler
        self._note("scale")
        if isinstance(outputs, Tensor):
            self._round.loss = Later(outputs) if outputs.numel() == 1 else Later(None)
        one = outputs if isinstance(outputs, Tensor) else None
        self.tell(
            events.LossScaled,
            scaler=id(scaler),
            enabled=scaler.is_enabled(),
            dtype=None if one is None else one.dtype,
            elements=0 if one is None else one.numel(),
            made_by=() if one is None else graph.operations(one),
            outside=one is not None and graph.made_after(one, self._round.autocast_ended),
        )

    def loss_scaled(self, scaler: torch.amp.GradScaler, scaled: Any) -> None:
        """Mark what ``scaler.scale`` returned, so that a backward pass through it is known."""
        if scaler.is_enabled():
            for tensor in scaled if isinstance(scaled, (list, tuple)) else [scaled]:
                graph.mark(tensor, id(scaler))

    def unscaling(self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> None:
        """Hear that gradients are about to be divided by the scale."""
        parameters = self.known(optimizer)
        self._look(parameters)
        self._tell_of_mixing(parameters)
        self._note("unscale_")
        if scaler.is_enabled():
            self.tell(
                events.Unscaled,
                scaler=id(scaler),
                optimizer=id(optimizer),
                change=self._book.change(parameters),
                clipped=self._round.clipped,
                outdated=self._book.outdated(parameters, id(scaler), self._updates[id(scaler)]),
            )

    def unscaled(self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> None:
        """Note that the gradients have their true size now."""
        if scaler.is_enabled():
            self._book.unscaled(parameters_of(optimizer))

    @contextmanager
    def scaler_stepping(self, scaler: torch.amp.GradScaler, optimizer: Any, closure: Any) -> Iterator[None]:
        """Hear of a scaler's step, and afterwards whether it let the optimizer step."""
        self.safely(self._scaler_step_asked, scaler, optimizer, closure)
        before, self._local.scaler = getattr(self._local, "scaler", None), scaler
        self._local.stepped = False
        try:
            yield
        except Exception:
            raise
        else:
            if not self._local.stepped:
                self.safely(self._skipped, scaler, optimizer)
        finally:
            self._local.scaler = before

    def _scaler_step_asked(self, scaler: torch.amp.GradScaler, optimizer: Any, closure: Any) -> None:
        self._note("scaler.step")
        if closure is not None:
            self.tell(events.ClosureGiven)
        self.known(optimizer)

    def _skipped(self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> None:
        if scaler.is_enabled():  # a disabled one calls the optimizer, whose own hooks have seen it
            self._look_before_step(optimizer)
            self._finish_step(optimizer, id(scaler), scale_of(scaler), happened=False)

    def updating(self, scaler: torch.amp.GradScaler) -> float | None:
        """Hear that a scaler is about to change its scale; return it where that costs nothing."""
        self._note("update")
        return scale_of(scaler).at_once()

    def updated(self, scaler: torch.amp.GradScaler, before: float | None) -> None:
        """Hear that a scaler may have changed its scale."""
        self._updates[id(scaler)] += 1
        if scaler.is_enabled():
            self.tell(events.Updated, scaler=id(scaler), before=before, after=scale_of(scaler).at_once())

    def refused(self, method: str, error: Exception) -> None:
        """Hear that a scaler's method, or a backward pass, raised."""
        if isinstance(error, (RuntimeError, AssertionError, ValueError)):
            self.tell(
                events.Refused,
                method=method,
                message=str(error),
                called=tuple(self._round.called),
                called_before=tuple(self._round.called_before),
            )

    # --- autocast

    def autocast_made(self, context: Any, device: str, wanted: bool) -> None:
        """Hear that an autocast context was made; one for a device that is not here disables itself."""
        if wanted and not context._enabled and device != "cpu" and not torch.accelerator.is_available():
            self.tell(
                events.AutocastEntered,
                device=device,
                dtype=context.fast_dtype,
                enabled=False,
                disabled_for=device,
            )

    def autocast_entered(self, context: Any) -> None:
        """Hear that an autocast context began."""
        self._note("autocast")
        if context._enabled:
            self._round.forward.add(context.fast_dtype)
            self.tell(events.AutocastEntered, device=context.device, dtype=context.fast_dtype, enabled=True)

    def autocast_left(self) -> None:
        """Note where in autograd's count of operations the last autocast context ended."""
        self._round.autocast_ended = torch.autograd._get_sequence_nr()

    def old_spelling(self, name: str) -> None:
        """Hear that something was made by a deprecated name."""
        self.tell(events.OldSpelling, name=name)

    # --- autograd

    @contextmanager
    def backward(self, tensors: Any) -> Iterator[None]:
        """Hear of a backward pass into ``.grad``; those that it calls itself are part of it."""
        depth = getattr(self._local, "backward", 0)
        self._local.backward = depth + 1
        seen = self.safely(self._before_backward, tensors) if depth == 0 else None
        try:
            yield
        except Exception as error:
            self.safely(self.refused, "backward", error)
            raise
        finally:
            self._local.backward = depth
        if seen is not None:
            self.safely(self._after_backward, *seen)

    def differentiated(self, outputs: Iterable[Any], gradients: Iterable[Any], count: int) -> None:
        """Hear of ``autograd.grad``, before which autograd had counted ``count`` operations.

        Gradients of a scaled loss that can be differentiated again are marked, for they may become a penalty.
        Of ``is_grads_batched`` they have no graph before ``unbatched``.
        """
        scalers = [graph.scaler_of(each) for each in outputs if isinstance(each, Tensor)]
        scaler = next((each for each in scalers if each is not None), None)
        if scaler is None:
            return
        gradients, taken = list(gradients), _Taken(count, scaler, own_line())
        if any(is_batched(each) for each in gradients):
            self._local.batched = taken
        else:
            self._may_be_penalty(gradients, taken)

    def batching(self) -> None:
        """Hear that gradients of several directions are about to be computed at once."""
        self._local.batched = None

    def unbatched(self, gradients: Iterable[Any]) -> None:
        """Hear what became of them."""
        taken, self._local.batched = self._local.batched, None
        if taken is not None:
            self._may_be_penalty(gradients, taken)

    def _may_be_penalty(self, gradients: Iterable[Any], taken: _Taken) -> None:
        if graph.mark_gradients(gradients) and self._round.penalty is None:
            self._round.penalty = taken

    def _tell_of_penalty(self, loss: Tensor) -> None:
        """Tell of a loss that has scaled gradients in it."""
        taken = self._round.penalty
        if taken is not None:
            scale = scale_of(self._scalers[taken.scaler]).at_once()
            if graph.penalises_scaled(loss, taken.count, scale):
                self.tell(events.ScaledPenalty, line=taken.line, scale=scale)

    def _before_backward(self, tensors: Any) -> tuple[Any, ...] | None:
        roots = [tensors] if isinstance(tensors, Tensor) else [t for t in tensors if isinstance(t, Tensor)]
        if not roots:
            return None
        if self._round.over:
            self._round.called_before, self._round.called, self._round.over, self._round.clipped = (
                self._round.called,
                [],
                False,
                False,
            )
        self._note("backward")
        root = roots[0]
        self._tell_of_penalty(root)
        device = root.device.type
        autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        scaler = graph.scaler_of(root)
        if scaler is None and root.numel() == 1:
            self._round.loss = Later(root)
        for optimizer in self._of_this_thread().values():
            self._look(parameters_of(optimizer))
        facts = {
            "dtype": root.dtype,
            "made_by": graph.operations(root),
            "outside": graph.made_after(root, self._round.autocast_ended),
            "cast": graph.has_casts(root),
            "scaler": scaler,
            "factor": graph.factor(root),
            "again": graph.went_backward(root),
            "autocast": autocast,
            "line": own_line(),
        }
        return (facts,)

    def _after_backward(self, facts: dict[str, Any]) -> None:
        scaler = facts["scaler"]
        generation = self._updates[scaler] if scaler else 0
        self._book.passes += 1
        reached = frozenset(
            key
            for key, optimizer in self._of_this_thread().items()
            if self._book.after_backward(parameters_of(optimizer), scaler or 0, generation, facts["line"])
        )
        for key in reached:
            self._losses[key] = self._round.loss
        self.tell(
            events.Backward,
            **facts,
            forward=frozenset(self._round.forward),
            reached=reached,
            scalers_called=frozenset(self._scaled_since_step()),
            loss=self._round.loss.at_once(),
        )

    def _scaled_since_step(self) -> Iterable[str]:
        return {"scale"} & set(self._round.called)

    def clipped(self, *, by_value: bool, limit: float, parameters: Iterable[Tensor]) -> None:
        """Hear that gradients are about to be clipped."""
        parameters = list(parameters)
        self._look(parameters)
        scaler = self._scalers.get(self._book.scaled_by(parameters))
        self._round.clipped = True
        self._note("clip")
        late = self._round.over and not self._book.fresh(parameters) and self._book.waiting(parameters)
        self.tell(
            events.Clipped,
            by_value=by_value,
            scaled=scaler is not None,
            scale=scale_of(scaler).at_once() if scaler is not None else None,
            limit=limit,
            after_step=late,
        )

    def gradients_clamped(self, tensors: Iterable[Tensor]) -> None:
        """Hear of ``clamp_`` on tensors, which are gradients where ``clip_grad_value_`` calls it."""
        caller = sys._getframe(3).f_code.co_name  # of the spy, of ``safely``, of this
        if caller == "clip_grad_value_" and not self._round.clipped:
            self.clipped(by_value=True, limit=math.nan, parameters=self._owners_of(tensors))

    def _owners_of(self, gradients: Iterable[Tensor]) -> list[Tensor]:
        wanted = {id(gradient) for gradient in gradients}
        return [p for o in self._of_this_thread().values() for p in parameters_of(o) if id(p.grad) in wanted]

    def cleared(self, parameters: Iterable[Tensor], optimizer: torch.optim.Optimizer | None = None) -> None:
        """Hear that gradients were set to zero, by their optimizer or by their model."""
        if optimizer is not None:
            self._threads[id(optimizer)] = threading.get_ident()
        parameters = list(parameters)
        self._tell_of_dropping(parameters)
        self._note("zero_grad")
        self._book.cleared(parameters)
        self._cleared()

    def _tell_of_dropping(self, parameters: list[Tensor]) -> None:
        """Tell of gradients about to be cleared that nothing has used."""
        scaler = self._scalers.get(self._book.scaled_by(parameters))
        loss = self._round.loss.at_once()
        untouched = not {"unscale_", "scaler.step", "update", "optimizer.step"} & set(self._since_backward())
        broken = loss is not None and not math.isfinite(loss)
        if scaler is not None and untouched and broken and self._book.holds_all_scaled(parameters):
            self.tell(events.OverflowDropped, scale=scale_of(scaler).at_once())
        for key, optimizer in self._of_this_thread().items():
            if key not in self._stepped and self._book.unused(parameters_of(optimizer), parameters):
                self.tell(events.Dropped, optimizer=key, moved=self._moved(key, parameters_of(optimizer)))

    def _moved(self, optimizer: int, parameters: list[Tensor]) -> bool:
        """Whether weights are other than when this was last asked: by some of their numbers, on the CPU."""
        now = [(p._version, sample_of(p.detach()) if is_free_to_read(p) else None) for p in parameters]
        before, self._weights[optimizer] = self._weights.get(optimizer, now), now
        return any(
            was[0] != other[0] or (was[1] is not None and other[1] is not None and not was[1].equal(other[1]))
            for was, other in zip(before, now, strict=False)
        )

    # --- optimizers

    def step_begins(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Hear that an optimizer begins to step, whoever called it."""
        scaler = getattr(self._local, "scaler", None)
        closure = any(callable(each) for each in (*args, *kwargs.values()))
        parameters = self.known(optimizer)
        self._look(parameters)
        self._tell_of_mixing(parameters)
        self._local.stepped = True
        self._local.stepping = True
        self._note("optimizer.step")
        carried = self._carried(optimizer)
        self.tell(
            events.StepAsked,
            optimizer=id(optimizer),
            scaler=id(scaler) if scaler is not None and scaler.is_enabled() else None,
            scaled_by=self._book.scaled_by(parameters) or None,
            scale=carried.at_once(),
            unscaled=self._book.any_unscaled(parameters),
            cleared="zero_grad" in self._since_backward() and not self._stepped_before_clearing(),
            spent=self._stepped_before_clearing() and any(p.grad is not None for p in parameters),
            fresh=self._book.fresh(parameters),
            waiting=self._book.waiting(parameters),
            by_closure=closure,
            autocast=self._autocast_now(parameters),
            change=self._book.change(parameters),
            overflowed=not closure and self._overflowed(optimizer, parameters),
            half=next((p.dtype for p in parameters if p.dtype in _HALVES), None),
            eps_vanishes=_vanishing_eps(optimizer),
        )
        if closure:
            self._closure_begins(optimizer)
        else:
            self._look_before_step(optimizer)

    def step_ends(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Hear that an optimizer has stepped; a fused one may have left the weights alone."""
        self._local.stepping = False
        scaler = getattr(self._local, "scaler", None)
        if any(callable(each) for each in (*args, *kwargs.values())):
            self._look_before_step(optimizer)
        enabled = scaler is not None and scaler.is_enabled()
        found_inf = Later(getattr(optimizer, "found_inf", None)).at_once()
        self._finish_step(
            optimizer,
            id(scaler) if enabled else None,
            scale_of(scaler) if scaler is not None and enabled else Later(1.0),
            happened=not found_inf,
        )

    def _overflowed(self, optimizer: torch.optim.Optimizer, parameters: list[Tensor]) -> bool:
        """Whether gradients are inf or NaN, as the loss is: that is cheaper to ask, and does not suffice."""
        loss = self._losses.get(id(optimizer), self._round.loss).at_once()
        return loss is not None and not math.isfinite(loss) and not self._book.all_finite(parameters)

    def _since_backward(self) -> list[str]:
        """Return what was called after the last backward pass."""
        called = self._round.called[::-1]
        return called[: called.index("backward")] if "backward" in called else []

    def _stepped_before_clearing(self) -> bool:
        """Whether a step came between the last backward pass and the first clearing of gradients."""
        called = self._since_backward()[::-1]
        before = called[: called.index("zero_grad")] if "zero_grad" in called else []
        return bool({"scaler.step", "optimizer.step"} & set(before))

    def in_step(self) -> bool:
        """Whether this thread is inside an optimizer's step."""
        return getattr(self._local, "stepping", False)

    def _look_before_step(self, optimizer: torch.optim.Optimizer) -> None:
        scaler = getattr(self._local, "scaler", None)
        halves = self._round.forward & _HALVES
        used = next(iter(halves)) if len(halves) == 1 else None
        scale = scale_of(scaler) if scaler is not None else self._carried(optimizer)
        self._before_step(optimizer, self.steps, self._carried(optimizer), scale, used)

    def _finish_step(
        self, optimizer: torch.optim.Optimizer, scaler: int | None, scale: Later, happened: bool
    ) -> None:
        self._book.applied(parameters_of(optimizer))
        self._stepped.add(id(optimizer))
        self._round.over, self._round.penalty = True, None
        self._round.forward.clear()
        loss = self._losses.get(id(optimizer), self._round.loss)
        done = events.StepDone(
            step=self.steps,
            line=own_line(),
            optimizer=id(optimizer),
            scaler=scaler,
            happened=happened,
            loss=loss.at_once(),
        )
        self._hear(done)
        self._after_step(optimizer, done, scale, loss)
        self.steps += 1

    @contextmanager
    def schedule(self, schedule: Any, first: bool) -> Iterator[None]:
        """Hear of a step of a learning rate schedule; those that it calls itself are part of it."""
        depth = getattr(self._local, "schedules", 0)
        self._local.schedules = depth + 1
        try:
            yield
        finally:
            self._local.schedules = depth
        if depth == 0 and not first:
            optimizer = getattr(schedule, "optimizer", None)
            self.safely(
                self.tell,
                events.ScheduleStepped,
                schedule=id(schedule),
                optimizer=None if optimizer is None else id(optimizer),
            )

    def known(self, optimizer: torch.optim.Optimizer) -> list[Tensor]:
        """Return an optimizer's parameters, and watch it from now on."""
        self._threads[id(optimizer)] = threading.get_ident()
        if id(optimizer) not in self._used:
            self._used.add(id(optimizer))
            self.optimizers[id(optimizer)] = optimizer
            self.safely(self._found_optimizer, optimizer)
        return parameters_of(optimizer)

    @property
    def optimizers_in_use(self) -> int:
        """How many optimizers were asked for a step."""
        return len(self._stepped)

    def may_be_used(self, optimizer: torch.optim.Optimizer) -> None:
        """Watch an optimizer that was there before; its model is looked for when it steps."""
        self.optimizers[id(optimizer)] = optimizer

    def _carried(self, optimizer: torch.optim.Optimizer) -> Later:
        """Return the scale that an optimizer's gradients still carry."""
        scaler = self._scalers.get(self._book.scaled_by(parameters_of(optimizer)))
        return scale_of(scaler) if scaler is not None else Later(1.0)

    def _autocast_now(self, parameters: list[Tensor]) -> bool:
        """Whether autocast is on, or an outer context is open that keeps its cache although it is off."""
        nesting = torch.autocast_increment_nesting() - 1
        torch.autocast_decrement_nesting()
        return bool(parameters) and (nesting > 0 or torch.is_autocast_enabled(parameters[0].device.type))


def _vanishing_eps(optimizer: torch.optim.Optimizer) -> tuple[float, torch.dtype] | None:
    """Return an eps and the dtype of the weights in which it is 0, None where there is none."""
    for group in optimizer.param_groups:
        eps = group.get("eps")
        for dtype in {p.dtype for p in group["params"]} & _HALVES:
            if eps and float(torch.tensor(eps, dtype=dtype)) == 0.0:
                return float(eps), dtype
    return None
