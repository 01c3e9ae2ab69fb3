"""One step of training: what is left of a batch whose step is skipped, and of all others?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from amp_lessons import autocast
from amp_lessons.audit import rules
from amp_lessons.audit.findings import Finding, note, passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.heal_nan_in_tests import steps_there
from amp_lessons.course.exercises.heal_nan_in_tests.solution import step_nan_in_tests
from amp_lessons.course.exercises.heal_nan_in_tests.steps_there import CLASSES, FEATURES
from amp_lessons.course.exercises.loops import Bench
from amp_lessons.course.exercises.report.common_findings import float_in, remark_on_type
from amp_lessons.course.material.models import seeded

_FORWARD, _BACKWARD = "overflows in the forward pass", "overflows in the backward pass"
_KINDS = {torch.float16: ("", _FORWARD, "", "", _BACKWARD, _FORWARD, _FORWARD, ""), torch.bfloat16: ("",)}
_STATISTICS = ("1.running_mean", "1.running_var", "4.running_mean", "4.running_var")
_COUNTS = ("1.num_batches_tracked", "4.num_batches_tracked")


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[bed.Said]:
    """Let a loop train by the step as one of lesson 04 does, then in front of a BatchNorm."""
    state = seeded(steps_there.network, int(torch.randint(2**30, (), generator=draw))).state_dict()
    bench = Bench(step_nan_in_tests, there=steps_there, signature=(6, ()))
    bench.require_callable(worker)
    returned = 0.0
    with contextlib.suppress(bed.Raised):  # what it means, the loop's examination says
        of = _bed(worker, state, torch.float16)
        returned = worker.call(of, bed.Handle(0), *_batch("", draw), method="make")["returned"]
        if float_in(returned) is None:
            bed.reject_type("the loss, a float, was", returned, "return loss.item()")
    for said in bench.judge(worker, draw):
        if not (isinstance(said, Finding) and said.code == "history"):  # the loop is ours
            yield said
    skipped = []
    for dtype, kinds in _KINDS.items():
        of = _bed(worker, state, dtype)
        for kind in kinds:
            batch, about = _batch(kind, draw), f"for a batch that {kind}" if kind else ""
            made = bed.asked(worker, of, bed.Handle(0), *batch, method="make", about=about)
            _require_statistics(made, batch[0], kind, dtype)
            skipped += [made] if kind == _FORWARD else []
    yield passed("statistics", "a skipped step left the statistics as they were, and all others moved them")
    if any(made["after"][name] != made["before"][name] for made in skipped for name in _COUNTS):
        yield note(
            "skipped_batch_counted",
            "a batch that overflowed in the forward pass is still counted in `num_batches_tracked`, a buffer "
            "too: a BatchNorm with momentum=None divides by it",
            "put all of model.named_buffers() back, that of integers among them",
        )
    yield from remark_on_type(returned, float)


def _bed(worker: bed.Worker, state: dict[str, Tensor], dtype: torch.dtype) -> bed.Handle:
    made = worker.call(f"{steps_there.__name__}:Bed", dict(state), dtype, keep=True)
    assert isinstance(made, bed.Handle)
    return made


def _batch(kind: str, draw: torch.Generator) -> tuple[Tensor, Tensor, float]:
    """Draw inputs and targets of a batch, and what its loss is multiplied with."""
    inputs = torch.randn(8, FEATURES, generator=draw) + 1.0
    inputs[0] *= 1e6 if kind == _FORWARD else 1.0
    targets = torch.randint(0, CLASSES, (8,), generator=draw)
    return inputs, targets, 1e6 if kind == _BACKWARD else 1.0


def _require_statistics(made: dict[str, Any], inputs: Tensor, kind: str, dtype: torch.dtype) -> None:
    """Hold what a batch of a kind has made of mean and variance against one forward pass, or none."""
    after, as_before = made["after"], _same(made["after"], made["before"])
    if kind == _FORWARD:
        for name in _STATISTICS:
            if not after[name].isfinite().all():
                seen = f"after a batch that overflowed in the forward pass, `{name}` is inf or NaN"
                raise bed.Rejected(rules.numbers.buffers_not_finite(seen))
        if not as_before:
            said = "after a batch that overflowed in the forward pass, the statistics are others than before"
            bed.reject("statistics_replaced", said, "give them the numbers that they had before that batch")
        return
    model = steps_there.network()
    model.load_state_dict(made["before"])
    with autocast.cuda_rules(), torch.no_grad(), torch.autocast("cpu", dtype=dtype):
        model(inputs)
    if _same(after, model.state_dict()) or (as_before and kind == _BACKWARD):
        return
    what = "a batch whose gradients overflowed" if kind == _BACKWARD else "a batch whose step was made"
    are = "what they were before it, and not those" if as_before else "not those"
    said = f"after {what}, mean and variance are {are} that one forward pass in training mode leaves"
    hint = (
        "let each batch go through the model once, in training mode, and put back what it makes of mean and "
    )
    hint += "variance after a skipped step only: the scale has fallen then, and it grows after others"
    bed.reject("statistics_replaced", said, hint)


def _same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.allclose(one[name], other[name], rtol=1e-3, atol=1e-3) for name in _STATISTICS)
