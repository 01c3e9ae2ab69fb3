"""One step of training: what is left of a batch whose step is skipped, and of all others?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NoReturn

import torch
from torch import Tensor

from amp_lessons import autocast
from amp_lessons._base.worker.client import Raised, Worker
from amp_lessons._base.worker.plain import Handle
from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, note, passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.attempt import Rejected, reject
from amp_lessons.course.exercises.heal_nan_in_tests import steps_there
from amp_lessons.course.exercises.heal_nan_in_tests.solution import step_nan_in_tests
from amp_lessons.course.exercises.heal_nan_in_tests.steps_there import BACKWARD, FORWARD
from amp_lessons.course.exercises.loops import Bench
from amp_lessons.course.exercises.report.common_findings import float_in, remark_on_type, wrong_return_type
from amp_lessons.course.exercises.report.results import SideBySide
from amp_lessons.course.material.models import seeded

Statistics = dict[str, Tensor]


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding | SideBySide]:
    """Let a loop train by the step as one of lesson 04 does, then in front of a BatchNorm."""
    seed = int(torch.randint(2**30, (), generator=draw))
    bench = Bench(step_nan_in_tests, there=steps_there, signature=(6, ()))
    bench.require_callable(worker)
    returned = 0.0
    with contextlib.suppress(Raised):  # what it means, the loop's examination says
        of = _bed(worker, torch.float16, seed)
        returned = worker.call(of, Handle(0), "", method="make")["returned"]
        if float_in(returned) is None:
            raise Rejected(
                wrong_return_type("the loss, a float, was", bed.described(returned), "return loss.item()")
            )
    for said in bench.judge(worker, draw):
        if not (isinstance(said, Finding) and said.code == "history"):  # the loop is ours
            yield said
    with autocast.cuda_rules():
        remarks = _examined_statistics(worker, seed)
    yield passed("statistics", "a skipped step left the statistics as they were, and all others moved them")
    yield from remarks
    yield from remark_on_type(returned, float)


def _bed(worker: Worker, dtype: torch.dtype, seed: int) -> Handle:
    state = seeded(steps_there.network, seed).state_dict()
    made = worker.call(f"{steps_there.__name__}:Bed", dict(state), dtype, seed, keep=True)
    assert isinstance(made, Handle)
    return made


def _make(worker: Worker, of: Handle, kind: str, about: str) -> dict[str, Any]:
    return dict(bed.asked(worker, of, Handle(0), kind, method="make", about=about))


def _examined_statistics(worker: Worker, seed: int) -> list[Finding]:
    """Ask what each kind of batch made of the statistics; return what is to be remarked."""
    of, miscounted = _bed(worker, torch.float16, seed), False
    for kind in ("", FORWARD, "", "", BACKWARD, FORWARD, FORWARD, ""):
        made = _make(worker, of, kind, f"for a batch that {kind}" if kind else "")
        before, after = _statistics(made["before"]), _statistics(made["after"])
        if kind == FORWARD:
            _require_as_before(after, before)
            miscounted |= not torch.equal(made["after"][_COUNT], made["before"][_COUNT])
        elif not _same(after, _statistics_after(made, torch.float16)) and not (kind and _same(after, before)):
            _reject_moved(after, before, kind)
    made = _make(worker, _bed(worker, torch.bfloat16, seed), "", "in bf16")
    if not _same(_statistics(made["after"]), _statistics_after(made, torch.bfloat16)):
        _reject_moved(_statistics(made["after"]), _statistics(made["before"]), "")
    return [_miscounted()] if miscounted else []


_COUNT = "1.num_batches_tracked"


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
    return all(torch.allclose(one[name], other[name], rtol=1e-3, atol=1e-5) for name in other)


def _statistics(state: dict[str, Tensor]) -> Statistics:
    return {name: state[name] for name in ("1.running_mean", "1.running_var")}


def _statistics_after(made: dict[str, Any], dtype: torch.dtype) -> Statistics:
    """Return what one forward pass makes of the statistics, on the batch and with the weights of a step."""
    model = steps_there.network()
    model.load_state_dict(made["before"])
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
        model(made["inputs"])
    return _statistics(model.state_dict())
