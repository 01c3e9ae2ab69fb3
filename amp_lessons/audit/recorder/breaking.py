"""Where a pass makes inf or NaN, listened for once several steps were skipped in a row, or again and again.

A healthy training pays nothing for it: functions that people write between their layers, and those that
layers call, are replaced only while a scaler skips step after step, or every few steps.
"""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils import _pytree

from amp_lessons.audit.recorder.events import Line
from amp_lessons.audit.recorder.later import is_batched, is_distributed
from amp_lessons.audit.recorder.places import line_outside
from amp_lessons.audit.recorder.replacing import replaced

_AUDIT = str(Path(__file__).parents[1])
_SKIPPED = 4  # in a row: a scaler that looks for its scale mostly skips fewer
_AGAIN, _LATELY = 3, 16  # of so many steps so many were skipped after one that happened
_MOST_KEPT = 10_000  # results, in a step
_OPERATORS = ("add", "sub", "mul", "truediv", "pow", "matmul")
_FUNCTIONS = (
    *("add", "sub", "mul", "div", "pow", "matmul", "bmm", "exp", "log", "sqrt", "rsqrt", "square"),
    *("sum", "mean", "softmax", "log_softmax", "clamp", "where", "masked_fill"),
)
_METHODS = ("to", "type", "half", "fill_", "masked_fill_")
_OF_LAYERS = (
    *("linear", "conv1d", "conv2d", "conv3d", "layer_norm", "group_norm", "batch_norm"),
    *("scaled_dot_product_attention", "cross_entropy", "nll_loss", "mse_loss"),
)


class _Made(NamedTuple):
    """One call: its line, and whether all that it was given, and made, was finite, or at least no NaN."""

    line: Line
    given_finite: Tensor
    given_numbers: Tensor
    finite: Tensor
    numbers: Tensor


class _Passed(NamedTuple):
    """The largest gradient that came to what a line computed, and the largest that went on from there."""

    line: Line
    came: float
    went: float


class BreakingLines:
    """The lines on which the step under way made its first inf or NaN, or its gradients beyond fp16."""

    def __init__(self, safely: Callable[..., Any]) -> None:
        self._safely = safely
        self._lately: deque[bool] = deque(maxlen=_LATELY)  # whether steps happened
        self._functions = ExitStack()
        self._allowed = False
        self._thread = 0  # that is listened to, 0 for none
        self._made: list[_Made] = []
        self._passed: list[_Passed] = []

    def line(self) -> Line:
        """Return the first line that made inf or NaN out of finite numbers, else the first NaN out of inf."""
        of_finite = (each.line for each in self._made if each.given_finite and not each.finite)
        of_numbers = (each.line for each in self._made if each.given_numbers and not each.numbers)
        return next(of_finite, None) or next(of_numbers, None)

    def grown(self) -> tuple[Line, float] | None:
        """Return the line through which gradients grew most, and how many times: by more than fp16 holds."""
        most = torch.finfo(torch.float16).max
        beyond = [each for each in self._passed if each.came > 0.0 and most < each.went < math.inf]
        grown = [(each.line, each.went / each.came) for each in beyond if each.went / each.came > most]
        return max(grown, key=lambda each: each[1], default=None)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Listen inside only; compiled code would stumble over it."""
        self._allowed = True
        try:
            yield
        finally:
            self._allowed = False
            self.stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Listen to nothing inside, where the audit itself computes."""
        thread, self._thread = self._thread, 0
        try:
            yield
        finally:
            self._thread = thread

    def step_is_over(self, happened: bool) -> None:
        """Begin to listen after some skipped steps, in a row or between others, and end without any."""
        self._made.clear()
        self._passed.clear()
        self._lately.append(happened)
        lately = list(self._lately)
        in_a_row = len(lately) >= _SKIPPED and not any(lately[-_SKIPPED:])
        again = sum(before and not now for before, now in pairwise(lately)) >= _AGAIN
        if not (in_a_row or again):
            self.stop()
        elif self._allowed and not self._thread:
            self._thread = threading.get_ident()
            for owner, name in _listened_to():
                self._functions.enter_context(replaced(owner, name, self._spy))

    def stop(self) -> None:
        """Give back what was replaced."""
        self._functions.close()
        self._thread = 0

    def _spy(self, original: Any) -> Any:
        def spied(*args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1).f_code.co_filename
            here = threading.get_ident() == self._thread and torch._C._current_graph_task_id() == -1
            heard = here and not caller.startswith(_AUDIT) and len(self._made) < _MOST_KEPT
            given = self._safely(_look, (args, kwargs)) if heard else None
            result = original(*args, **kwargs)
            if given is not None:
                self._safely(self._keep, given, result)
            return result

        return spied

    def _keep(self, given: tuple[Tensor, Tensor], result: Any) -> None:
        if isinstance(result, Tensor):
            line = line_outside()
            self._made.append(_Made(line, *given, *_look(result)))
            if result.grad_fn is not None:
                result.grad_fn.register_hook(partial(self._safely, self._pass, line))

    def _pass(self, line: Line, went: Any, came: Any) -> None:
        if len(self._passed) < _MOST_KEPT:
            self._passed.append(_Passed(line, _largest(came), _largest(went)))


def _listened_to() -> Iterator[tuple[Any, str]]:
    operators = [f"__{prefix}{name}__" for name in _OPERATORS for prefix in ("", "r", "i")]
    of_tensors = (*operators, *_FUNCTIONS, *_METHODS)
    for owner, names in ((Tensor, of_tensors), (torch, _FUNCTIONS), (functional, _OF_LAYERS)):
        yield from ((owner, name) for name in names if hasattr(owner, name))


def _look(nest: Any) -> tuple[Tensor, Tensor]:
    """Say of all numbers in a nest, on their device, whether they are finite, and whether none is NaN."""
    leaves = _pytree.tree_leaves(nest)
    given = [each for each in leaves if isinstance(each, float) and not math.isfinite(each)]
    finite, numbers = torch.tensor(not given), torch.tensor(not any(map(math.isnan, given)))
    for each in leaves:
        if isinstance(each, Tensor) and each.is_floating_point() and _can_be_read(each):
            here = each.detach()
            finite = finite & here.isfinite().all()
            numbers = numbers & here.isnan().logical_not_().all()
    return finite, numbers


def _largest(gradients: Any) -> float:
    """Return the largest magnitude, 0 where there is none to read."""
    readable = [
        each.detach() for each in gradients if each is not None and each.numel() and _can_be_read(each)
    ]
    return max((float(each.abs().amax()) for each in readable), default=0.0)


def _can_be_read(tensor: Tensor) -> bool:
    plain = tensor.layout == torch.strided and tensor.device.type != "meta" and tensor.itemsize > 1
    return plain and not is_batched(tensor) and not is_distributed(tensor)
