"""Two networks, two optimizers, one scaler: the GAN step."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from amp_lessons.audit.catalogue.scaler import batch_left_out
from amp_lessons.audit.findings import Finding, passed
from amp_lessons.exercises.attempt import Attempt, require_none
from amp_lessons.exercises.report.common_findings import cuda_replaced, fixed_device, in_place_of_cuda
from amp_lessons.exercises.two_optimizers.mistakes import mistakes
from amp_lessons.exercises.two_optimizers.mistakes_in_precision import inputs_cast
from amp_lessons.exercises.two_optimizers.testbed import Gan, Problem
from amp_lessons.exercises.watching.tape import Tape

# the scale first changes after each step, so that order shows, then only by an overflow
_PROBLEMS = (
    Problem(torch.float16, seed=0),
    Problem(torch.float16, seed=1),
    Problem(torch.bfloat16, seed=2),
    Problem(
        torch.float16,
        seed=3,
        init_scale=1024.0,
        growth_interval=1000,
        poisoned_call=1,
        poisoned_part="discriminator",
    ),
    Problem(
        torch.float16,
        seed=4,
        init_scale=1024.0,
        growth_interval=1000,
        poisoned_call=1,
        poisoned_part="generator",
    ),
)
_BOTH_MISS_A_STEP = ", both networks miss a step where the loss of one of them is not finite"


def check(attempt: Attempt) -> Iterator[Finding]:
    """Let the step train both networks a few times, and hold every call against the true gradients."""
    gan_step = attempt.function(*[None] * 7, device_type=None, dtype=None).function
    tapes: list[Tape] = []
    remarks: dict[Finding, None] = {}
    left_out: dict[Finding, None] = {}
    for problem in _PROBLEMS:
        gan = Gan(problem)
        for call in gan.train(gan_step):
            require_none(mistakes(call))
            if not call.poisoned:
                remarks |= dict.fromkeys(inputs_cast(call))
            elif not call.calls("scale"):
                left_out = {batch_left_out(_BOTH_MISS_A_STEP): None}
        tapes.append(gan.tape)
    asked = set().union(*(tape.hard_coded for tape in tapes))
    place = in_place_of_cuda(asked, "autocast", tapes[0].device_type)
    yield passed(
        "precision", f"both networks ran under autocast{place} in the dtype asked for, backward outside it"
    )
    yield passed("discriminator", "its updates are SGD on its own loss, whatever the scale did")
    yield passed("generator", "its updates are SGD on its own loss, whatever the scale did")
    lowered = "" if left_out else ", and the scale was lowered"
    yield passed("overflow", f"an overflow in a network left its weights alone{lowered}")
    yield passed("losses", "both losses are returned, unscaled")
    yield from remarks | left_out
    yield from _remarks(tapes)


def _remarks(tapes: list[Tape]) -> Iterator[Finding]:
    hint = "write torch.autocast(device_type, …)"
    if any(tape.hard_coded for tape in tapes):
        yield cuda_replaced("device_type", "PyTorch would only warn and switch autocast off", hint)
        return
    for name in sorted({spelling for tape in tapes for spelling in tape.deprecated}):
        yield fixed_device(f"{name} names one device, whatever device_type says", hint)
