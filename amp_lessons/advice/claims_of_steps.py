"""Claims that rest on the steps that were audited: on their gradients, their loss, and their mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

import torch

from amp_lessons.advice.advice import Claim
from amp_lessons.advice.facts import Facts
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.text.words import fraction

_TO_SPEAK_OF = 0.001  # of a gradient's norm


def claims_of_gradients(facts: Facts) -> Iterator[Claim]:
    """Say what fp16 would do to the gradients that were seen, without a scaler."""
    if facts.audit is None:
        return
    worst = ("", 0.0, 0.0)
    for name, layer in facts.audit.layers.items():
        census = layer.counterfactual.get("fp16")
        if census is not None and (census.underflow_norm_fraction or 0.0) > worst[2]:
            worst = name, census.underflow_fraction, census.underflow_norm_fraction or 0.0
    name, count, norm = worst
    if norm < _TO_SPEAK_OF:
        return
    text = (
        "With fp16 the gradient scaler is no ornament."
        if facts.dtype is torch.float16
        else "On a GPU without bf16, where it has to be fp16, take a gradient scaler."
    )
    because = (
        f"of the gradients of `{name}`, {fraction(count)} would be zero in fp16 without one, "
        f"{fraction(norm)} of their norm."
    )
    yield Claim("watch", text, because, "measured")


def claims_of_steps(facts: Facts) -> Iterator[Claim]:
    """Tell every mistake that the audit saw, or that it saw none."""
    report = facts.audit
    if report is None or facts.audited_in is None:
        return
    name = dtype_name(facts.audited_in)
    for finding in report.findings:
        yield Claim(
            "watch" if finding.ok else "mend",
            f"{finding.message[0].upper()}{finding.message[1:]}.",
            f"seen by the audit of {len(report.steps)} steps in {name}"
            + (f"; {finding.hint}." if finding.hint else "."),
            "measured",
        )
    lost = [step.lost_updates for step in report.steps if step.lost_updates]
    rest = f" Of the updates at most {fraction(max(lost))} were lost." if lost else ""
    if bad := next((step for step in report.steps if not isfinite(step.loss or 0.0)), None):
        yield Claim(
            "mend",
            f"The loss became {bad.loss} in step {bad.index + 1} in {name}.",
            f"without autocast its first loss was finite; {_losses(facts)}",
            "measured",
        )
    elif report.passed and report.steps:
        count = "One step" if len(report.steps) == 1 else f"{len(report.steps)} steps"
        yield Claim(
            "answer", f"{count} of training in {name} showed no mistake.", _losses(facts) + rest, "measured"
        )


def _losses(facts: Facts) -> str:
    assert facts.audit is not None
    losses = [step.loss for step in facts.audit.steps if step.loss is not None]
    skipped = sum(not step.happened for step in facts.audit.steps)
    went = f"the loss went from {losses[0]:.4g} to {losses[-1]:.4g}" if losses else "no loss was seen"
    return f"{went}; {skipped} of {len(facts.audit.steps)} steps were skipped."
