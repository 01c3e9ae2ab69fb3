"""Which dtype does an operation return under CUDA's autocast? PyTorch itself is asked."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from amp_lessons.exercises import conduct, sandbox
from amp_lessons.exercises.results import Exercise, Finding, Verdict, failed, passed, todo

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
    # imported late: only this check needs it, and it is not quick to load
    return importlib.import_module("amp_lessons.autocast").cuda_rules()


def _answer() -> dict[str, torch.dtype]:
    half, single = torch.float16, torch.float32
    return {
        "F.linear(h, w)": half,  # in the list for lower precision
        "w @ w": half,  # the same, whatever the inputs
        "torch.relu(h)": half,  # in no list: follows its input
        "h + 1": half,  # in no list
        "h * h": half,  # in no list, so it overflows above 255
        "h ** 2": single,  # pow is in the float32 list
        "h + w[:4]": single,  # in no list: ordinary type promotion
        "h.sum()": single,  # in the float32 list
        "h.mean()": half,  # in no list
        "h.exp()": single,  # in the float32 list
        "h.softmax(-1)": single,  # in the float32 list
        "F.layer_norm(h, (8,))": single,  # in the float32 list
        "F.batch_norm(h, mean, var)": half,  # in no list; its statistics are float32
        "F.cross_entropy(h, y)": single,  # in the float32 list
    }


def _stub() -> str:
    lines = "".join(f'    "{name}": ...,\n' for name in OPERATIONS)
    comment = "# h: float16, (4, 8); w: float32, (8, 8); write torch.float16 or torch.float32"
    return f"{comment}\npredicted = {{\n{lines}}}\n"


def _solution_source() -> str:
    lines = "".join(f'    "{name}": {dtype},\n' for name, dtype in _answer().items())
    return f"import torch\n\npredicted = {{\n{lines}}}\n"


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


def _examine(attempt: Any) -> Verdict:
    if callable(attempt):
        outcome = sandbox.call(attempt)
        finding = conduct.not_attempted(outcome) or conduct.misconduct(outcome)
        if finding is None and outcome.error is not None:
            finding = conduct.raised(outcome)
        if finding is not None:
            return Verdict((finding,))
        attempt = outcome.value
    if not isinstance(attempt, Mapping):
        what = conduct.describe(attempt)
        return Verdict(
            (failed("not_a_dict", f"a dict was expected, not {what}", "operation: dtype, as in the stub"),)
        )
    if all(attempt.get(name) in (None, ...) for name in OPERATIONS) and attempt:
        return Verdict((todo(conduct.NOT_ATTEMPTED.replace("write the body", "fill in the dtypes")),))
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
        passed("dtypes", f"all {len(OPERATIONS)} dtypes are what PyTorch returns under CUDA's autocast")
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
            f"{name}: {conduct.describe(value)} is no torch.dtype",
            "write torch.float16 or torch.float32",
        )
    if predicted == true:
        return None
    short = {torch.float16: "float16", torch.float32: "float32"}.get(true, str(true))
    return failed(
        "wrong_dtype",
        f"{name} returns {short} under CUDA's autocast, not {str(predicted)[6:]}: {_reason(name, true)}",
        "ask three questions: is the operation in the list for lower precision? in the list for float32? "
        "in neither?",
    )


def _reason(name: str, true: torch.dtype) -> str:
    h, w = torch.ones(4, 8, dtype=torch.float16), torch.ones(8, 8)
    without = OPERATIONS[name](h, w).dtype if name != "F.linear(h, w)" else torch.float32
    if without == true:
        return "autocast does not touch it, the result follows its inputs"
    return "it is in the float32 list" if true == torch.float32 else "it is in the list for lower precision"


EXERCISE = Exercise(
    id="predict_dtypes",
    title="Predict the dtypes",
    lesson="02",
    difficulty=2,
    minutes=8,
    names=("predicted",),
    task=(
        "For each operation, write the dtype of its result inside `torch.autocast('cuda', "
        "dtype=torch.float16)`. `h` is a float16 activation, as a linear layer returns it; `w` is a "
        "float32 tensor."
    ),
    stub=_stub(),
    hints=(
        "Autocast knows three kinds of operations: those it runs in lower precision, those it runs in "
        "float32, and those it leaves alone.",
        "Matrix products run in float16 whatever their inputs. Operations that sum many values or leave "
        "the range easily run in float32. Which of the operations here belong to neither kind?",
        "`relu`, `+` and `*` are left alone, and so are `mean` and `batch_norm`; `pow`, `sum`, `exp`, "
        "`softmax`, `layer_norm` and the losses are in the float32 list.",
    ),
    explanation=(
        "The lists are CUDA's; CPU autocast leaves `softmax`, `layer_norm`, `exp` and `sum` in half "
        "precision. What is in no list follows its inputs, by ordinary type promotion, so `h * h` "
        "overflows where `h ** 2` does not, and a float32 residual turns the sum into float32."
    ),
    answer=_answer(),
    answer_source=_solution_source(),
    examine=_examine,
)
