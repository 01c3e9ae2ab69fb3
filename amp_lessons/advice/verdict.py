"""The verdict: what follows from the facts, each sentence with what it rests on."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from amp_lessons import devices
from amp_lessons.advice.advice import Claim
from amp_lessons.advice.claims_of_modules import claims_of_islands, claims_of_weights
from amp_lessons.advice.claims_of_steps import claims_of_gradients, claims_of_steps
from amp_lessons.advice.facts import Facts
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.text.words import memory

# A gain smaller than this is none: a roofline's promise is the most that can be had.
_WORTH_TIMES, _WORTH_SHARE = 1.2, 0.1


def verdict(facts: Facts) -> Iterator[Claim]:
    """Yield the answer first: whether to use AMP on the GPU, then here; then what to mend and to watch."""
    yield _on_the_gpu(facts)
    yield from _here(facts)
    yield from _as_it_came(facts)
    yield from _refused(facts)
    yield from claims_of_islands(facts)
    yield from claims_of_weights(facts)
    yield from claims_of_gradients(facts)
    yield from claims_of_steps(facts)


def _on_the_gpu(facts: Facts) -> Claim:
    """Answer by what roofline and memory promise; where neither is known, by what the GPU has."""
    if facts.refused is not None:
        text = f"On the {facts.gpu}, this model does not run in autocast with {facts.half} as it is."
        return Claim(
            "answer", text, "by CUDA's rules it raises an error, which it does not without them.", "computed"
        )
    speed, saved = _speed(facts), _saved_share(facts)
    scaled = " with a gradient scaler" if facts.dtype is torch.float16 else ""
    if speed is None or speed >= _WORTH_TIMES or saved >= _WORTH_SHARE:
        text = f"On the {facts.gpu}, train in autocast with {facts.half}{scaled}."
    else:
        text = f"On the {facts.gpu}, autocast with {facts.half} has little to give this model at this batch."
    sheet = (
        []
        if speed
        else [f"the {facts.gpu} has tensor cores for {facts.half}; what they give here is not known"]
    )
    return Claim("answer", text, f"{'; '.join([*sheet, *_of_time(facts), *_of_memory(facts)])}.", "computed")


def _speed(facts: Facts) -> float | None:
    """Return how many times as fast the roofline makes a step as without autocast, in TF32 if possible."""
    before = facts.bounds.get("tf32", facts.bounds.get("fp32"))
    after = facts.bounds.get(facts.half)
    return before.ms / after.ms if before and after else None


def _saved_share(facts: Facts) -> float:
    if not {"fp32", facts.memory_in_half} <= facts.memory.keys():
        return 0.0
    return 1 - facts.memory[facts.memory_in_half].peak_bytes / facts.memory["fp32"].peak_bytes


def _of_time(facts: Facts) -> Iterator[str]:
    """Tell both bounds and their ratio, which is none of real steps: those take longer, each in its way."""
    speed = _speed(facts)
    if speed is not None:
        times = [f"{bound.ms:.3g} ms {facts.told(name)}" for name, bound in facts.bounds.items()]
        yield (
            f"with every operation at its roof, a forward and backward pass takes {', '.join(times)}: "
            f"by that autocast is {speed:.2f} times as fast"
        )


def _of_memory(facts: Facts) -> Iterator[str]:
    names = ("fp32", facts.memory_in_half)
    if {*names} <= facts.memory.keys():
        peaks = [f"{memory(facts.memory[name].peak_bytes)} {facts.told(name)}" for name in names]
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
            "slower": f"Here, autocast with {name} costs time; train without it.",
            "no difference": f"Here, no difference in time was found with autocast in {name}.",
        }
        because = (
            f"a forward and backward pass took {facts.timings['fp32']} {facts.told('fp32')} and "
            f"{facts.timings[name]} with autocast in {name}"
        )
        yield Claim("answer", advice[difference.verdict], f"{because}: {difference}.", "measured")
    in_fp16 = facts.subject.plain == "fp16"
    if (
        device == "cpu"
        and not in_fp16
        and facts.here is not torch.float16
        and devices.describe().cpu.fp16 != "native"
    ):
        yield Claim(
            "watch",
            "Here, no step is to be taken in fp16, and none was.",
            f"{devices.SLOW_FP16} What is said of fp16 was computed with products in fp32, rounded.",
            "measured",
        )


def _as_it_came(facts: Facts) -> Iterator[Claim]:
    """Say in what the model that was looked at differs from the one that was given."""
    if facts.subject.was_in_eval:
        yield Claim(
            "watch",
            "Call `model.train()` before you train.",
            "it came in evaluation mode, in which dropout is off and batch norm's statistics stand still; "
            "all that is said here is of training mode.",
            "measured",
        )
    if facts.subject.compiled:
        yield Claim(
            "watch",
            "Time it compiled, with autocast and without.",
            "it was run uncompiled here, operation by operation; a compiler fuses them, and moves less.",
            "measured",
        )


def _refused(facts: Facts) -> Iterator[Claim]:
    if facts.refused is not None:
        text = f"By CUDA's autocast rules the model raises an error. {facts.refused.cure}"
        yield Claim("mend", text, f"{facts.refused.said} {facts.refused.meaning}", "computed")
