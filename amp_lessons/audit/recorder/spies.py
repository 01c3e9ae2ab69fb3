"""Watch methods of PyTorch's classes: what is called becomes events, and runs as it would have run.

Methods are replaced on the classes, so that every spelling and every import is seen, whenever it was made;
leaving the context puts back exactly what was there. A spy must never become the training's own exception,
never change a number and never make a device wait. So what goes wrong in here is kept as one of the
``troubles``, nothing is written to anybody's tensors, and numbers that lie on a device are kept there until a
sampled step waits for it anyway.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.nn.utils import clip_grad
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from amp_lessons.audit.recorder import events
from amp_lessons.audit.recorder.autograd import AutocastCalls, AutogradCalls, CastCalls, dtype_of
from amp_lessons.audit.recorder.later import Later
from amp_lessons.audit.recorder.optimizers import GradientCalls, OptimizerCalls
from amp_lessons.audit.recorder.places import own_line
from amp_lessons.audit.recorder.replacing import passing_over_spies, replaced
from amp_lessons.audit.recorder.scalers import ScalerCalls
from amp_lessons.audit.recorder.shared import Known, Log


class Recorder(Log):
    """Everything that a training calls, given to ``report`` as events, in order.

    The spies call its parts, one for each kind of calls: ``scalers``, ``autocast``, ``autograd``,
    ``gradients``, ``optimizers`` and ``casts``. What these share is ``known``. ``before_step``,
    ``after_step`` and ``closure_begins`` are called as ``OptimizerCalls`` says, ``found_optimizer`` once for
    each optimizer, ``cleared`` whenever gradients were set to zero.
    """

    def __init__(
        self,
        report: Callable[[events.Event], None],
        before_step: Callable[[torch.optim.Optimizer, int, Later, Later, torch.dtype | None], None],
        after_step: Callable[[torch.optim.Optimizer, events.StepDone, Later, Later, Later], None],
        found_optimizer: Callable[[torch.optim.Optimizer], None],
        cleared: Callable[[], None] = lambda: None,
        closure_begins: Callable[[torch.optim.Optimizer], None] = lambda optimizer: None,
    ) -> None:
        super().__init__(report)
        self.known = Known(self, found_optimizer)
        self.casts = CastCalls(self, self.known)
        self.optimizers = OptimizerCalls(
            self, self.known, self.casts, before_step, after_step, closure_begins
        )
        self.gradients = GradientCalls(self, self.known, cleared)
        self.scalers = ScalerCalls(self, self.known, self.optimizers)
        self.autocast = AutocastCalls(self, self.known)
        self.autograd = AutogradCalls(self, self.known, self.scalers.refused)

    def is_scaled_gradient(self, tensor: Tensor) -> bool:
        """Whether a tensor holds a gradient that is still multiplied by the loss scale."""
        return self.known.book.is_scaled(tensor)

    def evaluating(self, model: nn.Module) -> None:
        """Note that a model is put into evaluation mode."""
        self.here.evaluating_since = own_line()

    def in_step(self) -> bool:
        """Whether this thread is inside an optimizer's step."""
        return self.here.stepping


Spy = Callable[[Recorder, Callable[..., Any]], Callable[..., Any]]
Look = Callable[[Recorder], Callable[..., Any]]


@contextmanager
def spying(recorder: Recorder) -> Iterator[None]:
    """Record everything that happens inside."""
    with ExitStack() as stack:
        stack.enter_context(passing_over_spies())
        for owner, name, spy in patches():
            stack.enter_context(replaced(owner, name, partial(spy, recorder)))
        late = partial(_spied_when_made, recorder, stack)
        stack.enter_context(replaced(torch.amp.GradScaler, "__init__", late))
        for register, observe in (
            (register_module_parameter_registration_hook, recorder.casts.registered),
            (register_optimizer_step_pre_hook, recorder.optimizers.begins),
            (register_optimizer_step_post_hook, recorder.optimizers.ends),
        ):
            stack.callback(register(partial(recorder.safely, observe)).remove)
        yield


def patches() -> Iterator[tuple[Any, str, Spy]]:
    """Yield what is replaced: an owner, the name of a method, and what makes the spy."""
    for name, spy in _scaler_spies():
        for scaler in _with_own(torch.amp.GradScaler, name):
            yield scaler, name, spy
    autocast = torch.amp.autocast_mode.autocast
    yield autocast, "__init__", _made_autocast
    yield autocast, "__enter__", _watched(after=lambda r: r.autocast.entered)
    yield autocast, "__exit__", _watched(lambda r: r.autocast.left)
    yield torch.autograd, "backward", _backward
    engine = torch.autograd._engine_run_backward  # what ``grad`` calls, however that was imported
    yield torch.autograd, engine.__name__, _differentiated
    yield torch._vmap_internals, "_vmap", _batched  # of which ``grad`` makes use for ``is_grads_batched``
    yield clip_grad, "_clip_grads_with_norm_", _clipped_by_norm
    yield Tensor, "clamp_", _watched(lambda r: r.gradients.clamped)
    yield torch, "_foreach_clamp_min_", _watched(lambda r: r.gradients.clamped)
    yield torch.optim.Optimizer, "__init__", _watched(after=lambda r: r.optimizers.made)
    yield torch.optim.Optimizer, "zero_grad", _watched(after=lambda r: r.gradients.cleared)
    yield nn.Module, "zero_grad", _watched(after=lambda r: r.gradients.cleared)
    yield nn.Module, "eval", _watched(lambda r: r.evaluating)
    distributed = nn.parallel.DistributedDataParallel
    yield distributed, "register_comm_hook", _watched(after=lambda r: r.gradients.sent_by)
    for cast in ("half", "bfloat16", "to"):
        yield nn.Module, cast, _module_cast
    for schedule in (lr_scheduler.LRScheduler, lr_scheduler.ReduceLROnPlateau):
        for kind in _with_own(schedule, "step"):
            yield kind, "step", _schedule_stepped


def _scaler_spies() -> tuple[tuple[str, Spy], ...]:
    return (
        ("__init__", _made_scaler),
        ("scale", _watched(lambda r: r.scalers.loss_given, lambda r: r.scalers.loss_scaled, "scale")),
        ("get_scale", _watched(lambda r: r.scalers.scale_read)),
        ("unscale_", _watched(lambda r: r.scalers.unscaling, lambda r: r.scalers.unscaled, "unscale_")),
        ("step", _stepped),
        ("update", _watched(lambda r: r.scalers.updating, lambda r: r.scalers.updated, "update")),
        ("load_state_dict", _watched(lambda r: r.scalers.state_loading, lambda r: r.scalers.state_loaded)),
    )


def _watched(before: Look | None = None, after: Look | None = None, refused: str = "") -> Spy:
    """Make the spy of a method: ``before`` and ``after`` it, parts of the recorder look at its arguments.

    ``after`` is also given what ``before`` has returned, and the method's result. Of a method of the name
    ``refused`` it is recorded that it raised.
    """

    def spy(recorder: Recorder, original: Any) -> Any:
        def watched(*args: Any, **kwargs: Any) -> Any:
            noted = recorder.safely(before(recorder), *args, **kwargs) if before else None
            with _refusals(recorder, refused) if refused else nullcontext():
                result = original(*args, **kwargs)
            if after:
                recorder.safely(after(recorder), noted, result, *args, **kwargs)
            return result

        return watched

    return spy


def _with_own(base: type, name: str) -> Iterator[type]:
    """Yield a class and its subclasses, of those that are loaded, which define ``name`` themselves."""
    waiting, seen = [base], set()
    while waiting:
        kind = waiting.pop()
        if kind not in seen:
            seen.add(kind)
            waiting += kind.__subclasses__()
            if name in vars(kind):
                yield kind


# --- scalers


def _spied_when_made(recorder: Recorder, stack: ExitStack, original: Any) -> Any:
    """Watch kinds of scalers that were defined since, by a script itself or by what it imports."""
    seen = {kind for name, _ in _scaler_spies() for kind in _with_own(torch.amp.GradScaler, name)}

    def watch(kind: type) -> None:
        seen.add(kind)
        for name, spy in _scaler_spies():
            if name in vars(kind):
                stack.enter_context(replaced(kind, name, partial(spy, recorder)))

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        for kind in type(self).__mro__:
            if issubclass(kind, torch.amp.GradScaler) and kind not in seen:
                recorder.safely(watch, kind)
        original(self, *args, **kwargs)

    return __init__


def _made_scaler(recorder: Recorder, original: Any) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        asked = kwargs.get("enabled", next((each for each in args if isinstance(each, bool)), True))
        device = kwargs.get("device", args[0] if args and isinstance(args[0], str) else "cuda")
        if type(self).__init__ is __init__ or not _is_old(type(self)):
            recorder.safely(recorder.scalers.made, self, device, asked)
        if _is_old(type(self)) and type(self).__init__ is __init__:
            recorder.safely(recorder.autocast.old_spelling, _old_name(type(self), "GradScaler"))

    return __init__


def _is_old(made: type) -> bool:
    return made.__module__.startswith(("torch.cuda.", "torch.cpu."))


def _old_name(made: type, name: str) -> str:
    return f"{made.__module__.rsplit('.', 1)[0]}.{name}"


def _stepped(recorder: Recorder, original: Any) -> Any:
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        closure = next((each for each in (*args, *kwargs.values()) if callable(each)), None)
        with recorder.scalers.stepping(self, optimizer, closure), _refusals(recorder, "step"):
            return original(self, optimizer, *args, **kwargs)

    return step


@contextmanager
def _refusals(recorder: Recorder, method: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        recorder.safely(recorder.scalers.refused, method, error)
        raise


# --- autocast and autograd


def _made_autocast(recorder: Recorder, original: Any) -> Any:
    def __init__(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, device_type, *args, **kwargs)
        wanted = kwargs.get("enabled", args[1] if len(args) > 1 else True)
        recorder.safely(recorder.autocast.made, self, device_type, wanted)
        if _is_old(type(self)):
            recorder.safely(recorder.autocast.old_spelling, _old_name(type(self), "autocast"))

    return __init__


def _backward(recorder: Recorder, original: Any) -> Any:
    def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
        with recorder.autograd.backward(tensors, grad_tensors):
            original(tensors, grad_tensors, *args, **kwargs)

    return backward


def _differentiated(recorder: Recorder, original: Any) -> Any:
    def run(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        count = torch.autograd._get_sequence_nr()
        gradients = original(outputs, *args, **kwargs)
        if not kwargs.get("accumulate_grad"):
            recorder.safely(recorder.autograd.differentiated, outputs, gradients, count)
        return gradients

    return run


def _batched(recorder: Recorder, original: Any) -> Any:
    def _vmap(*args: Any, **kwargs: Any) -> Any:
        batched = original(*args, **kwargs)

        def call(*inputs: Any) -> Any:
            recorder.safely(recorder.autograd.batching)
            outputs = batched(*inputs)
            recorder.safely(
                recorder.autograd.unbatched, outputs if isinstance(outputs, tuple) else (outputs,)
            )
            return outputs

        return call

    return _vmap


# --- gradients


def _clipped_by_norm(recorder: Recorder, original: Any) -> Any:
    def clip(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> None:
        parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        recorder.safely(
            recorder.gradients.clipped, by_value=False, limit=float(max_norm), parameters=parameters
        )
        original(parameters, max_norm, *args, **kwargs)
        recorder.safely(recorder.known.book.clipped, parameters)

    return clip


def _module_cast(recorder: Recorder, original: Any) -> Any:
    def cast(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = recorder.safely(dtype_of, self)
        made = original(self, *args, **kwargs)
        recorder.safely(recorder.casts.cast, self, before, original.__name__)
        return made

    return cast


def _schedule_stepped(recorder: Recorder, original: Any) -> Any:
    def step(self: Any, *args: Any, **kwargs: Any) -> None:
        # making a schedule calls its first step, which belongs to no step of an optimizer
        first = sys._getframe(1).f_code.co_name == "_initial_step"
        with recorder.optimizers.schedule(self, first):
            original(self, *args, **kwargs)

    return step
