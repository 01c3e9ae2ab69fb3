"""Metrics over many small batches of a model in 16 bits: do its counters count to the end?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from amp_lessons.audit import rules
from amp_lessons.audit.findings import passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.heal_long_test import evaluation_there
from amp_lessons.course.exercises.patients.products import products_elsewhere
from amp_lessons.course.exercises.report.common_findings import float_in, remark_on_type
from amp_lessons.formats.dtypes import dtype_name

_LOSS_TOLERANCE = 0.005  # relative: a loss that was computed in bf16 is off by half of that
_SHARE_MISLED = 0.1  # of the samples: so many have another label than the model says
_A_BYTE = 256
_SPARE = 4  # times as many inputs are drawn: of two classes at once there is none the largest
_PROBLEMS = (  # dtype, samples, batch, classes, and how much larger logits are
    (torch.bfloat16, 400, 1, 5),
    (torch.bfloat16, 901, 3, 5, 1 / 64),  # right by margins that probabilities in bf16 round away
    (torch.float16, 2_600, 1, 5),
    (torch.float16, 4_096, 20, 5),
    (
        torch.float16,
        1,
        1,
        5,
        1 / 4,
    ),  # a loss near 0, all by itself, would be rounded by more than is tolerated
    (torch.float16, 300, 7, 5, 16),  # wrong by margins whose probabilities are 0 in fp16
    (torch.bfloat16, 40_000, 2_000, 5),  # more right answers than an int16 counts
    (torch.bfloat16, 400, 20, 5_000),  # more classes than a byte, or a float of 16 bits, tells apart
    (torch.bfloat16, 10, 4, 5),  # then once more, with NaN
)


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[bed.Said]:
    """Have models evaluated on loaders from one sample to thousands, and count again."""
    evaluate = bed.function(worker, "evaluate_long_test", None, [])
    seen = []
    for problem in _PROBLEMS:
        case = _drawn(draw, *problem)
        loss, accuracy, pair = _numbers(evaluate, case)
        _require_accuracy(accuracy, case)
        _require_loss(loss, case)
        seen.append((case.accuracy, accuracy))
    case.inputs[case.batch] = torch.nan  # the first sample of the second batch
    if not math.isnan(_numbers(evaluate, case)[0]):
        raise bed.Rejected(rules.dtypes.nan_hidden("the mean loss"))
    yield passed("counts", "accuracy and mean loss are right over 1 sample and over thousands")
    yield passed("small", "the model stayed in 16 bits, and NaN that goes in comes out")
    yield from {each.code: each for number in pair for each in remark_on_type(number, float)}.values()
    right, counted = zip(*seen, strict=True)
    yield bed.SideBySide("accuracy", "problem", right, counted)


@dataclass(frozen=True)
class EvaluationCase:
    """A linear model (weights, biases), samples in batches of up to ``batch``, and what it makes of them."""

    what: str
    dtype: torch.dtype
    model: tuple[Tensor, Tensor]
    inputs: Tensor
    labels: Tensor
    batch: int
    named: Tensor
    losses: Tensor

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        return int((self.named == self.labels).sum()) / len(self.named)


def _drawn(
    draw: torch.Generator, dtype: torch.dtype, samples: int, batch: int, classes: int, larger: float = 1
) -> EvaluationCase:
    """Draw a linear classifier in ``dtype``, and samples of which it names nine in ten.

    The others have the label of the next class, or of one that is a byte away. All is made of quarters from
    -1 to 1, weights and biases ``larger``: eight products, added up, are exact, whatever kernel does it.
    """

    def quarters(*shape: int) -> Tensor:
        return (torch.randint(-4, 5, shape, generator=draw) / 4).to(dtype)

    weight, bias = quarters(classes, 8) * larger, quarters(classes) * larger
    inputs = quarters(_SPARE * samples + 10, 8)
    first, second = F.linear(inputs, weight, bias).topk(2).values.T
    inputs = inputs[first > second][:samples]
    logits = F.linear(inputs, weight, bias)
    misled = torch.rand(samples, generator=draw) < _SHARE_MISLED
    misled[-1], misled[-2:-1] = False, True  # so that a last batch's weight shows in both numbers
    steps = torch.tensor([1, _A_BYTE]).repeat(samples)[:samples]
    labels = (logits.argmax(1) + misled * steps) % classes
    many = f" of {classes:,} classes" if classes > _A_BYTE else ""
    batches = f"batches of {batch if batch > 1 else 'one'} and {dtype_name(dtype)}"
    what, named = f"for {samples:,} samples{many} in {batches}", logits.argmax(1)
    losses = F.cross_entropy(logits.double(), labels, reduction="none")
    return EvaluationCase(what, dtype, (weight, bias), inputs, labels, batch, named, losses)


def _numbers(evaluate: bed.LearnersFunction, case: EvaluationCase) -> tuple[float, float, tuple[Any, Any]]:
    given = *case.model, case.inputs, case.labels, case.batch
    there = f"{evaluation_there.__name__}:evaluate"
    (pair, weights, products), _ = evaluate.called_by(there, *given, about=case.what)
    if set(weights) != {case.dtype}:
        hint = "leave it as it is: its sums need more digits"
        bed.reject("inputs_changed", "the model was cast to another dtype", hint)
    if mistake := products_elsewhere(products, case.dtype, "the model's matrix products"):
        raise bed.Rejected(mistake)
    found = [float_in(each) for each in pair] if isinstance(pair, (tuple, list)) else []
    numbers = [each for each in found if each is not None]
    if len(found) != 2 or len(numbers) != 2:
        bed.reject_type("two floats were", pair, "return loss, accuracy")
    return numbers[0], numbers[1], (pair[0], pair[1])


def _require_accuracy(accuracy: float, case: EvaluationCase) -> None:
    """Require the count of right answers over that of samples, and tell a count in 16 bits from others."""
    right, samples = case.accuracy, len(case.labels)
    if math.isclose(accuracy, right, abs_tol=0.1 / samples):
        return
    counted = torch.zeros((), dtype=case.dtype)
    for hits in (case.named == case.labels).split(case.batch):
        counted += hits.sum()
    there, stuck = round(right * samples), counted.double() / samples
    made = (stuck, stuck.to(case.dtype)) if counted != there else ()
    if any(math.isclose(accuracy, each, rel_tol=1e-6) for each in made):
        stopped = f"{case.what} {counted:.0f} right answers were counted, and there are {there}"
        stop = 2 / torch.finfo(case.dtype).eps  # where 1 is half of the spacing
        raise bed.Rejected(rules.numbers.metric_stops(stopped, dtype_name(case.dtype), stop))
    seen = f"{case.what} the accuracy is {accuracy:.6f} instead of {right:.6f}"
    hint = "compare classes as integers, count right answers and samples in Python's or in int64, and return "
    hint += "their quotient, from 0 to 1, without a cast to 16 bits on the way"
    bed.reject("wrong_accuracy", seen, hint)


def _require_loss(loss: float, case: EvaluationCase) -> None:
    right = float(case.losses.mean())
    if not math.isclose(loss, right, rel_tol=_LOSS_TOLERANCE):
        seen = f"{case.what} the mean loss is {loss:.4f} instead of {right:.4f}"
        hint = "add up the losses of all samples, in fp32 or in Python's own numbers (new_zeros takes the "
        hint += "model's dtype), and divide by their number"
        bed.reject("wrong_loss", seen, hint)
