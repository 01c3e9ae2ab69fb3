"""Watch anybody's training: nothing of it is changed, and its mistakes and its numbers are reported."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from amp_lessons._base.arguments import require, require_whole
from amp_lessons.audit.log import StepLog, writer_to
from amp_lessons.audit.numbers.buffers import BufferRecorder, all_finite
from amp_lessons.audit.numbers.frames import FrameRecorder
from amp_lessons.audit.numbers.naming import NOT_SEEN, Names, is_compiled, is_sharded, living_optimizers
from amp_lessons.audit.numbers.sampler import Sampler
from amp_lessons.audit.recorder import events, places
from amp_lessons.audit.recorder.gradients import parameters_of
from amp_lessons.audit.recorder.later import is_captured, look_closely
from amp_lessons.audit.recorder.on_tensors import watching_beside, watching_tensors
from amp_lessons.audit.recorder.replacing import replaced
from amp_lessons.audit.recorder.spies import Recorder, spying
from amp_lessons.audit.rules.judge import Judge
from amp_lessons.audit.seen import Clock, LayerSeen, Nonfinite, StepSeen

if TYPE_CHECKING:
    from amp_lessons.audit.explaining import Explanation
    from amp_lessons.audit.findings import Place
    from amp_lessons.audit.report.report import Report


_COMPILED = (
    "a model runs as compiled code: its modules are not seen from inside, so neither is where the first inf "
    "or NaN appears, nor what is computed beside them; gradients, steps and the scaler are"
)


_CAPTURED = (
    "a step was captured as a CUDA graph: no numbers of it are seen, and nothing of when the graph runs again"
)


class Seen:
    """A training that is watched, or was, and all that has been seen of it."""

    def __init__(self, models: Iterable[nn.Module], every: int) -> None:
        self._names = Names(models)
        self._every = every
        self._ended = ""
        self._ended_at: Place | None = None
        self._explanation: Explanation | None = None
        self._clock = Clock()
        self._device: torch.device | None = None
        self._listeners: list[Callable[[int, bool], None]] = []
        self._at_end: list[Callable[[], None]] = []
        self._unseen: list[str] = []
        self._judge = Judge(lambda: self.steps)
        self._frames = FrameRecorder(self._names, self._stale, self._safely)
        self._buffers = BufferRecorder(
            self._names, lambda: self._frames.armed, self._judge.judge, self._safely
        )
        self._tensors = ExitStack()
        self._sampler = Sampler(self._names, self._frames, every, self._judge.judge, self._origin)
        self._recorder = Recorder(
            report=self._take,
            before_step=self._clock.looking()(self._sampler.before_step),
            after_step=self._clock.looking()(self._after_step),
            found_optimizer=self._found,
            cleared=self._frames.cleared,
            closure_begins=self._clock.looking()(self._sampler.closure_begins),
        )

    @property
    def report(self) -> Report:
        """The mistakes of the training, and its numbers."""
        from amp_lessons.audit.report.report import Report  # whoever only watches need not wait for it

        troubles = (f"the audit's own trouble, {trouble}" for trouble in self._recorder.troubles)
        return Report(
            findings=self._judge.sightings(),
            precision=self._judge.precision,
            steps=self.steps,
            layers=self.layers,
            first_nonfinite=self.first_nonfinite,
            every=self._every,
            ended=self._ended,
            ended_at=self._ended_at,
            not_seen=(*self._unseen, *troubles),
            explanation=self._explanation,
            how=self._clock.how(self._device),
        )

    @property
    def steps(self) -> tuple[StepSeen, ...]:
        """One line for every step that an optimizer was asked for."""
        return self._sampler.steps

    def steps_from(self, first: int, wait: bool) -> Iterator[StepSeen]:
        """Yield the steps from the ``first`` on; without ``wait`` as far as no device is waited for."""
        return self._sampler.steps_from(first, wait)

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the mistakes and remarks found so far."""
        return tuple(dict.fromkeys(each.code for each in self._judge.sightings()))

    @property
    def layers(self) -> Mapping[str, LayerSeen]:
        """Each layer's gradients, dtypes and lost updates at the steps that were looked at, by its name."""
        return self._sampler.layers

    @property
    def first_nonfinite(self) -> Nonfinite | None:
        """The first inf or NaN that was found: one of the forward pass, rather than an everyday overflow."""
        return self._frames.first(self._sampler.steps, self._sampler.broken.first)

    def listen(
        self, listener: Callable[[int, bool], None], at_end: Callable[[], None] = lambda: None
    ) -> None:
        """Call ``listener`` after each step of an optimizer, in its thread, and ``at_end`` when all is over.

        ``listener`` is given the number of the step, from 0, and whether it was looked at closely: then a
        device has been waited for, and reading ``report`` costs no further wait. An ``Exception`` that it
        raises becomes one of the audit's own troubles; whatever else it raises comes out of the step.
        """
        self._listeners.append(listener)
        self._at_end.append(at_end)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record everything that happens inside, and leave PyTorch as it was."""
        for optimizer in living_optimizers():
            self._recorder.known.may_be_used(optimizer)
        with ExitStack() as stack:
            stack.enter_context(places.forgetting_wrappers())
            stack.enter_context(spying(self._recorder))
            stack.enter_context(watching_beside(self._recorder))
            self._tensors = stack.enter_context(ExitStack())
            self._tensors.enter_context(watching_tensors(self._recorder))
            self._tensors.enter_context(self._recorder.optimizers.breaking.allowed())
            stack.enter_context(replaced(torch, "compile", self._compiling))
            for hooks in (self._frames, self._buffers):
                stack.callback(hooks.stop)
                hooks.start()
            stack.callback(look_closely, False)
            look_closely(True)
            self._safely(self._buffers.look_at, self._names.models)
            self._notice_compiled()
            try:
                yield
            except BaseException as error:
                self._ended = f"{type(error).__name__}: {error}".rstrip(": ")
                if isinstance(error, Exception):
                    self._explanation = self._recorder.safely(_explained, error)
                self._recorder.safely(self._ended_by, error)
                raise
            finally:
                self._clock.stop()
                self._recorder.safely(self._frames.look_at_all)
                self._recorder.safely(self._buffers.look_at_all)
                self._recorder.safely(self._sampler.broken.is_over)
                for at_end in self._at_end:
                    self._recorder.safely(at_end)

    def _ended_by(self, error: BaseException) -> None:
        if isinstance(error, Exception) or (isinstance(error, SystemExit) and error.code):
            self._ended_at = places.place_of(places.line_of(error))
            self._frames.look_at_all()
            overflowed = self._frames.overflowed("forward", self._recorder.steps)
            self._recorder.record(
                events.Ended,
                line=places.line_of(error),
                exception=type(error).__name__,
                message=str(error),
                overflow=isinstance(error, Exception) and overflowed,
                stopped=places.raised_by_own_code(error) and bool(self._safely(self._overflow_waits)),
            )

    def _overflow_waits(self) -> bool:
        """Whether gradients that no step has used are inf or NaN, and the weights that they are of finite."""
        known = self._recorder.known
        if {"scaler.step", "optimizer.step", "update"} & set(self._recorder.here.since_backward()):
            return False
        reached = [o for key, o in known.of_this_thread().items() if known.losses.get(key)]
        return any(
            all_finite(parameters) and not all_finite([p.grad for p in parameters if p.grad is not None])
            for parameters in map(parameters_of, reached)
        )

    def _compiling(self, original: Any) -> Any:
        def compile(*args: Any, **kwargs: Any) -> Any:
            if os.environ.get("TORCHDYNAMO_DISABLE") != "1":  # then torch.compile gives back what it got
                self.compiled()
            return original(*args, **kwargs)

        return compile

    def compiled(self) -> None:
        """Record that something is about to run as compiled code, which hooks would only slow down."""
        self._frames.stop()
        self._buffers.stop()
        self._tensors.close()
        if _COMPILED not in self._unseen:
            self._unseen.append(_COMPILED)

    def _origin(self, parameter: torch.Tensor) -> tuple[str, events.Line]:
        casts = self._recorder.casts
        return casts.origin(parameter, self._names.models), casts.since(parameter)

    def _safely(self, look: Callable[..., Any], *args: Any) -> Any:
        return self._recorder.safely(look, *args)

    def _after_step(self, optimizer: torch.optim.Optimizer, done: events.StepDone, *seen: Any) -> None:
        if is_captured() and _CAPTURED not in self._unseen:
            self._unseen.append(_CAPTURED)
        if self._device is None:
            self._device = next((each.device for each in parameters_of(optimizer)), None)
        self._sampler.after_step(optimizer, done, *seen)
        self._buffers.begin(done.step + 1, skipped=not done.happened)
        look_closely(self._frames.armed)
        for listener in list(self._listeners):
            self._recorder.safely(listener, done.step, self._sampler.sampling)

    def _notice_compiled(self) -> None:
        if any(is_compiled(model) for model in self._names.models):
            self.compiled()

    def _found(self, optimizer: torch.optim.Optimizer) -> None:
        known = len(self._names.models)
        self._names.find(parameters_of(optimizer))
        self._buffers.look_at(self._names.models[known:])
        self._notice_compiled()
        if is_sharded(parameters_of(optimizer)) and NOT_SEEN not in self._unseen:
            self._unseen.append(NOT_SEEN)

    def _take(self, event: events.Event) -> None:
        if isinstance(event, events.StepAsked):
            if event.autocast:
                self._frames.suspect_stale()
            frames = self._frames
            if frames.with_autocast or frames.without:
                self._judge.judge(
                    events.ForwardSeen(
                        step=event.step,
                        line=event.line,
                        with_autocast=frames.with_autocast,
                        without=frames.without,
                        evaluating=frames.evaluating,
                        evaluating_since=self._recorder.here.evaluating_since,
                    )
                )
        self._judge.judge(event)
        if isinstance(event, events.StepDone) and event.happened and event.scaler is not None:
            self._frames.look_at_all()
            if len(self._recorder.known.stepped) == 1 and self._frames.overflowed("backward", event.step):
                self._judge.judge(events.OverflowPassed(step=event.step, line=event.line))

    def _stale(self, module: str) -> None:
        outermost = next((line for line, *_ in self._recorder.here.autocasts), None)
        self._judge.judge(
            events.StaleForward(step=self._recorder.steps, line=outermost or places.own_line(), module=module)
        )


def _explained(error: Exception) -> Explanation:
    from amp_lessons.audit.explaining import explain  # a training that ends well has nothing to look up

    return explain(error)


_WATCHING = threading.Lock()


@contextmanager
def watch(*models: nn.Module, every: int = 10, log: str | os.PathLike[str] | None = None) -> Iterator[Seen]:
    """Watch the training inside: ``with audit.watch(model) as seen: train(…)``, then ``seen.report``.

    ``models`` give the names of layers; those that are left out are found by the optimizers that step their
    parameters, and so are optimizers and gradient scalers. Every ``every``-th step of each optimizer is
    looked at closely, and the next if that was skipped: its gradients, unscaled, by layer and format, the
    updates that were lost, the first inf or NaN. Between those, which begin when the optimizer's step before
    them is over, nothing is computed and no device is waited for.

    The training's results are, bit for bit, those without the watch. Whatever ends it, PyTorch is left as it
    was, and what was seen until then can be read. Raises TypeError or ValueError for arguments of the wrong
    kind, RuntimeError inside another ``watch``, and OSError for a log that cannot be written.
    """
    for model in models:
        require(model, nn.Module, "a model", "an nn.Module; optimizers and scalers are found by themselves")
    seen = Seen(models, require_whole(every, "every"))
    if not _WATCHING.acquire(blocking=False):
        raise RuntimeError("another audit.watch is under way in this process; end it first")
    try:
        if log is not None:
            StepLog(seen, writer_to(Path(require(log, (str, os.PathLike), "log", "the name of a file"))))
        with seen.watching():
            yield seen
    finally:
        _WATCHING.release()
