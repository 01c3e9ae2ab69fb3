"""Two networks, two optimizers, one scaler: the GAN step."""

from __future__ import annotations

from typing import Any

import torch

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.report.common_findings import cuda_replaced, fixed_device
from amp_lessons.exercises.report.results import Verdict
from amp_lessons.exercises.two_optimizers import mistakes, testbed


def check(attempt: Any) -> Verdict:
    attempt = attempt.value
    finding = common_findings.uncallable(attempt, "gan_step", *[None] * 7, device_type=None, dtype=None)
    if finding is not None:
        return Verdict((finding,))
    tapes = []
    for bench, poisoned in _sequences():
        tapes.append(bench.tape)
        for part in poisoned:
            call = bench.call(attempt, part)
            finding = common_findings.not_attempted(call.outcome) or mistakes.first_mistake(call)
            if finding is not None:
                return Verdict((finding,))
    return Verdict((*_WHAT_HOLDS, *_remarks(tapes)))


def _sequences() -> list[tuple[testbed.Gan, tuple[str | None, ...]]]:
    """List the runs: a scale that changes after each step, so that order shows; bfloat16; overflows."""
    clean = (None, None, None)
    return [
        (testbed.Gan(torch.float16, seed=0, init_scale=8.0, growth_interval=1), clean),
        (testbed.Gan(torch.float16, seed=1, init_scale=8.0, growth_interval=1), clean),
        (testbed.Gan(torch.bfloat16, seed=2, init_scale=8.0, growth_interval=1), clean),
        (
            testbed.Gan(torch.float16, seed=3, init_scale=1024.0, growth_interval=1000),
            (None, "discriminator", None),
        ),
        (
            testbed.Gan(torch.float16, seed=4, init_scale=1024.0, growth_interval=1000),
            (None, "generator", None),
        ),
    ]


_WHAT_HOLDS = (
    passed("precision", "both networks ran under autocast in the dtype asked for, backward outside it"),
    passed("discriminator", "its updates are SGD on its own loss, whatever the scale did"),
    passed("generator", "its updates are SGD on its own loss, whatever the scale did"),
    passed("overflow", "an overflow in a network left its weights alone, and the scale was lowered"),
    passed("losses", "both losses are returned, unscaled"),
)


def _remarks(tapes: list[Any]) -> list[Finding]:
    hint = "write torch.autocast(device_type, …)"
    if any(tape.hard_coded for tape in tapes):
        return [cuda_replaced("device_type", "PyTorch would only warn and switch autocast off", hint)]
    spellings = sorted({spelling for tape in tapes for spelling in tape.deprecated})
    return [fixed_device(f"{name} names one device, whatever device_type says", hint) for name in spellings]
