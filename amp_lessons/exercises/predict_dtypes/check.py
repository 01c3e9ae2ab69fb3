"""Which dtype does an operation return under CUDA's autocast? PyTorch itself is asked."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.audit.findings import Finding, failed, passed, todo
from amp_lessons.exercises.containment import sandbox
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.report.results import Verdict
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.text.describing import describe

# each takes h, a float16 activation of shape (4, 8), and w, a float32 tensor of shape (8, 8)
OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "F.linear(h, w)": lambda h, w: F.linear(h, w),
    "w @ w": lambda h, w: w @ w,
    "torch.relu(h)": lambda h, w: torch.relu(h),
    "h + 1": lambda h, w: h + 1,
    "h * h": lambda h, w: h * h,
    "h ** 2": lambda h, w: h**2,
    "h + w[:4]": lambda h, w: h + w[:4],
    "h.sum()": lambda h, w: h.sum(),
    "h.mean()": lambda h, w: h.mean(),
    "h.exp()": lambda h, w: h.exp(),
    "h.softmax(-1)": lambda h, w: h.softmax(-1),
    "F.layer_norm(h, (8,))": lambda h, w: F.layer_norm(h, (8,)),
    "F.batch_norm(h, mean, var)": lambda h, w: F.batch_norm(h, torch.zeros_like(w[0]), torch.ones_like(w[0])),
    "F.cross_entropy(h, y)": lambda h, w: F.cross_entropy(
        h, torch.zeros(4, dtype=torch.long, device=h.device)
    ),
}


def true_dtypes() -> dict[str, torch.dtype]:
    """Run every operation under CUDA's autocast rules, on either device; return the results' dtypes."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    h, w = torch.ones(4, 8, dtype=torch.float16, device=device), torch.ones(8, 8, device=device)
    with torch.no_grad(), _cuda_rules(device), torch.autocast(device, dtype=torch.float16):
        return {name: operation(h, w).dtype for name, operation in OPERATIONS.items()}


def _cuda_rules(device: str) -> AbstractContextManager[Any]:
    if device == "cuda":
        return contextlib.nullcontext()
    return _autocast().cuda_rules()


def _autocast() -> Any:
    # imported late: only this check needs it, and it is not quick to load
    return importlib.import_module("amp_lessons.autocast")


_SPELLINGS = {
    "float16": torch.float16,
    "half": torch.float16,
    "fp16": torch.float16,
    "float32": torch.float32,
    "float": torch.float32,
    "fp32": torch.float32,
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
    "float64": torch.float64,
    "double": torch.float64,
}


def _as_dtype(value: Any) -> torch.dtype | None:
    if isinstance(value, torch.dtype):
        return value
    return _SPELLINGS.get(value.removeprefix("torch.").lower()) if isinstance(value, str) else None


def check(attempt: Any) -> Verdict:
    attempt = attempt.value
    if callable(attempt):
        outcome = sandbox.call(attempt)
        finding = common_findings.not_attempted(outcome) or common_findings.misconduct(outcome)
        if finding is None and outcome.error is not None:
            finding = common_findings.raised(outcome)
        if finding is not None:
            return Verdict((finding,))
        attempt = outcome.value
    if not isinstance(attempt, Mapping):
        what = describe(attempt)
        return Verdict(
            (failed("not_a_dict", f"a dict was expected, not {what}", "operation: dtype, as in the stub"),)
        )
    if all(attempt.get(name) in (None, ...) for name in OPERATIONS) and attempt:
        return Verdict((todo("fill in the dtypes, then run the check again"),))
    return Verdict(tuple(_findings(dict(attempt))))


def _findings(attempt: dict[Any, Any]) -> list[Finding]:
    unknown = [key for key in attempt if key not in OPERATIONS]
    if unknown:
        return [
            failed(
                "unknown_operation",
                f"{unknown[0]!r} is not among the operations asked for",
                "keep the stub's keys",
            )
        ]
    truth = true_dtypes()
    unanswered = [name for name in OPERATIONS if attempt.get(name) in (None, ...)]
    answered = [name for name in OPERATIONS if name not in unanswered]
    mistakes = [f for name in answered if (f := _mistake(name, attempt[name], truth[name])) is not None]
    mistakes[1:] = [replace(f, hint="") if f.hint == mistakes[0].hint else f for f in mistakes[1:]]
    mistakes += [_missing(unanswered, len(answered) - len(mistakes))] if unanswered else []
    return mistakes or [
        passed("dtypes", f"all {len(OPERATIONS)} dtypes are what PyTorch returns by CUDA's autocast rules")
    ]


def _missing(unanswered: list[str], right: int) -> Finding:
    names = ", ".join(f"`{name}`" for name in unanswered)
    return failed(
        "missing",
        f"{right} of {len(OPERATIONS)} are right; no answer yet for {names}",
        "torch.float16 or torch.float32?",
    )


def _mistake(name: str, value: Any, true: torch.dtype) -> Finding | None:
    predicted = _as_dtype(value)
    if predicted is None:
        return failed(
            "not_a_dtype",
            f"{name}: {describe(value)} is no torch.dtype",
            "write torch.float16 or torch.float32",
        )
    if predicted == true:
        return None
    return failed(
        "wrong_dtype",
        f"{name} returns {dtype_name(true)} under CUDA's autocast, not "
        f"{dtype_name(predicted)}: {_reason(name)}",
        "ask in turn: is the operation in the list for lower precision, in that for fp32, in that for the "
        "widest input dtype, or in none?",
    )


class _Calling(nn.Module):
    """One of the operations, as the ledger wants it."""

    def __init__(self, operation: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.operation = operation

    def forward(self, h: Tensor, w: Tensor) -> Tensor:
        return self.operation(h, w)


def _reason(name: str) -> str:
    """Ask the ledger which rule decided: that of the operation, or of one that it calls in turn."""
    h, w = torch.ones(4, 8, dtype=torch.float16), torch.ones(8, 8)
    row = _autocast().record(_Calling(OPERATIONS[name]), h, w, device_type="cuda").rows[-1]
    op, rule = row.op.removeprefix("aten::"), row.policy and row.policy.value
    if rule is None:
        return f"{op} is in no list, and the result follows {_followed(row.input_dtypes, row.output_dtype)}"
    listed = f"is in the {'fp32 list' if rule.startswith('fp32') else f'list for {rule}'}"
    through = row.through.removeprefix("aten::")
    return (
        f"{op} itself is in no list, but {through}, which it calls, {listed}" if through else f"{op} {listed}"
    )


def _followed(inputs: Sequence[torch.dtype], output: torch.dtype) -> str:
    if set(inputs) == {output}:
        return "its inputs"
    if output == reduce(torch.promote_types, inputs):
        return "its inputs by type promotion: one fp32 makes it fp32"
    return "its first input, whatever the others"
