"""Write down when gradients are cleared, accumulated, clipped and used, by whichever optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from amp_lessons.exercises.watching.tape import Patch, Tape


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


PATCHES: tuple[Patch, ...] = (
    (clip_grad, "_clip_grads_with_norm_", _clipped),  # clip_grad_norm_ calls it
    (torch.optim.Optimizer, "zero_grad", _zeroed),
    (nn.Module, "zero_grad", _zeroed),
)


@contextmanager
def hooked(tape: Tape) -> Iterator[None]:
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
