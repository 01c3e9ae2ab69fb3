"""A moving average of weights in 16 bits: does it come as far as the same average in fp64?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises.attempt import Rejected, reject
from amp_lessons.course.exercises.bed import described, function
from amp_lessons.course.exercises.heal_left_behind import training_there
from amp_lessons.course.material.models import seeded
from amp_lessons.formats.dtypes import dtype_name

_TOLERANCE = (
    0.01  # of the way that the average goes: fp32 is ten times better, an average in 16 bits is worse
)
_FAR, _NEAR = (
    0.05,
    0.005,
)  # how far weights drift, as a fraction of them; the second is about one step of bf16


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Take the average of weights that drift, in several dtypes, and hold it against fp64's."""
    average = function(worker, "train_left_behind", None, None, 1, 0.999)
    earlier: list[dict[str, Tensor]] = []
    for dtype, decay, steps, drift in _CASES:
        training = _training(dtype, steps, drift, draw)
        seen, _ = average.called_by(
            f"{training_there.__name__}:train",
            *(dtype, training.start, training.ends, steps, decay),
            about=training.when,
        )
        found = seen["returned"]
        _require_steps(seen["called"], training)
        _require_model(seen["weights"], training)
        _require_tensors(found, seen["graphs"], training)
        _require_average(found, training, decay)
        *before, now = seen["afterwards"]
        _require_own_memory(found, now, training)
        _require_unchanged(earlier, before)
        earlier.append(found)
    yield passed("average", "the average comes as far as in fp64, of weights in bf16, in fp16 and in fp32")
    yield passed("step", "step() is called as often as asked for, and the model is left as training left it")


_CASES = (
    (torch.float32, 0.999, 600, _FAR),  # what is wrong here has nothing to do with 16 bits
    (torch.float32, 0.9, 20, _FAR),
    (torch.bfloat16, 0.999, 600, _FAR),
    (torch.float16, 0.9999, 600, _FAR),
    (torch.bfloat16, 0.99, 300, _NEAR),
    (torch.bfloat16, 0.0, 3, _FAR),
    (torch.float16, 0.99, 1, _FAR),
    (torch.float32, 0.99, 0, _FAR),
)


@dataclass(frozen=True)
class _Training:
    """A model whose weights drift from ``start`` to ``ends``, in fp64; ``history`` holds all that it has."""

    dtype: torch.dtype
    steps: int
    drift: float
    start: dict[str, Tensor]
    ends: dict[str, Tensor]
    history: list[dict[str, Tensor]]

    @property
    def when(self) -> str:
        half = dtype_name(self.dtype)
        hardly = f" whose weights move by one or two numbers of {half}" if self.drift == _NEAR else ""
        return f"for {self.steps} steps of a model in {half}{hardly}"

    def average(self, decay: float) -> dict[str, Tensor]:
        """Return the average in fp64 of the weights that were really there."""
        return _averaged(self.history, decay)


def _training(dtype: torch.dtype, steps: int, drift: float, draw: torch.Generator) -> _Training:
    seed = int(torch.randint(2**30, (), generator=draw))
    model = seeded(lambda: training_there.network(dtype), seed)
    start = {name: each.double() for name, each in model.named_parameters()}
    ends = {
        name: each + drift * (each.abs() + 0.1) * (0.5 + torch.rand(each.shape, generator=draw).double())
        for name, each in start.items()
    }
    shares = [step / max(steps, 1) for step in range(steps + 1)]
    history = [
        {name: training_there.drifted(start[name], ends[name], share).to(dtype).double() for name in start}
        for share in shares
    ]
    return _Training(dtype, steps, drift, start, ends, history)


def _averaged(weights: list[dict[str, Tensor]], decay: float) -> dict[str, Tensor]:
    """Return the moving average in fp64 that begins with the first of these weights."""
    values = dict(weights[0])
    for each in weights[1:]:
        values = {name: decay * values[name] + (1 - decay) * each[name] for name in values}
    return values


def _require_steps(called: int, training: _Training) -> None:
    if called != training.steps:
        reject(
            "steps_miscounted",
            f"step() was called {called} times instead of {training.steps}",
            "one call for each step, and one update of the average behind it",
        )


def _require_model(now: dict[str, Tensor], training: _Training) -> None:
    same = (
        now[name].dtype == training.dtype and torch.equal(now[name].double(), value)
        for name, value in training.history[-1].items()
    )
    if not all(same):
        reject(
            "inputs_changed",
            f"the model was changed by something else than step(), {training.when}: its weights, or their "
            "dtype",
            "the average needs memory of its own; .float() makes none of what is in fp32 already",
        )


def _require_tensors(found: Any, graphs: list[str], training: _Training) -> None:
    if not isinstance(found, dict) or set(found) != set(training.start):
        reject(
            "wrong_return_type",
            f"a dict with one tensor for each of {', '.join(training.start)} was expected, not "
            f"{described(found)}{_other_names(found, training)}",
            "take the names from model.named_parameters()",
        )
    for name, value in found.items():
        if not isinstance(value, Tensor) or value.dtype != torch.float32 or name in graphs:
            graph = " with a graph" if name in graphs else ""
            reject(
                "wrong_return_type",
                f"tensors in fp32 without a graph were expected; {name} is {described(value)}{graph}",
                "keep the average in fp32, and update it under torch.no_grad()",
            )


def _other_names(found: Any, training: _Training) -> str:
    """Say which names are too few and too many, and what they stand for, where a dict was returned."""
    if not isinstance(found, dict):
        return ""
    missing = [name for name in training.start if name not in found]
    spare = [str(name) for name in found if name not in training.start]
    model = training_there.network(training.dtype)
    frozen = [name for name, each in model.named_parameters() if not each.requires_grad]
    buffers = [name for name, _ in model.named_buffers()]
    said = []
    if missing:
        said.append(f"without {', '.join(missing)}" + (", which is frozen" if missing == frozen else ""))
    if spare:
        said.append(f"with {', '.join(spare)}" + (", a buffer" if spare == buffers else ""))
    return ": " + ", and ".join(said)


def _require_average(found: dict[str, Tensor], training: _Training, decay: float) -> None:
    right, start, last = (
        _flat(each) for each in (training.average(decay), training.start, training.history[-1])
    )
    seen = _flat({name: found[name] for name in training.start})
    way = right - start
    error = float((seen - right).norm())
    if error <= _TOLERANCE * max(float(way.norm()), 1e-6 * float(start.norm())):
        return
    share = float((seen - start) @ way / (way @ way)) if way.any() else 1.0
    came = f"{training.when} with decay={decay} the average came {share:.0%} of its way"
    if training.dtype != torch.float32:
        _require_not_rounded(seen, right, start, came, training.dtype)
    if training.dtype == torch.float32 and training.steps:
        _require_no_other_average(seen, training, decay, came)
    _reject_average(seen, last, came)


def _require_no_other_average(seen: Tensor, training: _Training, decay: float, came: str) -> None:
    """Reject an average that begins with other weights, or takes them in at another time."""
    start, *later = training.history
    others = {
        "begins with the weights after the first step": later,
        "takes in the weights before each step, not those after it": [start, *training.history[:-1]],
        "begins with zeros": [{name: torch.zeros_like(each) for name, each in start.items()}, *later],
    }
    for what, weights in others.items():
        if torch.allclose(seen, _flat(_averaged(weights, decay)), rtol=1e-4, atol=1e-6):
            reject(
                "wrong_average",
                f"{came}: it is what comes out if it {what}",
                "begin with the weights from before the first step, and take in those after each step",
            )


def _require_not_rounded(seen: Tensor, right: Tensor, start: Tensor, came: str, dtype: torch.dtype) -> None:
    """Reject an average of numbers in 16 bits, by when they were rounded."""
    half, rounded = dtype_name(dtype), right.to(dtype).double()
    if not torch.equal(seen, seen.to(dtype).double()):
        return
    if (seen == rounded).double().mean() > _NEARLY_ALL:
        reject(
            "wrong_average",
            f"{came}, and is what the right one becomes when it is rounded to {half} in the end",
            "leave the result in fp32",
        )
    what = "the average, or decay, is" if torch.equal(seen, start) else "the average is"
    raise Rejected(
        catalogue.precision.average_stuck(
            f"{came}, and each of its numbers is one that {half} has", half, what
        )
    )


_NEARLY_ALL = 0.9  # what lies between two numbers of a dtype may go to either


def _reject_average(seen: Tensor, last: Tensor, came: str) -> NoReturn:
    if torch.equal(seen, last):
        reject(
            "last_weights",
            f"{came}: what was returned are the weights after the last step, not their average",
            "return the average",
        )
    reject(
        "wrong_average",
        f"{came}, and is off by more than a hundredth of it",
        "after each step, average = decay * average + (1 - decay) * weight, with every product in fp32; it "
        "begins with the weights from before the first step",
    )


def _require_own_memory(found: dict[str, Tensor], now: dict[str, Tensor], training: _Training) -> None:
    if not _same(found, now):
        reject(
            "shares_memory",
            f"{training.when} the average changes when the model's weights do: it has no memory of its own",
            "clone what may already be in fp32",
        )


def _require_unchanged(earlier: list[dict[str, Tensor]], now: list[dict[str, Tensor]]) -> None:
    if not all(map(_same, earlier, now)):
        reject(
            "shares_memory",
            "the average that an earlier call had returned changed in a later one: both are in one memory",
            "make new tensors in each call, and nothing that outlives it: a default argument does",
        )


def _same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def _flat(values: dict[str, Tensor]) -> Tensor:
    return torch.cat([each.double().reshape(-1) for each in values.values()])
