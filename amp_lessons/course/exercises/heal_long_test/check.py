"""Metrics over many small batches of a model in 16 bits: do its counters count to the end?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit import catalogue
from amp_lessons.audit.catalogue.precision import nan_hidden
from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises.attempt import Rejected, reject
from amp_lessons.course.exercises.bed import LearnersFunction, described, function
from amp_lessons.course.exercises.heal_long_test import evaluation_there
from amp_lessons.course.exercises.patients.products import products_elsewhere
from amp_lessons.course.exercises.report.common_findings import float_in, remark_on_type
from amp_lessons.course.exercises.report.results import SideBySide
from amp_lessons.formats.dtypes import dtype_name

_LOSS_TOLERANCE = 0.005  # relative: a loss that was computed in bf16 is off by half of that
_WATCHED = 1_000
_PROBLEMS = (
    (torch.bfloat16, 400, 1, 5),
    (torch.bfloat16, 901, 3, 5),
    (torch.float16, 2_600, 1, 5),
    (torch.float16, 4_096, 20, 5),
    (torch.bfloat16, 10, 4, 5),
    (torch.float16, 1, 1, 5),
    (torch.bfloat16, 40_000, 2_000, 5),  # more right answers than an int16 counts
    (torch.bfloat16, 400, 20, 5_000),  # more classes than a byte, or a float of 16 bits, tells apart
)


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding | SideBySide]:
    """Have models evaluated on loaders from one sample to thousands, and count again."""
    evaluate = function(worker, "evaluate_long_test", None, [])
    seen = []
    for dtype, samples, batch, classes in _PROBLEMS:
        given = _problem(draw, dtype, samples, batch, classes)
        loss, accuracy, pair = _numbers(evaluate, given)
        _require_accuracy(accuracy, given)
        _require_loss(loss, given)
        seen.append((given.right[1], accuracy))
    _require_nan(evaluate, draw)
    yield passed("counts", "accuracy and mean loss are right over 1 sample and over thousands")
    yield passed("small", "the model stayed in 16 bits, and NaN that goes in comes out")
    yield from {each.code: each for number in pair for each in remark_on_type(number, float)}.values()
    right, counted = zip(*seen, strict=True)
    yield SideBySide("accuracy", "problem", right, counted)


def _numbers(evaluate: LearnersFunction, given: EvaluationProblem) -> tuple[float, float, tuple[Any, Any]]:
    watch = given.samples <= _WATCHED  # a watch doubles the time of small products
    inputs, labels = (torch.cat(each) for each in zip(*given.loader, strict=True))
    (pair, weights, products), _ = evaluate.called_by(
        f"{evaluation_there.__name__}:evaluate",
        *(given.model.weight, given.model.bias, inputs, labels, given.batch),
        about=f"for {given.what}",
        extra=(watch,),
    )
    if set(weights) != {given.dtype}:
        reject(
            "inputs_changed",
            "the model was cast to another dtype",
            "leave it as it is: its sums need more digits",
        )
    mistake = products_elsewhere(products, given.dtype, "the model's matrix products")
    if watch and mistake is not None:
        raise Rejected(mistake)
    found = [float_in(each) for each in pair] if isinstance(pair, (tuple, list)) else []
    numbers = [each for each in found if each is not None]
    if len(found) != 2 or len(numbers) != 2:
        hint = "return loss, accuracy"
        reject("wrong_return_type", f"two floats were expected, not {described(pair)}", hint)
    return numbers[0], numbers[1], (pair[0], pair[1])


def _require_accuracy(accuracy: float, given: EvaluationProblem) -> None:
    right = given.right[1]
    if math.isclose(accuracy, right, abs_tol=0.1 / given.samples):
        return
    counted, there = accuracy * given.samples, round(right * given.samples)
    if there > _stop(given.dtype) and counted < there and _is_round(counted, given):
        _reject_stopped(f"{counted:.0f} right answers were counted, and there are {there}", given)
    _require_classes(accuracy, there, given)
    _require_weights(accuracy, there, given)
    if _is_rounded(accuracy, there, given):
        raise Rejected(
            catalogue.precision.metric_rounded(
                f"for {given.what} the accuracy is {accuracy:.6f} instead of {right:.6f}",
                f"a count or a quotient was rounded to {dtype_name(given.dtype)} on its way",
                "keep counts in integers or in fp32 to the end, the division included",
            )
        )
    reject(
        "wrong_accuracy",
        f"for {given.what} the accuracy is {accuracy:.4f} instead of {right:.4f}",
        "right answers, divided by the number of samples",
    )


def _require_classes(accuracy: float, there: int, given: EvaluationProblem) -> None:
    """Reject an accuracy that takes classes for the same which a dtype does not tell apart."""
    inputs, labels = (torch.cat(each) for each in zip(*given.loader, strict=True))
    with torch.no_grad():
        named = given.model(inputs).argmax(1)
    for dtype, kept in _KEPT_IN.items():
        counted = int((named.to(dtype) == labels.to(dtype)).sum())
        if counted != there and math.isclose(accuracy, counted / given.samples, rel_tol=1e-6):
            reject(
                "classes_confused",
                f"for {given.what} the accuracy is {accuracy:.4f} instead of {there / given.samples:.4f}: so "
                f"it is with classes in {kept}, which takes several of them for one",
                "compare classes as the integers that they are: argmax gives int64",
            )


_KEPT_IN = {torch.uint8: "one byte", torch.bfloat16: "bf16", torch.float16: "fp16"}


def _require_weights(accuracy: float, there: int, given: EvaluationProblem) -> None:
    """Reject an accuracy in which the last batch, which is smaller, counts as much as the others."""
    alike = {
        "the mean of the batches' accuracies": _mean_of_batches(given),
        "the number of right answers over that of the batches, times the first one's size": there
        / (given.batch * len(given.loader)),
    }
    for what, weighed in alike.items():
        if math.isclose(accuracy, weighed, rel_tol=1e-6):
            reject(
                "batches_weighed_alike",
                f"for {given.what} the accuracy is {accuracy:.4f} instead of {there / given.samples:.4f}: it "
                f"is {what}, and the last is smaller",
                "count right answers and samples, and divide in the end",
            )


def _is_rounded(accuracy: float, there: int, given: EvaluationProblem) -> bool:
    """Whether an accuracy is what becomes of the right one where a count, or the quotient, is in 16 bits."""
    half = [float(torch.tensor(each).to(given.dtype)) for each in (there, given.samples)]
    quotients = [a / b for a in (there, half[0]) for b in (given.samples, half[1])]
    rounded = [float(torch.tensor(each).to(given.dtype)) for each in quotients]
    return any(math.isclose(accuracy, each, rel_tol=1e-6) for each in (*quotients, *rounded))


def _is_round(counted: float, given: EvaluationProblem) -> bool:
    """Whether a count is one at which sums in 16 bits stop, or a quotient of it."""
    return any(math.isclose(counted, _stop(given.dtype) * 2**power, rel_tol=0.01) for power in range(4))


def _stop(dtype: torch.dtype) -> float:
    """Return where 1 is half of the spacing, and adding it changes nothing: 256 in bf16, 2,048 in fp16."""
    return 2 / torch.finfo(dtype).eps


def _reject_stopped(seen: str, given: EvaluationProblem) -> NoReturn:
    half = dtype_name(given.dtype)
    stopped = f"for {given.what} {seen}"
    raise Rejected(catalogue.precision.metric_stops(stopped, half, _stop(given.dtype)))


def _mean_of_batches(given: EvaluationProblem) -> float:
    with torch.no_grad():
        shares = [(given.model(x).argmax(1) == y).double().mean() for x, y in given.loader]
    return float(torch.stack(shares).mean())


def _require_loss(loss: float, given: EvaluationProblem) -> None:
    right = given.right[0]
    if math.isclose(loss, right, rel_tol=_LOSS_TOLERANCE):
        return
    if loss < right and any(_has(given.dtype, each) for each in (loss, loss * given.samples)):
        half = dtype_name(given.dtype)
        reject(
            "loss_sum_stops",
            f"for {given.what} the mean loss is {loss:.4f} instead of {right:.4f}, and the accuracy is "
            f"right: it lags behind, and is a number of {half}, or of such a sum, as where what each batch "
            "adds is below half the spacing of what is there",
            "sum the losses as you do the right answers: in fp32, or in Python's own numbers",
        )
    by_batch = [float(F.cross_entropy(given.model(x).double(), y)) for x, y in given.loader]
    if math.isclose(loss, sum(by_batch) / len(by_batch), rel_tol=_LOSS_TOLERANCE / 10):
        reject(
            "batches_weighed_alike",
            f"for {given.what} the mean loss is {loss:.4f} instead of {right:.4f}: it is the mean of the "
            "batches' means, and the last is smaller",
            "add up the losses of all samples, and divide by their number in the end",
        )
    reject(
        "wrong_loss",
        f"for {given.what} the mean loss is {loss:.4f} instead of {right:.4f}",
        "the losses of all samples, divided by their number, whatever the batches' sizes",
    )


def _has(dtype: torch.dtype, number: float) -> bool:
    """Whether a dtype has a number, but for the rounding of one division in fp32."""
    return math.isclose(float(torch.tensor(number).to(dtype)), number, rel_tol=1e-6)


def _require_nan(evaluate: LearnersFunction, draw: torch.Generator) -> None:
    given = _problem(draw, torch.bfloat16, 12, 5, 5)
    inputs, labels = given.loader[1]
    broken = inputs.clone()
    broken[0, 0] = torch.nan
    poisoned = replace(given, loader=[given.loader[0], (broken, labels), given.loader[2]])
    loss, _, _ = _numbers(evaluate, poisoned)
    if not math.isnan(loss):
        raise Rejected(nan_hidden("the mean loss"))


# --- models in 16 bits, and loaders of small batches, with what is right of them

_FEATURES = 8
_SHARE_MISLED = 0.1  # of the samples: so many have another label than the model says
_A_BYTE = 256
_SPARE = 4  # times as many inputs are drawn: of two classes at once there is none the largest


@dataclass(frozen=True)
class EvaluationProblem:
    """A model in 16 bits and ``samples`` samples, in batches of up to ``batch``."""

    dtype: torch.dtype
    samples: int
    batch: int
    model: nn.Linear
    loader: list[tuple[Tensor, Tensor]]

    @property
    def what(self) -> str:
        """The samples, their batches and dtype, as a message names them."""
        batches = f"batches of {self.batch}" if self.batch > 1 else "batches of one"
        many = f" of {self.model.out_features:,} classes" if self.model.out_features > _A_BYTE else ""
        return f"{self.samples:,} samples{many} in {batches} and {dtype_name(self.dtype)}"

    @property
    def right(self) -> tuple[float, float]:
        """Return mean loss and accuracy of the model's 16-bit logits, summed in fp64."""
        inputs, labels = (torch.cat(each) for each in zip(*self.loader, strict=True))
        with torch.no_grad():
            logits = self.model(inputs).double()
        return float(F.cross_entropy(logits, labels)), int((logits.argmax(1) == labels).sum()) / self.samples


def _quarters(draw: torch.Generator, *shape: int) -> Tensor:
    """Draw whole quarters from -1 to 1: eight products of them, added up, are exact in bf16."""
    return torch.randint(-4, 5, shape, generator=draw) / 4


def _problem(
    draw: torch.Generator, dtype: torch.dtype, samples: int, batch: int, classes: int
) -> EvaluationProblem:
    """Make a linear classifier in ``dtype``, and samples of which it names nine in ten.

    The others have the label of the next class, or of one that is a byte away. All is made of quarters, so
    that logits are exact whatever kernel computes them, and one class is the largest.
    """
    model = nn.Linear(_FEATURES, classes).to(dtype).requires_grad_(False)
    model.weight.copy_(_quarters(draw, classes, _FEATURES))
    model.bias.copy_(_quarters(draw, classes))
    inputs = _quarters(draw, _SPARE * samples + 10, _FEATURES).to(dtype)
    first, second = model(inputs).topk(2).values.T
    inputs = inputs[first > second][:samples]
    labels = model(inputs).argmax(1)
    misled = torch.rand(samples, generator=draw) < _SHARE_MISLED
    misled[-1], misled[-2:-1] = False, True  # so that a last batch's weight shows in both numbers
    steps = torch.tensor([1, _A_BYTE]).repeat(samples)[:samples]
    labels = (labels + misled * steps) % classes
    return EvaluationProblem(
        dtype, samples, batch, model, list(zip(inputs.split(batch), labels.split(batch), strict=True))
    )
