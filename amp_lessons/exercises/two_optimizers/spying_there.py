"""Watch what a training loop really does: hooks, and the class-level patches, that write to a tape.

Methods are replaced on the classes, so that every spelling of ``GradScaler`` and ``autocast`` is seen,
subclasses and names imported earlier included. Where there is no GPU, "cuda" means the device there is:
PyTorch would otherwise switch autocast and the scaler off without an error, and every mistake would pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from amp_lessons.audit.recorder.replacing import replaced
from amp_lessons.exercises.loops_there import clean_steps, scale_of
from amp_lessons.exercises.two_optimizers.tape_there import CallName, Patch, Tape
from amp_lessons.whole_process import running_eagerly


@contextmanager
def spying(tape: Tape) -> Iterator[Tape]:
    """Write everything that happens inside to ``tape``."""
    patches = (*_ON_SCALER, *_ON_AUTOCAST, *_ON_OPTIMIZER, *_on_device(tape))
    with ExitStack() as stack:
        # compiled code would not come by the spies, and compiling takes longer than the whole check
        stack.enter_context(running_eagerly())
        for owner, name, wrap in patches:
            stack.enter_context(replaced(owner, name, partial(wrap, tape)))
        stack.enter_context(_hooked(tape))
        yield tape


def _own_device(tape: Tape, device: Any, spelling: str) -> Any:
    """Return the device to use where the learner asked for ``device``."""
    if tape.device_type != "cuda" and _is_cuda(device):
        tape.hard_coded.add(spelling)
        return tape.device_type
    return device


def _note_old_spelling(tape: Tape, made: type, name: str) -> None:
    """Remark on ``torch.cuda.amp`` and ``torch.cpu.amp``, whose classes name their device."""
    if made.__module__.startswith(("torch.cuda.", "torch.cpu.")):
        tape.deprecated.add(f"{made.__module__.rsplit('.', 1)[0]}.{name}")


def _is_cuda(device: Any) -> bool:
    return (isinstance(device, str) and device.startswith("cuda")) or (
        isinstance(device, torch.device) and device.type == "cuda"
    )


def _moved_to(tape: Tape, original: Any) -> Any:
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        args = tuple(_own_device(tape, argument, "to") for argument in args)
        kwargs = {name: _own_device(tape, argument, "to") for name, argument in kwargs.items()}
        return original(self, *args, **kwargs)

    return to


def _moved_to_cuda(tape: Tape, original: Any) -> Any:
    def cuda(self: Any, *args: Any, **kwargs: Any) -> Any:
        tape.hard_coded.add("cuda")
        return self

    return cuda


def _on_device(tape: Tape) -> list[Patch]:
    """List what to replace where there is no GPU, and nothing where there is one."""
    if tape.device_type == "cuda":
        return []
    spies = (("to", _moved_to), ("cuda", _moved_to_cuda))
    return [(owner, name, spy) for name, spy in spies for owner in (Tensor, nn.Module)]


def _note(tape: Tape, name: CallName, scaler: torch.amp.GradScaler, **seen: Any) -> None:
    state = {"scale": scale_of(scaler), "clean_steps": clean_steps(scaler), "enabled": scaler.is_enabled()}
    tape.call(name, scaler, **state, **seen)


def _made_scaler(tape: Tape, original: Any) -> Any:
    def __init__(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:  # noqa: N807
        _note_old_spelling(tape, type(self), "GradScaler")
        original(self, _own_device(tape, device, "GradScaler"), *args, **kwargs)
        _note(tape, "GradScaler", self)

    return __init__


def _scaled(tape: Tape, original: Any) -> Any:
    def scale(self: Any, outputs: Any) -> Any:
        _note(tape, "scale", self, **(_described(outputs) if isinstance(outputs, Tensor) else {}))
        return original(self, outputs)

    return scale


_FAR_ENOUGH = 16  # operations: a sum of two losses, each a mean of something


def _described(outputs: Tensor) -> dict[str, Any]:
    return {"dtype": outputs.dtype, "elements": outputs.numel(), "made_by": tuple(_made_by(outputs))}


def _made_by(outputs: Tensor) -> Iterator[str]:
    """Name the last operations that made ``outputs``, the last one first, as autograd calls them."""
    waiting = [outputs.grad_fn]
    for _ in range(_FAR_ENOUGH):
        node = waiting.pop(0) if waiting else None
        if node is not None:
            yield node.name()
            waiting.extend(before for before, _ in node.next_functions)


def _unscaled(tape: Tape, original: Any) -> Any:
    def unscale_(self: Any, optimizer: Any) -> None:
        _note(tape, "unscale_", self)
        original(self, optimizer)
        _note(tape, "unscaled", self)

    return unscale_


def _stepped(tape: Tape, original: Any) -> Any:
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        _note(tape, "scaler.step", self, optimizer=id(optimizer), arguments=len(args) + len(kwargs))
        with tape.stepping():
            return original(self, optimizer, *args, **kwargs)

    return step


def _updated(tape: Tape, original: Any) -> Any:
    def update(self: Any, *args: Any, **kwargs: Any) -> None:
        _note(tape, "update", self)
        original(self, *args, **kwargs)
        _note(tape, "updated", self)

    return update


_ON_SCALER: tuple[Patch, ...] = (
    (torch.amp.GradScaler, "__init__", _made_scaler),
    (torch.amp.GradScaler, "scale", _scaled),
    (torch.amp.GradScaler, "unscale_", _unscaled),
    (torch.amp.GradScaler, "step", _stepped),
    (torch.amp.GradScaler, "update", _updated),
)


def _made_autocast(tape: Tape, original: Any) -> Any:
    def __init__(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        _note_old_spelling(tape, type(self), "autocast")
        tape.autocast_devices.append(device_type)
        device = _own_device(tape, device_type, "autocast")
        if device != device_type and not args and kwargs.get("dtype") is None:
            # the default belongs to the device that was asked for
            kwargs["dtype"] = torch.get_autocast_dtype("cuda")
        original(self, device, *args, **kwargs)
        if args[1] if len(args) > 1 else kwargs.get("enabled", True):
            tape.autocast_dtypes.add(self.fast_dtype)

    return __init__


def _banned_under_autocast(tape: Tape, original: Any) -> Any:
    """Refuse on the CPU what CUDA's autocast refuses, so that both give the same verdict."""

    def binary_cross_entropy(*args: Any, **kwargs: Any) -> Tensor:
        if tape.autocast_on():
            raise RuntimeError(
                "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast."
            )
        return original(*args, **kwargs)

    return binary_cross_entropy


_ON_AUTOCAST: tuple[Patch, ...] = (
    (torch.amp.autocast_mode.autocast, "__init__", _made_autocast),
    (torch._C._nn, "binary_cross_entropy", _banned_under_autocast),
)


def _zeroed(tape: Tape, original: Any) -> Any:
    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> None:
        tape.call("zero_grad", self)
        original(self, *args, **kwargs)

    return zero_grad


def _clipped(tape: Tape, original: Any) -> Any:
    def clip(parameters: Any, max_norm: float, total_norm: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        tape.call("clip", original, norm=float(total_norm))
        original(parameters, max_norm, total_norm, *args, **kwargs)

    return clip


_ON_OPTIMIZER: tuple[Patch, ...] = (
    (clip_grad, "_clip_grads_with_norm_", _clipped),  # clip_grad_norm_ calls it
    (torch.optim.Optimizer, "zero_grad", _zeroed),
    (nn.Module, "zero_grad", _zeroed),
)


@contextmanager
def _hooked(tape: Tape) -> Iterator[None]:
    """Watch with PyTorch's own hooks what no replaced method would show."""
    with ExitStack() as stack:
        for index, parameter in enumerate(tape.parameters):
            if not parameter.requires_grad:  # frozen by an earlier call: PyTorch refuses the hook
                continue
            stack.callback(_watch_gradient(tape, index, parameter).remove)
        before = register_optimizer_step_pre_hook(lambda o, args, kwargs: tape.call("optimizer.step", o))
        stack.callback(before.remove)
        after = register_optimizer_step_post_hook(lambda o, args, kwargs: tape.call("stepped", o))
        stack.callback(after.remove)
        yield


def _watch_gradient(tape: Tape, index: int, parameter: nn.Parameter) -> Any:
    return parameter.register_post_accumulate_grad_hook(lambda p: tape.gradient_accumulated(index, p))
