"""The verdict: what follows from the facts, each sentence with what it rests on."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from amp_lessons import devices
from amp_lessons.advice.advice import Claim
from amp_lessons.advice.facts import Facts
from amp_lessons.advice.subject import plain_path
from amp_lessons.autocast import Island
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.text.words import fraction, memory, relative

# A gain smaller than this is none: a roofline's promise is the most that can be had.
_WORTH_TIMES, _WORTH_SHARE = 1.2, 0.1
_TO_SPEAK_OF = 0.001  # of a gradient's norm
_MOST_NAMED = 8


def verdict(facts: Facts) -> Iterator[Claim]:
    """Yield the answer first: whether to use AMP on the GPU, then here; then what to mend and to watch."""
    yield _on_the_gpu(facts)
    yield from _here(facts)
    yield from _refused(facts)
    yield from _islands(facts)
    yield from _weights(facts)
    yield from _scaler(facts)
    yield from _seen_in_the_audit(facts)


def _on_the_gpu(facts: Facts) -> Claim:
    """Answer by what roofline and memory promise; where neither is known, by what the GPU has."""
    speed, saved = _speed(facts), _saved_share(facts)
    known = [*_of_time(facts), *_of_memory(facts)]
    because = "; ".join(known) or f"the data sheet of the {facts.gpu} has tensor cores for {facts.half}"
    scaled = " with a gradient scaler" if facts.dtype is torch.float16 else ""
    worth = not known or speed >= _WORTH_TIMES or saved >= _WORTH_SHARE
    if worth:
        text = f"On the {facts.gpu}, train in autocast with {facts.half}{scaled}."
    else:
        text = f"On the {facts.gpu}, autocast with {facts.half} has little to give this model at this batch."
    return Claim("answer", text, f"{because}.", "computed")


def _speed(facts: Facts) -> float:
    """Return how many times as fast the roofline lets a step be as without autocast, in TF32 if possible."""
    before = facts.bounds.get("tf32", facts.bounds.get("fp32"))
    after = facts.bounds.get(facts.half)
    return before.ms / after.ms if before and after else 1.0


def _saved_share(facts: Facts) -> float:
    if not {"fp32", facts.half} <= facts.memory.keys():
        return 0.0
    return 1 - facts.memory[facts.half].peak_bytes / facts.memory["fp32"].peak_bytes


def _of_time(facts: Facts) -> Iterator[str]:
    times = [f"{bound.ms:.3g} ms in {name}" for name, bound in facts.bounds.items()]
    if times:
        yield (
            f"with every operation at its roof, a forward and backward pass takes {', '.join(times)}: "
            f"autocast is at most {_speed(facts):.2f} times as fast"
        )


def _of_memory(facts: Facts) -> Iterator[str]:
    if {"fp32", facts.half} <= facts.memory.keys():
        peaks = [f"{memory(facts.memory[name].peak_bytes)} in {name}" for name in ("fp32", facts.half)]
        yield f"a training step's peak of memory is {' and '.join(peaks)} ({facts.memory['fp32'].source})"


def _here(facts: Facts) -> Iterator[Claim]:
    """Say what AMP does where the model lies now."""
    device = facts.subject.device.type
    if facts.here is None:
        yield Claim(
            "answer",
            f"On this {device.upper()}, do not train in 16 bits: it has no fast arithmetic for them.",
            f"{devices.SLOW_FP16} For bf16 it has no instructions either.",
            "measured",
        )
        return
    name = dtype_name(facts.here)
    if name in facts.timings:
        difference = facts.timings[name].compare(facts.timings["fp32"])
        advice = {
            "faster": f"Here, autocast with {name} pays.",
            "slower": f"Here, autocast with {name} costs time; train in fp32.",
            "no difference": f"Here, autocast with {name} makes no difference in time.",
        }
        because = (
            f"a forward and backward pass took {facts.timings['fp32']} in fp32 and {facts.timings[name]}"
        )
        yield Claim("answer", advice[difference.verdict], f"{because} in {name}: {difference}.", "measured")
    if device == "cpu" and facts.here is not torch.float16 and devices.describe().cpu.fp16 != "native":
        yield Claim(
            "watch",
            "Here, no step is to be taken in fp16, and none was.",
            f"{devices.SLOW_FP16} What is said of fp16 was computed with products in fp32, rounded.",
            "measured",
        )


def _refused(facts: Facts) -> Iterator[Claim]:
    if facts.refused is not None:
        text = f"Under autocast on a GPU the model raises an error. {facts.refused.cure}"
        yield Claim("mend", text, f"{facts.refused.said} {facts.refused.meaning}", "computed")


def _islands(facts: Facts) -> Iterator[Claim]:
    """Tell the islands in the dtype of the advice one by one, those in the other dtype together."""
    for dtype, islands in facts.islands.items():
        name = dtype_name(dtype)
        if dtype is facts.dtype:
            for island in islands.found:
                path = plain_path(island.module)
                where = f"`{path}`" if island.module else "The loss"
                yield Claim(
                    "mend",
                    f"{where} needs an island of fp32.",
                    _because(island, name),
                    "measured",
                    island.module,
                )
        elif islands.found:
            named = ", ".join(f"`{plain_path(each.module)}`" for each in islands.found[:_MOST_NAMED])
            count = len(islands.found)
            yield Claim(
                "watch",
                f"In {name}, {count} of its modules would need an island of fp32: {named}.",
                _because(islands.found[0], name),
                "measured",
            )
        if islands.beyond:
            named = ", ".join(f"`{plain_path(path)}`" for path in islands.beyond[:_MOST_NAMED])
            yield Claim(
                "mend" if dtype is facts.dtype else "watch",
                f"In {name}, fp32 for {named} does not help: what goes in is wrong already.",
                "its error is above tolerance under autocast, and also as an island of fp32.",
                "measured",
            )
    yield from _no_islands(facts)


def _because(island: Island, name: str) -> str:
    went = "inf or NaN come out" if island.overflows else f"it is {relative(island.error)} off"
    return (
        f"its own operations run by autocast's rules in {name} on what it is given in fp32: {went}; as an "
        f"island it is {relative(island.island_error)} off. The largest number that it returns is "
        f"{island.largest:.3g}."
    )


def _no_islands(facts: Facts) -> Iterator[Claim]:
    clean = [dtype for dtype, islands in facts.islands.items() if not (islands.found or islands.beyond)]
    if not clean or not any(facts.islands[dtype].examined for dtype in clean):
        return
    names = " or ".join(map(dtype_name, clean))
    examined = min(facts.islands[dtype].examined for dtype in clean)
    left = max(len(facts.islands[dtype].unexamined) for dtype in clean)
    rest = f"; {left} were not" if left else ""
    yield Claim(
        "answer",
        f"On this batch no module{' that was run' if left else ''} needs an island of fp32 in {names}.",
        f"{examined} modules were run by themselves by autocast's rules and in fp32{rest}.",
        "measured",
    )


def _weights(facts: Facts) -> Iterator[Claim]:
    for note in facts.ledger.notes if facts.ledger else ():
        mend = "already" in note
        text = "Load the weights in fp32; autocast makes the 16-bit copies." if mend else "Know the dtypes."
        yield Claim("mend" if mend else "watch", text, f"{note}.", "measured")


def _scaler(facts: Facts) -> Iterator[Claim]:
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


def _seen_in_the_audit(facts: Facts) -> Iterator[Claim]:
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
    if report.passed and report.steps:
        yield Claim(
            "answer",
            f"{len(report.steps)} steps of training in {name} showed no mistake.",
            _losses(facts) + (f" Of the updates at most {fraction(max(lost))} were lost." if lost else ""),
            "measured",
        )


def _losses(facts: Facts) -> str:
    assert facts.audit is not None
    losses = [step.loss for step in facts.audit.steps if step.loss is not None]
    skipped = sum(not step.happened for step in facts.audit.steps)
    went = f"the loss went from {losses[0]:.4g} to {losses[-1]:.4g}" if losses else "no loss was seen"
    return f"{went}; {skipped} of {len(facts.audit.steps)} steps were skipped."
