"""Metrics over many small batches of a model in 16 bits: do its counters count to the end?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.audit import catalogue
from amp_lessons.audit.catalogue.precision import nan_hidden
from amp_lessons.audit.findings import Finding, passed
from amp_lessons.exercises.attempt import Attempt, LearnersFunction, Rejected, reject, run
from amp_lessons.exercises.patients.products import ProductDtypes
from amp_lessons.exercises.report.common_findings import float_in, remark_on_type
from amp_lessons.exercises.report.results import SideBySide
from amp_lessons.exercises.watching.tape import device_type
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.text.describing import describe

_LOSS_TOLERANCE = 0.005  # relative: a loss that was computed in bf16 is off by half of that
_WATCHED = 1_000
_PROBLEMS = (
    (torch.bfloat16, 400, 1),
    (torch.bfloat16, 901, 3),
    (torch.float16, 2_600, 1),
    (torch.float16, 4_096, 20),
    (torch.bfloat16, 10, 4),
    (torch.float16, 1, 1),
)


def check(attempt: Attempt) -> Iterator[Finding | SideBySide]:
    """Have models evaluated on loaders from one sample to thousands, and count again."""
    evaluate = attempt.function(None, [])
    seen = []
    for seed, (dtype, samples, batch) in enumerate(_PROBLEMS):
        given = problem(dtype, samples, batch, seed)
        loss, accuracy, pair = _numbers(evaluate, given)
        _require_accuracy(accuracy, given)
        _require_loss(loss, given)
        seen.append((given.right[1], accuracy))
    _require_nan(evaluate)
    yield passed("counts", "accuracy and mean loss are right over 1 sample and over thousands")
    yield passed("small", "the model stayed in 16 bits, and NaN that goes in comes out")
    yield from {each.code: each for number in pair for each in remark_on_type(number, float)}.values()
    right, counted = zip(*seen, strict=True)
    yield SideBySide("accuracy", "problem", right, counted)


def _numbers(evaluate: LearnersFunction, given: EvaluationProblem) -> tuple[float, float, tuple[Any, Any]]:
    dtypes = ProductDtypes()
    watch = given.samples <= _WATCHED  # a watch doubles the time of small products

    def watched() -> Any:
        with dtypes if watch else nullcontext():
            return evaluate.function(given.model, given.loader)

    pair = run(watched, about=f"for {given.what}")
    if any(parameter.dtype != given.dtype for parameter in given.model.parameters()):
        reject(
            "inputs_changed",
            "the model was cast to another dtype",
            "leave it as it is: its sums need more digits",
        )
    mistake = dtypes.mistake(given.dtype, "the model's matrix products")
    if watch and mistake is not None:
        raise Rejected(mistake)
    found = [float_in(each) for each in pair] if isinstance(pair, (tuple, list)) else []
    numbers = [each for each in found if each is not None]
    if len(found) != 2 or len(numbers) != 2:
        hint = "return loss, accuracy"
        reject("wrong_return_type", f"two floats were expected, not {describe(pair)}", hint)
    return numbers[0], numbers[1], (pair[0], pair[1])


def _require_accuracy(accuracy: float, given: EvaluationProblem) -> None:
    right = given.right[1]
    if math.isclose(accuracy, right, abs_tol=0.1 / given.samples):
        return
    counted, there = accuracy * given.samples, round(right * given.samples)
    if there > _stop(given.dtype) and counted < there and _is_round(counted, given):
        _reject_stopped(f"{counted:.0f} right answers were counted, and there are {there}", given)
    weighed = _mean_of_batches(given)
    if math.isclose(accuracy, weighed, abs_tol=0.1 / given.samples):
        reject(
            "batches_weighed_alike",
            f"for {given.what} the accuracy is {accuracy:.4f} instead of {right:.4f}: it is the mean of the "
            "batches' accuracies, of which the last is smaller",
            "count right answers and samples, and divide in the end",
        )
    if math.isclose(accuracy, right, rel_tol=0.005):  # bf16 rounds by 0.4 % at most
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
    if loss < right and given.samples > 100 and not math.isclose(loss, _sum_of_means(given), rel_tol=0.01):
        reject(
            "loss_sum_stops",
            f"for {given.what} the mean loss is {loss:.4f} instead of {right:.4f}, and the accuracy is "
            "right: the sum of the losses lags behind, as it does where each new loss is below half of the "
            "sum's spacing",
            "sum the losses as you do the right answers: in fp32, or in Python's own numbers",
        )
    reject(
        "wrong_loss",
        f"for {given.what} the mean loss is {loss:.4f} instead of {right:.4f}",
        "the losses of all samples, divided by their number, whatever the batches' sizes",
    )


def _sum_of_means(given: EvaluationProblem) -> float:
    """Return the sum of the batches' mean losses over the number of samples: one division too many."""
    with torch.no_grad():
        means = [F.cross_entropy(given.model(x).double(), y) for x, y in given.loader]
    return float(torch.stack(means).sum()) / given.samples


def _require_nan(evaluate: LearnersFunction) -> None:
    given = problem(torch.bfloat16, 12, 5, 7)
    inputs, labels = given.loader[1]
    broken = inputs.clone()
    broken[0, 0] = torch.nan
    poisoned = replace(given, loader=[given.loader[0], (broken, labels), given.loader[2]])
    loss, _, _ = _numbers(evaluate, poisoned)
    if not math.isnan(loss):
        raise Rejected(nan_hidden("the mean loss"))


# --- models in 16 bits, and loaders of small batches, with what is right of them

_FEATURES, _CLASSES = 8, 5
_SHARE_MISLED = 0.1  # of the samples: so many have another label than the model says


@dataclass(frozen=True)
class EvaluationProblem:
    """A model in 16 bits and ``samples`` samples, in batches of up to ``batch``."""

    dtype: torch.dtype
    samples: int
    batch: int
    model: nn.Module
    loader: list[tuple[Tensor, Tensor]]

    @property
    def what(self) -> str:
        """The samples, their batches and dtype, as a message names them."""
        batches = f"batches of {self.batch}" if self.batch > 1 else "batches of one"
        return f"{self.samples:,} samples in {batches} and {dtype_name(self.dtype)}"

    @property
    def right(self) -> tuple[float, float]:
        """Return mean loss and accuracy of the model's 16-bit logits, summed in fp64."""
        inputs, labels = (torch.cat(each) for each in zip(*self.loader, strict=True))
        with torch.no_grad():
            logits = self.model(inputs).double()
        return float(F.cross_entropy(logits, labels)), int((logits.argmax(1) == labels).sum()) / self.samples


def problem(dtype: torch.dtype, samples: int, batch: int, seed: int) -> EvaluationProblem:
    """Make a linear classifier in ``dtype``, and samples of which it names nine in ten."""
    draw = torch.Generator().manual_seed(seed)
    device = device_type()
    model = nn.Linear(_FEATURES, _CLASSES).to(device, dtype).requires_grad_(False)
    model.weight.copy_(torch.randn(_CLASSES, _FEATURES, generator=draw))
    model.bias.copy_(torch.randn(_CLASSES, generator=draw))
    inputs = torch.randn(samples, _FEATURES, generator=draw).to(device, dtype)
    labels = model(inputs).argmax(1)
    misled = (torch.rand(samples, generator=draw) < _SHARE_MISLED).to(device)
    labels = (labels + misled) % _CLASSES
    return EvaluationProblem(
        dtype, samples, batch, model, list(zip(inputs.split(batch), labels.split(batch), strict=True))
    )
