"""One step of training: what is left of a batch whose step is skipped, and of all others?"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, note, passed
from amp_lessons.exercises.attempt import Attempt, LearnersFunction, Rejected, outcome_of, reject, run
from amp_lessons.exercises.heal_nan_in_tests.solution import step_nan_in_tests
from amp_lessons.exercises.report.common_findings import float_in, remark_on_type, wrong_return_type
from amp_lessons.exercises.report.results import SideBySide
from amp_lessons.exercises.training_loops import examine
from amp_lessons.exercises.watching.tape import device_type
from amp_lessons.material.models import seeded
from amp_lessons.text.describing import describe


def check(attempt: Attempt) -> Iterator[Finding | SideBySide]:
    """Train by the step as a loop of lesson 04 does, then in front of a BatchNorm."""
    step = attempt.function(*[None] * 6, device_type=None, dtype=None)
    returned = outcome_of(Bed(torch.float16).given_to(step.function, ""))
    if returned.error is None:  # what it means, the loop's examination says
        _require_number(returned.value)
    loop = Attempt(_as_loop(step.function), attempt.names)
    for said in examine.examine(loop, _as_loop(step_nan_in_tests)):
        if not (isinstance(said, Finding) and said.code == "history"):  # the loop is ours
            yield said
    remarks = _examined_statistics(step)
    yield passed("statistics", "a skipped step left the statistics as they were, and all others moved them")
    yield from remarks
    yield from remark_on_type(returned.value, float)


def _require_number(returned: Any) -> None:
    if float_in(returned) is None:
        raise Rejected(wrong_return_type("the loss, a float, was", describe(returned), "return loss.item()"))


def _as_loop(step: Callable[..., Any]) -> Callable[..., Any]:
    """Make a loop whose steps are made by ``step``, and which returns the mean loss of each epoch."""

    def loop(
        model: Any, loader: Any, optimizer: Any, loss_fn: Any, epochs: int, *, device_type: str, dtype: Any
    ) -> list[float]:
        scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
        asked = {"device_type": device_type, "dtype": dtype}
        history = []
        for _ in range(epochs):
            losses = [step(model, x, y, optimizer, loss_fn, scaler, **asked) for x, y in loader]
            history.append(sum(float_in(loss) or 0.0 for loss in losses) / len(losses))
        return history

    return loop


def _examined_statistics(step: LearnersFunction) -> list[Finding]:
    """Ask what each kind of batch made of the statistics; return what is to be remarked."""
    bed, miscounted = Bed(torch.float16), False
    for kind in ("", FORWARD, "", "", BACKWARD, FORWARD, FORWARD, ""):
        before, wanted, counted = bed.statistics(), bed.statistics_after(kind), bed.counted()
        run(bed.given_to(step.function, kind), about=f"for a batch that {kind}" if kind else "")
        after = bed.statistics()
        if kind == FORWARD:
            _require_as_before(after, before)
            miscounted |= bed.counted() != counted
        elif not (_same(after, wanted) or (kind == BACKWARD and _same(after, before))):
            _reject_moved(after, before, kind)
    bed = Bed(torch.bfloat16)
    before, wanted = bed.statistics(), bed.statistics_after("")
    run(bed.given_to(step.function, ""), about="in bf16")
    if not _same(bed.statistics(), wanted):
        _reject_moved(bed.statistics(), before, "")
    return [_miscounted()] if miscounted else []


def _miscounted() -> Finding:
    return note(
        "skipped_batch_counted",
        "a batch that overflowed in the forward pass is still counted in `num_batches_tracked`, a buffer "
        "too: a BatchNorm with momentum=None divides by it",
        "put all of model.named_buffers() back, that of integers among them",
    )


def _require_as_before(after: Statistics, before: Statistics) -> None:
    broken = [name for name, value in after.items() if not value.isfinite().all()]
    if broken:
        seen = f"after a batch that overflowed in the forward pass, `{broken[0]}` is inf or NaN"
        raise Rejected(catalogue.precision.buffers_not_finite(seen))
    if not _same(after, before):
        reject(
            "statistics_replaced",
            "after a batch that overflowed in the forward pass, the statistics are finite, and others than "
            "before it: what earlier batches had told is lost, or mixed with what was made of inf",
            "give them the numbers that they had before that batch",
        )


def _reject_moved(after: Statistics, before: Statistics, kind: str) -> NoReturn:
    if _same(after, before):
        reject(
            "statistics_stand_still",
            "after a batch whose step was made, mean and variance are what they were before it: evaluation "
            "would use those of the beginning",
            "put them back after a skipped step only",
        )
    what = "a batch whose gradients overflowed" if kind == BACKWARD else "a batch whose step was made"
    reject(
        "statistics_replaced",
        f"after {what}, mean and variance are not those that one forward pass in training mode leaves",
        "let each batch go through the model once, in training mode, and change nothing of what that leaves",
    )


def _same(one: Statistics, other: Statistics) -> bool:
    return all(torch.allclose(one[name], other[name], rtol=1e-3, atol=1e-5) for name in one)


# --- a BatchNorm behind a layer, and batches of which some do not fit into fp16

FORWARD, BACKWARD = "overflows in the forward pass", "overflows in the backward pass"
_FEATURES, _WIDTH, _CLASSES, _BATCH = 6, 16, 5, 8
Statistics = dict[str, Tensor]


class Bed:
    """A small model with a BatchNorm that a step may train, one batch of a kind after another."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._model = seeded(_network, 0).to(device_type())
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.1)
        self._scaler = torch.amp.GradScaler(device_type(), enabled=dtype == torch.float16)
        self._seed = 0

    def given_to(self, step: Callable[..., Any], kind: str) -> Callable[[], Any]:
        """Return a call of ``step`` on the next batch, which is of this ``kind``."""
        inputs, targets = self._batch(kind)
        self._seed += 1
        loss_fn = _Weighted(1e6 if kind == BACKWARD else 1.0)
        given = self._model, inputs, targets, self._optimizer, loss_fn, self._scaler
        return partial(step, *given, device_type=device_type(), dtype=self._dtype)

    def statistics(self) -> Statistics:
        """Copy mean and variance as they are now."""
        return _statistics_of(self._model)

    def counted(self) -> int:
        """Return how many batches the norm has counted."""
        return int(self._model.get_buffer("1.num_batches_tracked"))

    def statistics_after(self, kind: str) -> Statistics:
        """Return what one forward pass of a copy makes of them on the batch that comes next."""
        model = copy.deepcopy(self._model)
        with torch.autocast(device_type(), dtype=self._dtype):
            model(self._batch(kind)[0])
        return _statistics_of(model)

    def _batch(self, kind: str) -> tuple[Tensor, Tensor]:
        draw = torch.Generator().manual_seed(self._seed)
        inputs = torch.randn(_BATCH, _FEATURES, generator=draw) + 1.0
        inputs[0] *= 1e6 if kind == FORWARD else 1.0
        targets = torch.randint(0, _CLASSES, (_BATCH,), generator=draw)
        return inputs.to(device_type()), targets.to(device_type())


def _network() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(_FEATURES, _WIDTH), nn.BatchNorm1d(_WIDTH), nn.SiLU(), nn.Linear(_WIDTH, _CLASSES)
    )


def _statistics_of(model: nn.Module) -> Statistics:
    return {
        name: buffer.detach().clone() for name, buffer in model.named_buffers() if buffer.is_floating_point()
    }


class _Weighted(nn.CrossEntropyLoss):
    """The mean cross entropy, times a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self._factor = factor

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return super().forward(input, target) * self._factor
