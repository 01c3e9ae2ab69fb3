"""Mistakes with dtypes: what autocast covers, and what is in 16 bits itself, or is cast by hand."""

from __future__ import annotations

from amp_lessons import formats
from amp_lessons._base.text.words import listed
from amp_lessons.audit.recorder import events
from amp_lessons.audit.rules.past import Past
from amp_lessons.audit.rules.rows import Worded, mistake, remark
from amp_lessons.audit.rules.rule import HALVES, AtTheEnd, Rule, Verdicts, dtype_name, likely, on, seen

_MANY = 0.25  # of the weights, standing still


@mistake("every gradient was exactly 0", lesson="03", only_audit=True, costs="stops", section="fails")
def gradients_all_zero(scale: float | None = None) -> Worded:
    """Report gradients that are all 0, computed in fp16 at the loss ``scale``, None in another format."""
    seen = "every gradient was exactly 0 at two steps in a row that were looked at: no weight can learn"
    if scale is None or scale >= 2.0**16:  # a scaler's first one: what needs a larger one is cut off
        return seen, "look for what cuts the loss off from the weights: a mask, say, or a factor of 0"
    return (
        f"{seen}; in fp16, at the loss scale {scale:g}, smaller gradients than 2⁻²⁵ become 0 on their way",
        "leave the scaler's init_scale at its default, 65536; where the gradients stay 0, look for what cuts "
        "the loss off from the weights",
    )


@on(events.GradientsZero)
def _(event: events.GradientsZero, past: Past) -> Verdicts:
    yield seen(gradients_all_zero(event.scale if dtype_name(event.used) == "fp16" else None))


@mistake("a forward pass ran outside autocast", lesson="02", costs="gain", section="cache")
def no_autocast(
    forward: str,
    asked: str,
    hint: str = "run every forward pass and its loss inside with torch.autocast(device_type, dtype=dtype):",
) -> Worded:
    """Report that ``forward`` (of whom) ran in fp32 although ``asked`` was asked for."""
    return f"{forward} ran in fp32, outside autocast: it gains nothing from {asked}", hint


@on(events.Backward)
def _(event: events.Backward, past: Past) -> Verdicts:
    inside = event.inside  # known of steps that are looked at closely
    cast = event.cast or inside is None or inside.compiled or inside.halves or inside.weights
    if event.reached and event.scaler is not None and not event.forward and not cast:
        yield seen(no_autocast("the forward pass", "fp16"))


@on(events.ForwardSeen)
def _(event: events.ForwardSeen, past: Past) -> Verdicts:
    backward, step = past.last(events.Backward), past.last(events.StepAsked)
    if event.with_autocast or not event.without:
        return
    if backward is not None and backward.scaler is not None and not past.precision.by_hand:
        yield seen(no_autocast("the forward pass", "fp16"), backward.line)
    elif step is not None and step.asked in HALVES and not past.precision.autocast:
        hint = "give the model to accelerator.prepare, or run it inside with accelerator.autocast():"
        asked = f"{step.asked}, which Accelerate was asked for"
        yield seen(no_autocast("the forward pass", asked, hint))


@mistake(
    "autocast ran in another dtype than asked for",
    unseen="an audit gives it by another code",
    section="autocast",
)
def wrong_autocast_dtype(what: str, seen: str, asked: object) -> Worded:
    return (
        f"{what} ran in {seen} although dtype={asked} was asked for",
        "pass the argument on: torch.autocast(device_type, dtype=dtype)",
    )


@remark(
    "the inputs were cast to 16 bits by hand, which autocast does where it should",
    unseen="a batch may come in 16 bits",
)
def inputs_cast(whose: str) -> Worded:
    """Remark on inputs cast to 16 bits by hand; ``whose`` ends in a verb: "the inputs were"."""
    return (
        f"{whose} cast to 16 bits by hand: autocast casts what an operation needs, and leaves the others the "
        "digits and the range of fp32, which a cast by hand takes from all",
        "pass them on as they are",
    )


@mistake(
    "one autocast context, and its cache of weights, outlived an optimizer step", lesson="02", section="cache"
)
def one_big_autocast(anew: str = "in every iteration") -> Worded:
    """Report that autocast's cache of 16-bit weights outlived a step; ``anew`` says when to begin again."""
    return (
        "the forward pass used old weights: autocast's cache of 16-bit weights outlived an optimizer step, "
        "and is emptied only where the outermost autocast context ends",
        f"enter it anew {anew}, with torch.autocast(...):, around forward and loss only",
    )


@on(events.StaleForward)
def _(event: events.StaleForward, past: Past) -> Verdicts:
    yield seen(one_big_autocast())


@mistake("backward ran inside the autocast context", lesson="02", costs="rounded", section="backward")
def backward_in_autocast(half: str) -> Worded:
    return (
        "backward ran inside the autocast context: the backward pass of products kept in fp32 is cast to "
        f"{half} there, and PyTorch advises against it",
        "leave the with block after the loss; backward, step and update belong outside",
    )


@on(events.Backward)
def _(event: events.Backward, past: Past) -> Verdicts:
    if event.autocast is not None:
        yield seen(backward_in_autocast(dtype_name(event.autocast)))


@mistake(
    "the optimizer's step ran inside autocast", lesson="02", only_audit=True, costs="rounded", section="cache"
)
def step_in_autocast(half: str) -> Worded:
    return (
        "optimizer.step() stands inside the autocast context, which cast the optimizer's own products to "
        f"{half}",
        "leave the with block after the loss; backward, step and update belong outside",
    )


@on(events.ProductsInStep)
def _(event: events.ProductsInStep, past: Past) -> Verdicts:
    yield seen(step_in_autocast(dtype_name(event.dtype)))


@mistake("the parameters themselves are in 16 bits", lesson="01", costs="rounded", section="vanish")
def half_parameters(which: str = "the model's parameters were converted to", scaler: bool = True) -> Worded:
    """Report parameters that are in 16 bits themselves; ``which`` ends in a verb, a ``scaler`` may be on."""
    kept_out = ", and the scaler refuses their gradients unless a fused optimizer unscales them"
    return (
        f"{which} a 16-bit dtype: small updates to them are rounded away{kept_out if scaler else ''}",
        "leave the parameters in fp32; autocast casts what an operation needs",
    )


@on(events.StepAsked, last=True)
def _(event: events.StepAsked, past: Past) -> Verdicts:
    if dtype_name(event.half) == "fp16":
        are = "are in" if event.cast_at is None else "were converted to, or made in,"
        finding = half_parameters(f"parameters that the optimizer steps {are}", past.precision.scaled)
        yield seen(finding, event.cast_at)


@remark(
    "the weights themselves are bf16, and so are the optimizer's moments",
    lesson="07",
    only_audit=True,
    costs="rounded",
    section="load",
)
def pure_bfloat16(seen: str, under_autocast: bool) -> Worded:
    """Remark on weights in bf16; ``seen`` says which, and since when they are so."""
    flag = ", whatever autocast or a flag such as bf16=True promises" if under_autocast else ""
    return (
        f"{seen}: that is pure bf16, not mixed precision{flag}; a step below 1/512 of a weight is always "
        "rounded away",
        "for fp32 masters load with dtype=torch.float32 and cast nothing; pure bf16, which takes half the "
        "memory, wants rounding at random, or a look at the share of lost updates",
    )


@on(events.WeightsInHalf)
def _(event: events.WeightsInHalf, past: Past) -> Verdicts:
    if dtype_name(event.dtype) == "bf16":
        moments = f", and so are its moments ({listed(event.moments)})" if event.moments else ""
        since = f", {event.origin}" if event.origin else ""
        which = f"the weights that the optimizer steps are bf16{moments}{since}"
        yield seen(pure_bfloat16(which, event.under_autocast), event.since)


@mistake(
    "updates are below half a spacing of the weights' format", lesson="01", costs="rounded", section="vanish"
)
def updates_rounded_away(seen: str, half: str) -> Worded:
    return (
        f"{seen}: an update below half the distance to the next {half} number is rounded away, and so is the "
        "next, however many there are",
        "keep the weights themselves, or what rounding cuts off them, in fp32; only the forward and backward "
        f"pass need be in {half}",
    )


@on(events.UpdatesLost)
def _(event: events.UpdatesLost, past: Past) -> Verdicts:
    half, before = dtype_name(event.dtype), past.last(events.UpdatesLost)
    again = [layer for layer in event.still if before is not None and layer in before.still]
    if event.share > _MANY:
        told = f"a step left {event.share:.0%} of the weights in {half} that have a gradient as they were"
        yield seen(updates_rounded_away(told, half), event.since)
    elif again:
        told = (
            f"half or more of the weights of {len(again)} of {event.layers} layers in {half} stayed the same"
        )
        twice = f"{told}, at two steps in a row that were looked at, `{again[0]}` among them"
        yield seen(updates_rounded_away(twice, half), event.since)


@remark("weight decay in 16 bits never acts", lesson="01", only_audit=True, costs="rounded", section="vanish")
def decay_rounded_away(part: float, half: str) -> Worded:
    return (
        f"weight decay takes {part:.1g} of each weight in a step, at most, which is less than half the "
        f"distance to the next {half} number: it is rounded away from every weight, and has never acted",
        f"keep the weights in fp32, where it acts; only the forward and backward pass need be in {half}",
    )


class _Decays(Rule):
    def __init__(self) -> None:
        self.of: dict[int, tuple[events.StepAsked, float]] = {}  # an optimizer's first step, the largest part

    @on(events.StepAsked)
    def asked(self, event: events.StepAsked, past: Past) -> None:
        if event.decay is not None:
            first, largest = self.of.get(event.optimizer, (event, 0.0))
            self.of[event.optimizer] = first, max(largest, event.decay)

    @on(AtTheEnd)
    def never_acted(self, past: Past) -> Verdicts:
        for first, largest in self.of.values():
            half = dtype_name(first.half)
            if half and 0.0 < largest < formats.FORMATS[half].epsilon / 4:
                yield seen(decay_rounded_away(largest, half), first.cast_at, about=first)


@remark("gradients are added up in 16 bits", lesson="01", only_audit=True, costs="rounded", section="vanish")
def gradients_summed_in_half(seen: str, half: str) -> Worded:
    """Remark on gradients added up in ``half`` precision; ``seen`` says of what and where."""
    return (
        f"{seen}: each sum loses what is less than half the distance to the next {half} number, and more the "
        "more terms there are",
        "keep the weights, whose dtype gradients have, in fp32; between ranks add up in fp32",
    )


@on(events.Backward)
def _(event: events.Backward, past: Past) -> Verdicts:
    if event.summed is not None:
        half = dtype_name(event.summed)
        what = f"gradients of several backward passes are added up in {half}, the dtype of the weights"
        yield seen(gradients_summed_in_half(what, half))


@on(events.SummedInHalf)
def _(event: events.SummedInHalf, past: Past) -> Verdicts:
    half = "bf16" if "bf16" in event.hook else "fp16"
    what = f"{event.hook} has DDP send gradients in {half}, in which the ranks add them up"
    yield seen(gradients_summed_in_half(what, half))


@mistake(
    "matrix products ran in another dtype than asked for",
    unseen="in which dtype products were to run is not known",
    section="autocast",
)
def products_in_another_dtype(what: str, seen: str | None, asked: str) -> Worded:
    """Report that ``what`` (whose, in the plural) ran in ``seen``; None stands for none that ran at all."""
    ran = f"ran in {seen}" if seen else "did not run at all"
    why = ": their speed and memory are what 16 bits are for" if seen in ("fp32", "fp64") else ""
    return (
        f"{what} {ran}, and {asked} was asked for{why}",
        f"keep the products in {asked}, and take only what loses digits to fp32",
    )


@mistake("NaN went in and an ordinary number came out", unseen="whatever goes in and out is data")
def nan_hidden(what: str) -> Worded:
    return (
        f"NaN went in, and {what} came out as an ordinary number: whatever is broken before this point will "
        "never be noticed",
        "mend the operation that makes NaN out of good numbers, and let any other NaN through; "
        "leave out nan_to_num and its like",
    )


@mistake("parameters were left without requires_grad", unseen="an audit gives it by another code")
def parameters_frozen(when: str, which: str, hint: str) -> Worded:
    return (
        f"{when}, {which} had requires_grad=False: as long as they have, training does not change them, and "
        "where nothing else needs a gradient backward raises",
        hint,
    )


@mistake("the model was in evaluation mode", section="validation")
def evaluation_mode(when: str) -> Worded:
    return (
        f"{when} the model was in evaluation mode, in which dropout is off and batch norm's statistics "
        "stand still",
        "leave the model in training mode (model.train()); model.eval() is for inference",
    )


@on(events.ForwardSeen)
def _(event: events.ForwardSeen, past: Past) -> Verdicts:
    if event.evaluating:
        why = f"{event.evaluating} was off in a pass that backward followed"
        yield likely(evaluation_mode("while it was trained"), why, event.evaluating_since)
