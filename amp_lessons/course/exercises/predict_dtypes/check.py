"""Which dtype does an operation return under CUDA's autocast? PyTorch itself is asked."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons import autocast
from amp_lessons.audit.findings import Finding, failed, passed, todo
from amp_lessons.course.exercises import bed
from amp_lessons.formats.dtypes import dtype_name, dtype_of

# each takes h, an fp16 activation of shape (4, 8), and w, an fp32 tensor of shape (8, 8)
OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "F.linear(h, w)": lambda h, w: F.linear(h, w),
    "w @ w": lambda h, w: w @ w,
    "F.gelu(h)": lambda h, w: F.gelu(h),
    "h + 1": lambda h, w: h + 1,
    "h.sqrt()": lambda h, w: h.sqrt(),
    "h.rsqrt()": lambda h, w: h.rsqrt(),
    "h + w[:4]": lambda h, w: h + w[:4],
    "h.cumsum(0)": lambda h, w: h.cumsum(0),
    "h.std()": lambda h, w: h.std(),
    "h.exp()": lambda h, w: h.exp(),
    "h.log_softmax(-1)": lambda h, w: h.log_softmax(-1),
    "F.group_norm(h, 2)": lambda h, w: F.group_norm(h, 2),
    "F.batch_norm(h, mean, var)": lambda h, w: F.batch_norm(h, torch.zeros_like(w[0]), torch.ones_like(w[0])),
    "F.cross_entropy(h, y)": lambda h, w: F.cross_entropy(
        h, torch.zeros(4, dtype=torch.long, device=h.device)
    ),
}


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Hold each dtype predicted against that of a tensor which PyTorch returns."""
    predicted = _predictions(worker.call("amp_lessons.course.exercises.bed_there:value_of", bed.Handle(0)))
    unanswered = [name for name in OPERATIONS if _is_open(predicted.get(name))]
    answered = [name for name in OPERATIONS if name not in unanswered]
    truth = true_dtypes()
    mistakes = [mistake for name in answered for mistake in _mistakes(name, predicted[name], truth[name])]
    yield from mistakes[:1]
    yield from (replace(each, hint="") for each in mistakes[1:])  # most have the same hint
    if unanswered:
        yield _missing(unanswered, len(answered) - len(mistakes))
    elif not mistakes:
        count = len(OPERATIONS)
        yield passed("dtypes", f"all {count} dtypes are what PyTorch returns by CUDA's autocast rules")


def warm_up() -> None:
    """Ask PyTorch once for what every check compares with."""
    true_dtypes()
    for name in OPERATIONS:
        _reason(name)


@cache
def true_dtypes() -> dict[str, torch.dtype]:
    """Run every operation under CUDA's autocast rules, on either device; return the results' dtypes."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rules = contextlib.nullcontext() if device == "cuda" else autocast.cuda_rules()
    h, w = torch.ones(4, 8, dtype=torch.float16, device=device), torch.ones(8, 8, device=device)
    with torch.no_grad(), rules, torch.autocast(device, dtype=torch.float16):
        return {name: operation(h, w).dtype for name, operation in OPERATIONS.items()}


def _predictions(predicted: Any) -> dict[Any, Any]:
    """Return the dict handed in, by a function if the learner made one of it; an empty stub is no attempt."""
    if not isinstance(predicted, dict):
        message = f"a dict was expected, not {bed.described(predicted)}"
        bed.reject("not_a_dict", message, "operation: dtype, as in the stub")
    if predicted and all(_is_open(predicted.get(name)) for name in OPERATIONS):
        raise bed.Rejected(todo("fill in the dtypes, then run the check again"))
    for name in predicted:
        if name not in OPERATIONS:
            message = f"{name!r} is not among the operations asked for"
            bed.reject("unknown_operation", message, "keep the stub's keys")
    return dict(predicted)


def _is_open(value: Any) -> bool:
    return value is None or value == bed.Other("builtins.ellipsis")


def _mistakes(name: str, value: Any, true: torch.dtype) -> Iterator[Finding]:
    """Yield what is wrong with the dtype predicted for one operation, if anything is."""
    predicted = _as_dtype(value)
    if predicted is None:
        message = f"{name}: {bed.described(value)} is no torch.dtype"
        yield failed("not_a_dtype", message, "write torch.float16 or torch.float32")
    elif predicted != true:
        yield failed(
            "wrong_dtype",
            f"{name} returns {dtype_name(true)} under CUDA's autocast, not {dtype_name(predicted)}: "
            f"{_reason(name)}",
            "ask in turn: is the operation in the list for lower precision, in that for fp32, in that for "
            "the widest input dtype, or in none?",
        )


def _as_dtype(value: Any) -> torch.dtype | None:
    """Read a dtype, or the name of one: of PyTorch, "torch.float16" or "half", or of the course, "fp16"."""
    name = value.removeprefix("torch.").lower() if isinstance(value, str) else ""
    found = value if isinstance(value, torch.dtype) else getattr(torch, name, None)
    if isinstance(found, torch.dtype):
        return found
    with contextlib.suppress(ValueError):
        return dtype_of(name)
    return None


def _missing(unanswered: list[str], right: int) -> Finding:
    names = ", ".join(f"`{name}`" for name in unanswered)
    message = f"{right} of {len(OPERATIONS)} are right; no answer yet for {names}"
    return failed("missing", message, "torch.float16 or torch.float32?")


class _Calling(nn.Module):
    """One of the operations, as the ledger wants it."""

    def __init__(self, operation: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.operation = operation

    def forward(self, h: Tensor, w: Tensor) -> Tensor:
        return self.operation(h, w)


@cache
def _reason(name: str) -> str:
    """Ask the ledger which rule decided: that of the operation, or of one that it calls in turn."""
    h, w = torch.ones(4, 8, dtype=torch.float16), torch.ones(8, 8)
    row = autocast.record(_Calling(OPERATIONS[name]), h, w, device_type="cuda").rows[-1]
    op, rule = row.op.removeprefix("aten::"), row.policy and row.policy.value
    if rule is None:
        given = " and ".join(dict.fromkeys(map(dtype_name, row.input_dtypes)))
        return f"{op} is in no list, and what it is given is in {given}"
    listed = f"is in the {'fp32 list' if rule.startswith('fp32') else f'list for {rule}'}"
    through = row.through.removeprefix("aten::")
    if through:
        return f"{op} itself is in no list, but {through}, which it calls, {listed}"
    return f"{op} {listed}"
