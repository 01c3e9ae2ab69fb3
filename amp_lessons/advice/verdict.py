"""The verdict: what follows from the facts, each sentence with what it rests on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from amp_lessons import devices
from amp_lessons._base.text.words import counted, fraction, listed, memory, relative
from amp_lessons.advice.advice import Claim
from amp_lessons.advice.facts import Facts
from amp_lessons.advice.subject import plain_path, trained_numbers
from amp_lessons.autocast import Island
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.fp8.choices import choice_for, fits
from amp_lessons.precisions import HALF_DTYPES

# A gain smaller than this is none: a roofline's promise is the most that can be had: casts take their part.
_WORTH_TIMES, _WORTH_SHARE = 1.2, 0.1


def verdict(facts: Facts) -> Iterator[Claim]:
    """Yield the answer first: whether to use AMP on the GPU, then here; then what to mend and to watch."""
    yield _on_the_gpu(facts)
    yield from _here(facts)
    yield from _as_it_came(facts)
    yield from _refusal(facts)
    yield from claims_of_islands(facts)
    yield from claims_of_weights(facts)
    yield from claims_of_gradients(facts)
    yield from claims_of_steps(facts)
    yield from claims_of_eight_bits(facts)


def _on_the_gpu(facts: Facts) -> Claim:
    """Answer by what roofline and memory promise; what is not known is no promise."""
    if facts.refused is not None:
        text = f"On the {facts.gpu}, this model does not run in autocast with {facts.half} as it is."
        because = "by CUDA's rules it raises an error, which it does not without them."
        return Claim("answer", text, because, "computed")
    speed, saved = _speed(facts), _saved_share(facts)
    scaled = " with a gradient scaler" if facts.dtype is torch.float16 else ""
    if (speed or 0.0) >= _WORTH_TIMES or saved >= _WORTH_SHARE:
        text = f"On the {facts.gpu}, train in autocast with {facts.half}{scaled}."
    elif speed is None:
        text = f"On the {facts.gpu}, whether autocast with {facts.half} pays for this model is not known."
    else:
        text = f"On the {facts.gpu}, autocast with {facts.half} has little to give this model at this batch."
    unknown = f"the {facts.gpu} has tensor cores for {facts.half}; what they give here is not known"
    reasons = [*([] if speed else [unknown]), *_of_time(facts), *_of_memory(facts)]
    return Claim("answer", text, f"{'; '.join(reasons)}.", "computed")


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
    """Report both lower bounds of the time, and their ratio, which is not that of real steps."""
    speed = _speed(facts)
    if speed is not None:
        times = [f"{bound.ms:.3g} ms {facts.told(name)}" for name, bound in facts.bounds.items()]
        before = "tf32" if "tf32" in facts.bounds else "fp32"
        yield (
            f"with every operation at its roof, a forward and backward pass takes {', '.join(times)}: "
            f"by that autocast is {speed:.2f} times as fast as {before}"
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
    others = facts.subject.plain != "fp16" and facts.here is not torch.float16
    if device == "cpu" and others and devices.describe().cpu.fp16 != "native":
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


def _refusal(facts: Facts) -> Iterator[Claim]:
    if facts.refused is not None:
        text = f"By CUDA's autocast rules the model raises an error. {facts.refused.cure}"
        yield Claim("mend", text, f"{facts.refused.said} {facts.refused.meaning}", "computed")


# --- claims about single modules: those that need an island of fp32, and the dtypes of weights

_MOST_NAMED = 8


def claims_of_islands(facts: Facts) -> Iterator[Claim]:
    """Yield a claim for each island in the dtype of the advice, and one for all in the other dtype."""
    for dtype, islands in facts.islands.items():
        name = dtype_name(dtype)
        if dtype is facts.dtype:
            for island in islands.found:
                where = _name(island.module)
                text = f"{where[0].upper()}{where[1:]} needs an island of fp32."
                yield Claim("mend", text, _because(island, name), "measured", island.module)
        elif islands.found:
            text = f"In {name}, {_names(islands.names)} would need an island of fp32."
            yield Claim("watch", text, _because(islands.found[0], name), "measured")
        if islands.beyond:
            text = f"In {name}, fp32 does not help {_names(islands.beyond)}: what goes in is wrong already."
            because = "its error is above tolerance under autocast, and also as an island of fp32."
            yield Claim("mend" if dtype is facts.dtype else "watch", text, because, "measured")
    yield from _no_islands(facts)


def _name(path: str) -> str:
    """Name a module by its path in the learner's model."""
    return {"": "the loss", "model": "the model itself"}.get(path, f"`{plain_path(path)}`")


def _names(paths: Sequence[str]) -> str:
    more = [f"{len(paths) - _MOST_NAMED} more"] if len(paths) > _MOST_NAMED else []
    return listed([*map(_name, paths[:_MOST_NAMED]), *more])


def _off(error: float) -> str:
    return f"{relative(error)} off" if error else "exactly right"


def _because(island: Island, name: str) -> str:
    went = "inf or NaN come out" if island.overflows else f"it is {_off(island.error)}"
    return (
        f"its own operations run by autocast's rules in {name} on what it is given in fp32: {went}; as an "
        f"island it is {_off(island.island_error)}. The largest number that it returns is "
        f"{island.largest:.3g}."
    )


def _no_islands(facts: Facts) -> Iterator[Claim]:
    clean = [dtype for dtype, islands in facts.islands.items() if not (islands.found or islands.beyond)]
    if not clean or not any(facts.islands[dtype].examined for dtype in clean):
        return
    names = " or ".join(map(dtype_name, clean))
    examined = min(facts.islands[dtype].examined for dtype in clean)
    left = max(len(facts.islands[dtype].unexamined) for dtype in clean)
    rest = f"; {left} could not be, or there was no time" if left else ""
    ran = "one module was run by itself" if examined == 1 else f"{examined} modules were run by themselves"
    text = f"On this batch no module{' that was run' if left else ''} needs an island of fp32 in {names}."
    yield Claim("answer", text, f"{ran} by autocast's rules and in fp32{rest}.", "measured")


def claims_of_weights(facts: Facts) -> Iterator[Claim]:
    """Say what the weights' own dtypes mean to autocast; those that are frozen lose nothing to rounding."""
    trained = trained_numbers(facts.subject.model)
    for dtype, count in trained.items():
        because = f"{count:,} of the {trained.total():,} numbers that are trained are {dtype_name(dtype)}"
        if dtype in HALF_DTYPES:
            text = "Load the weights in fp32; autocast makes the 16-bit copies."
            because += ": nothing keeps them in fp32, and their updates are rounded."
            yield Claim("mend", text, because, "measured")
        elif dtype is torch.float64:
            text = "Make the model fp32 first, with `model.float()`, and what goes in too."
            yield Claim("mend", text, f"{because}, which autocast leaves alone.", "measured")
        elif dtype.is_complex:
            text = "Expect nothing of autocast for complex numbers."
            yield Claim("watch", text, f"{because}, which it leaves alone.", "measured")


# --- claims that rest on the steps that were audited: on their gradients, their loss, and their mistakes

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
    """Yield a claim for every mistake that the audit found, or one that it found none."""
    report = facts.audit
    if report is None or facts.audited_in is None:
        return
    name = dtype_name(facts.audited_in)
    for finding in report.findings:
        text = f"{finding.message[0].upper()}{finding.message[1:]}."
        hint = f"; {finding.hint}" if finding.hint else ""
        because = f"seen by the audit of {len(report.steps)} steps in {name}{hint}."
        yield Claim("watch" if finding.ok else "mend", text, because, "measured")
    lost = [step.lost_updates for step in report.steps if step.lost_updates]
    rest = f" Of the updates at most {fraction(max(lost))} were lost." if lost else ""
    if bad := next((step for step in report.steps if not math.isfinite(step.loss or 0.0)), None):
        text = f"The loss became {bad.loss} in step {bad.index + 1} in {name}."
        because = f"without autocast its first loss was finite; {_losses(facts)}"
        yield Claim("mend", text, because, "measured")
    elif report.passed and report.steps:
        count = "One step" if len(report.steps) == 1 else f"{len(report.steps)} steps"
        text = f"{count} of training in {name} showed no mistake."
        yield Claim("answer", text, _losses(facts) + rest, "measured")


def _losses(facts: Facts) -> str:
    assert facts.audit is not None
    losses = [step.loss for step in facts.audit.steps if step.loss is not None]
    skipped = sum(not step.happened for step in facts.audit.steps)
    went = f"the loss went from {losses[0]:.4g} to {losses[-1]:.4g}" if losses else "no loss was seen"
    if len(losses) == 1:  # from which it went nowhere
        went = f"the loss was {losses[0]:.4g}"
    return f"{went}; {skipped} of {len(facts.audit.steps)} steps were skipped."


# --- a claim of what a recipe in 8 bits would save of this model's own products, on the GPU of the advice

_FP8 = "fp8_e4m3"


def claims_of_eight_bits(facts: Facts) -> Iterator[Claim]:
    """Say which recipe the GPU and its libraries offer, and how much of a step it could save at most."""
    choice, bound, ledger = choice_for(facts.gpu), facts.bounds.get(facts.half), facts.ledger
    if choice is None or bound is None or ledger is None or _FP8 not in facts.sheet.flop_per_s:
        return
    layers = {
        f"model.{name}" if name else "model": module
        for name, module in facts.subject.model.named_modules()
        if isinstance(module, nn.Linear) and fits(module.in_features, module.out_features)
    }
    # each product of the backward pass is as large as the layer's own; the first layer has one, not two
    backward = Counter(row.module for row in ledger.backward if row.op == "aten::mm")
    flop = sum(
        (1 + backward[row.module]) * 2 * math.prod(row.output_shape) * layers[row.module].in_features
        for row in ledger.forward
        if row.module in layers and row.op == "aten::linear"
    )
    total = sum(bound.product_flops.values())
    share = min(1.0, flop / total) if total else 0.0
    times = facts.sheet.flop_per_s[_FP8] / facts.sheet.flop_per_s[facts.half]
    after = bound.ms - share * bound.product_ms * (1 - 1 / times)
    which = f"{counted(len(layers), 'linear layer')} of a size that torchao's filter takes"
    because = (
        f"{which}: {fraction(share)} of the FLOP of all products, which bound "
        f"{fraction(bound.product_ms / bound.ms)} of the least time of a step in {facts.half}; at the rate "
        f"of FP8 it is {bound.ms / after:.2f} times as fast at most, casts not counted"
    )
    if bound.ms / after < _WORTH_TIMES:
        text = f"FP8 has little to give this model on the {facts.gpu} at this batch."
        yield Claim("watch", text, f"{because}.", "computed")
    else:
        text = f"Once it trains in {facts.half}, try FP8 on the {facts.gpu}: {choice.words}."
        more = f"{because}; the recipes were read in torchao 0.18 and Transformer Engine 2.20, lesson 09."
        yield Claim("watch", text, more, "computed")
