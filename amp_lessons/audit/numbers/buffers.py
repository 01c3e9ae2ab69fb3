"""Look whether buffers stay finite: what forward passes write into them, no skipped step takes back.

A buffer is looked at where its module is about to compute with it. What a training loop has put back until
then, did no harm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parameter import is_lazy

from amp_lessons.audit.numbers.naming import Names
from amp_lessons.audit.recorder.events import BuffersBroken, Event, Line
from amp_lessons.audit.recorder.later import Later, is_batched, is_captured, local
from amp_lessons.audit.recorder.places import own_line

_STATISTICS = ("running_mean", "running_var")  # of norms
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class _Look(NamedTuple):
    """The largest number of a buffer as it was at some time; NaN where there is one."""

    module: nn.Module
    name: str
    shape: torch.Size
    largest: Later
    line: Line


class BufferRecorder:
    """Report buffers that were finite when first seen, and are not any more, while the weights are.

    Minus infinity is left alone, for masks hold it on purpose, and so is a buffer that began with inf, as
    the smallest number so far does. Only the statistics of a norm have to be finite from the beginning.
    Hooks look while ``armed()``, and go through ``safely``; what they saw is read when the next step begins.
    """

    def __init__(
        self,
        names: Names,
        armed: Callable[[], bool],
        report: Callable[[Event], None],
        safely: Callable[..., Any],
    ) -> None:
        self._names, self._armed, self._report, self._safely = names, armed, report, safely
        self._step, self._skipped = 0, False
        self._looks: list[_Look] = []
        self._first: dict[tuple[int, str], tuple[torch.Size, bool]] = {}  # when first seen: whether finite
        self._told: set[tuple[int, str]] = set()
        self._hooks = ExitStack()

    def start(self) -> None:
        """Begin to look at the buffers of every module that is about to compute."""
        self._hooks.callback(register_module_forward_pre_hook(self._computes).remove)

    def stop(self) -> None:
        """Look at no module any more that computes."""
        self._hooks.close()

    def begin(self, step: int, skipped: bool) -> None:
        """Begin a new step, and read what was seen in the last; ``skipped`` says what became of that."""
        self._read()
        self._step, self._skipped = step, skipped

    def look_at(self, models: Iterable[nn.Module]) -> None:
        """Look at all buffers of these models as they are now."""
        for model in models:
            for module in model.modules():
                self._look(module, None)

    def look_at_all(self) -> None:
        """Look at all buffers of the models that are watched, and read what was seen."""
        self._read()
        self.look_at(self._names.models)
        self._read()

    def _computes(self, module: nn.Module, inputs: Any) -> None:
        if not module._buffers or not self._armed() or is_captured():
            return
        again = torch._C._current_graph_task_id() != -1  # a checkpoint's second forward pass
        if not again and self._names.module(module) is not None:
            self._safely(self._look, module, own_line())

    def _look(self, module: nn.Module, line: Line) -> None:
        for name, buffer in module._buffers.items():
            if buffer is None or buffer.dtype not in _DTYPES:
                continue
            nowhere = is_lazy(buffer) or buffer.is_meta or is_batched(buffer)
            if not nowhere and local(buffer).numel():
                with torch.no_grad():
                    self._looks.append(_Look(module, name, buffer.shape, Later(local(buffer).amax()), line))

    def _read(self) -> None:
        if is_captured():
            return
        looks, self._looks = self._looks, []
        broken = [look for look in looks if self._is_news(look)]
        # where weights are, too, it is no buffer's doing
        if not broken or not all(all_finite(model.parameters()) for model in self._names.models):
            return
        self._told |= {(id(look.module), look.name) for look in broken}
        first = broken[0]
        names = (f"{self._names.module(look.module)}.{look.name}" for look in broken)
        self._report(
            BuffersBroken(
                step=self._step,
                line=first.line,
                names=tuple(dict.fromkeys(names)),
                statistics=first.name in _STATISTICS,
                skipped=self._skipped,
            )
        )

    def _is_news(self, look: _Look) -> bool:
        key, finite = (id(look.module), look.name), (look.largest.read() or 0.0) < math.inf
        if self._first.get(key, (None, True))[0] != look.shape:  # new, or made anew in another size
            self._first[key] = look.shape, finite or look.name in _STATISTICS
        return not finite and self._first[key][1] and key not in self._told


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether all numbers are finite, waiting for a device once; of distributed ones, this rank's part."""
    parts = [local(each).detach() for each in tensors if not each.is_meta and each.numel()]
    return bool(nn.utils.get_total_norm(parts, math.inf).isfinite())
