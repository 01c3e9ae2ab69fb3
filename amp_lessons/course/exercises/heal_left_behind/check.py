"""A moving average of weights in 16 bits: does it come as far as the same average in fp64?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from amp_lessons.audit import rules
from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.heal_left_behind.training_there import network
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.formats.dtypes import dtype_name

_THERE = "amp_lessons.course.exercises.heal_left_behind.training_there"
_TOLERANCE = 0.01  # of the way that the average goes: fp32 is ten times better, one in 16 bits is worse
_FAR, _NEAR = 0.05, 0.005  # how far weights drift, as a fraction of them; the second is one step of bf16
_CASES = (
    (torch.float32, 0.9, 20, _FAR),  # what is wrong here has nothing to do with 16 bits
    (torch.float32, 0.999, 600, _FAR),
    (torch.bfloat16, 0.999, 600, _FAR),
    (torch.float16, 0.9999, 600, _FAR),
    (torch.bfloat16, 0.99, 300, _NEAR),
    (torch.bfloat16, 0.0, 3, _FAR),
    (torch.float16, 0.99, 1, _FAR),
    (torch.float32, 0.99, 0, _FAR),
)
_SHAPES = {name: each.shape for name, each in network(torch.float32).named_parameters()}


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Have the average taken of weights that drift, in several dtypes, and hold it against fp64's."""
    average = bed.function(worker, "train_left_behind", None, None, 1, 0.999)
    returned: list[dict[str, Tensor]] = []
    for dtype, decay, steps, drift in _CASES:
        history = _drifting(steps, drift, draw).to(dtype)
        hardly = f" whose weights move by one or two numbers of {dtype_name(dtype)}" if drift == _NEAR else ""
        what = f"for {steps} steps of a model in {dtype_name(dtype)}{hardly}"
        seen, has_graph = average.called_by(f"{_THERE}:train", history, decay, about=what)
        _require_trained(seen, history, what)
        _require_tensors(seen["returned"], has_graph)
        _require_average(seen["returned"], history, decay, what)
        returned.append(seen["returned"])
    if not all(map(_same, returned, bed.asked(worker, f"{_THERE}:afterwards"))):
        said = "an average, right when it was returned, has changed since, with the model or in a later call"
        hint = "clone what may be in fp32 already; keep nothing between calls, as a default argument would"
        bed.reject("shares_memory", said, hint)
    yield passed("average", "the average comes as far as in fp64, of weights in bf16, in fp16 and in fp32")
    yield passed("step", "step() is called as often as asked for, and the model is left as training left it")


def _drifting(steps: int, drift: float, draw: torch.Generator) -> Tensor:
    """Return the parameters before the first step and after each, a row for each, in fp64."""
    start, pace = torch.rand(2, sum(map(torch.Size.numel, _SHAPES.values())), generator=draw).double()
    way = drift * (start + 0.1) * (0.5 + pace)
    return start + way * torch.linspace(0, 1, steps + 1)[:, None]


def _averaged(history: Tensor, decay: float) -> Tensor:
    """Return the moving average, in fp64, that begins with the first of these weights."""
    value, *later = history.double()
    for weights in later:
        value = decay * value + (1 - decay) * weights
    return value


def _require_trained(seen: dict[str, Any], history: Tensor, what: str) -> None:
    steps = len(history) - 1
    if seen["called"] != steps:
        said = f"step() was called {seen['called']} times instead of {steps}"
        hint = "one call for each step, and one update of the average behind it"
        bed.reject("steps_miscounted", said, hint)
    if seen["weights"].dtype != history.dtype:
        left = f"{what}, the model is in {dtype_name(seen['weights'].dtype)} when your code returns"
        bed.reject("inputs_changed", left, "cast each weight that the average takes, not the model")
    if not torch.equal(seen["weights"], history[-1]):
        left = f"the model's weights were changed by something else than step(), {what}"
        hint = "give the average memory of its own: .float() makes none of what is fp32"
        bed.reject("inputs_changed", left, hint)


def _require_tensors(found: Any, has_graph: bool) -> None:
    names = list(found) if isinstance(found, dict) else []
    wrong = [f"without {name}" for name in _SHAPES if name not in names]
    wrong += [f"with {name}" for name in names if name not in _SHAPES]
    if not wrong:
        for name, each in found.items():
            fp32 = isinstance(each, Tensor) and (each.dtype, each.shape) == (torch.float32, _SHAPES[name])
            wrong += [] if fp32 else [f"with {bed.described(each)} as {name}"]
    if wrong or has_graph:
        asked = f"a dict of tensors in fp32, without a graph and of the shapes of {', '.join(_SHAPES)}, was"
        hint = "average model.named_parameters(), frozen ones too and no buffer, under torch.no_grad()"
        seen = f"{bed.described(found)} {', '.join(wrong) or 'with a graph'}"
        raise bed.Rejected(common_findings.wrong_return_type(asked, seen, hint))


def _require_average(found: dict[str, Tensor], history: Tensor, decay: float, what: str) -> None:
    seen = torch.cat([found[name].double().reshape(-1) for name in _SHAPES])
    start, right = history[0].double(), _averaged(history, decay)
    way = right - start
    if (seen - right).norm() <= _TOLERANCE * max(way.norm(), 1e-6 * start.norm()):
        return
    share = float((seen - start) @ way / (way @ way)) if way.any() else 1.0
    came = f"{what} with decay={decay} the average came {share:.0%} of its way"
    half = dtype_name(history.dtype)
    in_half = history.dtype != torch.float32 and torch.equal(seen, seen.to(history.dtype).double())
    if in_half and share < 0.5:  # else it is the result that was rounded
        numbers = f"{came}, and each of its numbers is one that {half} has"
        raise bed.Rejected(rules.numbers.average_stuck(numbers, half, "the average, or decay, is"))
    hint = "begin anew in each call, with the weights from before the first step; after each step, average = "
    hint += "decay * average + (1 - decay) * weight, with products, differences and the result in fp32"
    bed.reject("wrong_average", f"{came}, and is off by more than a hundredth of it", hint)


def _same(one: dict[str, Tensor], other: Any) -> bool:
    if not isinstance(other, dict) or one.keys() != other.keys():
        return False
    return all(isinstance(other[name], Tensor) and torch.equal(one[name], other[name]) for name in one)
