"""Follow a pass from module to module, to find the first inf or NaN and where it grew.

The hooks are PyTorch's global ones: none is left on a module, where copies and pickles would carry it along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from amp_lessons.audit.findings import INPUT_OF
from amp_lessons.audit.numbers.naming import Names
from amp_lessons.audit.recorder.events import WeightsBroken
from amp_lessons.audit.recorder.later import Later, is_batched, is_captured, local, read_together
from amp_lessons.audit.recorder.stale import is_stale
from amp_lessons.audit.seen import Frame, Nonfinite, Phase, StepSeen
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.precisions import HALF_DTYPES


class FrameRecorder:
    """Record the largest magnitude of what every module returns, and of its gradient on the way back.

    It does so while ``armed``. ``stale`` is called with a layer's name when that layer is found to compute
    with weights from before the last step; this is looked for once after ``suspect_stale``. All that a hook
    does goes through ``safely``, so that what goes wrong in it does not reach the training.
    """

    def __init__(self, names: Names, stale: Callable[[str], None], safely: Callable[..., Any]) -> None:
        self.armed = True
        self.found: dict[Phase, Nonfinite] = {}  # by phase
        self._names, self._stale, self._safely = names, stale, safely
        self._step = 0
        self._frames: dict[Phase, list[tuple[Frame, Later]]] = {}
        self._suspect_stale = False
        self.with_autocast = self.without = 0  # layers with parameters, in this step
        self.evaluating = ""  # what was switched off for it
        self._hooks = ExitStack()
        self.begin(0, armed=True)

    def start(self) -> None:
        """Begin to record every module."""
        self._hooks.callback(register_module_forward_hook(self._returned).remove)

    def stop(self) -> None:
        """Record no module any more."""
        self._hooks.close()

    def begin(self, step: int, armed: bool) -> None:
        """Begin a new step, and read what the last one has left."""
        self.look_at_all()
        self._step, self.armed = step, armed
        self._frames = {"forward": [], "backward": []}
        self._cleared_at = 0  # so many frames of the backward pass belong to gradients that are gone
        self.with_autocast, self.without, self.evaluating = 0, 0, ""

    def suspect_stale(self) -> None:
        """Compare the next layer's output with one from its present weights."""
        self._suspect_stale = True

    def _returned(self, module: nn.Module, inputs: Any, output: Any) -> None:
        name = self._names.module(module)
        if name is None or torch._C._current_graph_task_id() != -1:  # a checkpoint's second forward pass
            return
        self._safely(self._look_at, module, name, inputs, output)

    def _look_at(self, module: nn.Module, name: str, inputs: Any, output: Any) -> None:
        if (self.armed or self._suspect_stale) and is_captured():
            return
        if self._suspect_stale and isinstance(module, nn.Linear) and output.dtype != module.weight.dtype:
            self._suspect_stale = False
            if is_stale(module, inputs[0], output):
                self._stale(name)
        if not self.armed:
            return
        self._note_modes(module, output)
        if not self._frames["forward"]:
            for tensor in _floating(inputs):
                self._frame("forward", module, f"{INPUT_OF}{name}", tensor)
        for tensor in _floating(output):
            self._frame("forward", module, name, tensor, () if module._modules else _floating(inputs))
            if tensor.requires_grad:
                arrived = partial(self._arrived, module, name, self._off_in_evaluation(module))
                tensor.register_hook(partial(self._safely, arrived))

    def _note_modes(self, module: nn.Module, output: Any) -> None:
        """Note whether a layer ran under autocast, where gradients are wanted."""
        tensors = [tensor for tensor in _floating(output) if tensor.requires_grad]
        if tensors and module._parameters:
            on = torch.is_autocast_enabled(tensors[0].device.type)
            # FSDP2 casts by its own policy: what comes out in 16 bits needs no autocast
            alone = not on and all(tensor.dtype not in HALF_DTYPES for tensor in tensors)
            self.with_autocast, self.without = self.with_autocast + on, self.without + alone

    def _off_in_evaluation(self, module: nn.Module) -> str:
        """Name what this does in training only, where all of a model is in evaluation mode, and trained."""
        dropout = isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0
        norm = isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats
        if not (dropout or norm) or module.training or not self._names.in_evaluation(module):
            return ""
        return "dropout" if dropout else "batch norm's own statistics of each batch"

    def cleared(self) -> None:
        """Record that gradients were cleared: what went backward before trains nothing."""
        self.evaluating = ""
        self._cleared_at = len(self._frames["backward"])

    def _arrived(self, module: nn.Module, name: str, off: str, gradient: Tensor | None) -> None:
        if self.armed and gradient is not None:  # None for what DDP found unused
            self.evaluating = self.evaluating or off
            self._frame("backward", module, name, gradient)

    def _frame(
        self, phase: Phase, module: nn.Module, name: str, tensor: Tensor, given: Sequence[Tensor] = ()
    ) -> None:
        frames = self._frames[phase]
        if is_batched(tensor) or phase in self.found or (frames and _is_bad_already(frames[-1][1])):
            return
        largest = _largest(tensor)
        if not largest.known or _is_bad_already(largest):
            for each in given:  # no layer is to blame for it; one in place overwrote it
                if not is_batched(each) and each.data_ptr() != tensor.data_ptr():
                    frames.append((_named(f"{INPUT_OF}{name}", module, each), _largest(each)))
        frames.append((_named(name, module, tensor), largest))

    def first(self, steps: Sequence[StepSeen], broken: WeightsBroken | None = None) -> Nonfinite | None:
        """Return the first inf or NaN: a forward pass's, unless a step was made with one of gradients before.

        An overflow of gradients that the scaler skipped is an everyday event. The gradients that have
        ``broken`` weights need not have been looked at.
        """
        found = [self.found[phase] for phase in ("forward", "backward") if phase in self.found]
        if broken is not None and broken.in_backward:
            found.append(Nonfinite(broken.layers[0], "", "backward", broken.step))
        skipped = {step.index for step in steps if not step.happened}

        def order(each: Nonfinite) -> tuple[bool, int]:
            return each.phase == "backward" and each.step in skipped, each.step

        first = min(found, key=order, default=None)
        if first is None:
            return None
        return replace(first, recovered=first.phase == "backward" and _recovered(first.step, steps))

    def overflowed(self, phase: Phase, step: int) -> bool:
        """Whether the first inf or NaN of a phase was in this step, and its gradients are still there."""
        found = self.found.get(phase)
        if not self.armed or found is None or found.step != step:
            return False
        return phase == "forward" or len(found.before) > self._cleared_at

    def look_at_all(self) -> None:
        """Read the frames of this step."""
        for phase in self._frames:
            if phase not in self.found:
                self._look(phase)

    def _look(self, phase: Phase) -> None:
        """Read the frames of a pass, and keep the first that is not finite with what led to it."""
        read: list[Frame] = []
        read_together(largest for _, largest in self._frames[phase])
        for frame, largest in self._frames[phase]:
            value = largest.read()
            if read and frame.module.startswith(INPUT_OF) and not _bad(value):
                continue
            read.append(Frame(frame.module, frame.kind, frame.operation, value or 0.0, frame.dtype_name))
            if _bad(value):
                self.found[phase] = Nonfinite(frame.module, frame.operation, phase, self._step, tuple(read))
                return


def _named(name: str, module: nn.Module, tensor: Tensor) -> Frame:
    """Describe a tensor whose largest magnitude is not read yet, and the operation that made it: "Addmm"."""
    made_by = tensor.grad_fn.name().removesuffix("0").removesuffix("Backward") if tensor.grad_fn else ""
    return Frame(name, type(module).__name__, made_by, math.nan, dtype_name(tensor.dtype))


def _largest(tensor: Tensor) -> Later:
    with torch.no_grad():
        here = local(tensor).detach()
        return Later(torch.linalg.vector_norm(here, math.inf) if here.numel() else None)


def _bad(value: float | None) -> bool:
    return value is not None and not math.isfinite(value)


def _is_bad_already(number: Later) -> bool:
    """Whether a number is inf or NaN, without waiting: all frames of a step are read together, at its end."""
    return number.known and _bad(number.read())


def _recovered(index: int, steps: Sequence[StepSeen]) -> bool:
    """Whether a step was skipped, and its optimizer made a later one."""
    skipped = {step.optimizer for step in steps if step.index == index and not step.happened}
    return any(step.happened and step.optimizer in skipped for step in steps if step.index > index)


def _floating(output: Any) -> list[Tensor]:
    """Return the floating tensors of what a module returns: one, or those in a tuple, a list or a mapping."""
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    values = output.values() if hasattr(output, "values") else output
    if isinstance(output, (tuple, list)) or hasattr(output, "values"):
        return [each for each in values if isinstance(each, Tensor) and each.is_floating_point()]
    return []
