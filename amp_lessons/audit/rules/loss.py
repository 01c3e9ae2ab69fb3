"""Mistakes with the loss: in which dtype it is, by what it is multiplied, and what goes backward."""

from __future__ import annotations

from amp_lessons._base.text.words import listed
from amp_lessons.audit.recorder import events
from amp_lessons.audit.rules.past import Past
from amp_lessons.audit.rules.rows import Worded, mistake
from amp_lessons.audit.rules.rule import HALVES, AtTheEnd, Rule, Verdicts, dtype_name, likely, on, seen

_MOST_NAMED = 3


@mistake("backward had no graph to go through", costs="stops")
def no_graph() -> Worded:
    return (
        "backward had nothing to go through: the loss was computed under no_grad, or detached with "
        ".detach() or .item()",
        "call backward on the tensor that the loss function returned, computed with gradients enabled",
    )


@mistake("backward went through one loss twice")
def backward_twice() -> Worded:
    return (
        "backward was called twice through the same loss: its gradients count twice, if they are not cleared",
        "one scaler.scale(loss).backward() per batch",
    )


@on(events.Backward)
def _(event: events.Backward, past: Past) -> Verdicts:
    if event.again:
        yield seen(backward_twice())


@mistake("a backward pass went through the graph of another", costs="stops")
def graph_used_twice() -> Worded:
    return (
        "the second backward went through the graph of the first: this loss is another, and something in it "
        "was computed before, and had gone backward already",
        "detach what is carried over from one batch to the next; of two losses that share a forward pass, "
        "add them up and go backward once",
    )


@mistake(
    "the loss was computed outside autocast, and so in 16 bits", lesson="02", costs="rounded", section="loss"
)
def loss_outside_autocast(half: str, loss: str = "the loss", part: bool = False) -> Worded:
    """Report ``loss`` (whose, or a ``part`` of it) computed on outputs in ``half`` where autocast was off."""
    whole = "the scale 65536 overflows at the very start of backward"
    return (
        f"{loss} was computed outside autocast on {half} outputs, so it is itself {half}: it loses "
        f"digits, and in fp16 {'scaled gradients overflow there sooner' if part else whole}",
        "compute the loss inside the autocast context, which returns losses in fp32, or on outputs.float()",
    )


@mistake("the loss was cast to 16 bits before backward", lesson="03", costs="rounded", section="half")
def loss_in_half(half: str, loss: str = "the loss", by_hand: bool = True) -> Worded:
    """Report ``loss`` (whose) in ``half`` precision: cast ``by_hand``, or computed so inside autocast."""
    how, cure = f"was cast to {half} before backward", ", or as it comes out of the autocast context"
    if not by_hand:
        how = f"was computed in {half}, by operations that autocast leaves in 16 bits on this device"
        cure = ""
    too_large = ", and fp16 ends at 65504: a loss scale of 65536 becomes inf" if half == "fp16" else ""
    return (
        f"{loss} {how}: it loses digits{too_large}",
        f"keep the loss in fp32: compute it from outputs.float(){cure}",
    )


@on(events.LossScaled)
def _(event: events.LossScaled, past: Past) -> Verdicts:
    if event.enabled and event.elements == 1:
        yield from _in_half(event, dtype_name(event.dtype))


@on(events.Backward)
def _(event: events.Backward, past: Past) -> Verdicts:
    if event.scaler is None and event.forward:
        yield from _in_half(event, dtype_name(event.dtype))


def _in_half(event: events.LossScaled | events.Backward, half: str) -> Verdicts:
    by_hand = event.made_by[:1] == ("ToCopyBackward0",)
    if half in HALVES and (by_hand or not event.outside):
        yield seen(loss_in_half(half, by_hand=by_hand), event.cast_at if by_hand else event.made_at)
    elif half in HALVES:
        yield seen(loss_outside_autocast(half), event.made_at)


@on(events.Backward)
def _(event: events.Backward, past: Past) -> Verdicts:
    part = event.part_in_half  # which a cast of the result does not mend
    if part is not None:
        what = f"a part of the loss (`{part.operation}`)"
        yield seen(loss_outside_autocast(dtype_name(part.dtype), what, part=True), part.line)


@mistake("the loss was multiplied by a factor of its own", unseen="a loss may have any weight")
def loss_rescaled(update: str, factor: float, how: str, hint: str) -> Worded:
    return (f"{update} is {factor:.4g} times the right one: {how}", hint)


@mistake("scaler.scale was given something that is not a tensor", costs="stops")
def scale_needs_a_tensor() -> Worded:
    return (
        "scaler.scale() was given something that is not a tensor (a float from loss.item(), or what "
        "backward() returns)",
        "write scaler.scale(loss).backward(), with loss the tensor that the loss function returned",
    )


@on(events.LossScaled)
def _(event: events.LossScaled, past: Past) -> Verdicts:
    if event.dtype is None:
        yield seen(scale_needs_a_tensor())


@mistake("the loss went backward without being scaled", lesson="03", costs="rounded", section="fails")
def loss_not_scaled(
    why: str,
    effect: str = "gradients below 2⁻²⁵ vanish in fp16",
    loss: str = "the loss",
    hint: str = "call scaler.scale(loss).backward()",
) -> Worded:
    return (f"{loss} was not scaled before backward ({why}): {effect}", hint)


class _UnscaledByHand(Rule):
    """A loss unscaled before fp16 by hand, where most gradients of a layer were 0."""

    def __init__(self) -> None:
        self.first: events.Backward | None = None  # of such a loss
        self.any_scaled = False
        self.zeros: dict[str, float] = {}  # the largest share of a layer's gradients

    @on(events.Backward)
    def backward(self, event: events.Backward, past: Past) -> None:
        alone = event.scaler is None and event.factor < events.LARGE_NUMBER
        if self.first is None and alone and "fp16" in map(dtype_name, event.by_hand):
            self.first = event

    @on(events.LossScaled)
    def scale(self, event: events.LossScaled, past: Past) -> None:
        self.any_scaled = self.any_scaled or event.enabled

    @on(events.Zeros)
    def vanished(self, event: events.Zeros, past: Past) -> None:
        self.zeros |= {each: max(share, self.zeros.get(each, 0)) for each, share in event.shares.items()}

    @on(AtTheEnd)
    def never_scaled(self, past: Past) -> Verdicts:
        if self.first is None or self.any_scaled or not self.zeros:
            return
        shares = [f"{share:.0%} of those of `{layer}`" for layer, share in self.zeros.items()]
        effect = f"gradients below 2⁻²⁵ vanish in fp16, and {listed(shares[:_MOST_NAMED])} were exactly 0"
        why = "it was computed in fp16 by hand, outside autocast, and no scaler has seen it"
        hint = "call scaler.scale(loss).backward() and scaler.step(optimizer), or cast to bf16"
        signs = "fp16 is in this loss's graph, and no scaler's scale"
        yield likely(loss_not_scaled(why, effect, hint=hint), signs, about=self.first)


@mistake("the loss was scaled without the scaler's knowing", section="scaler")
def scaled_by_hand(factor: float) -> Worded:
    return (
        f"the loss was multiplied by {factor:g} by hand: scaler.scale was never called, so the scaler "
        "does not know by what to divide the gradients",
        "call scaler.scale(loss).backward()",
    )


@mistake("the loss was scaled, and the unscaled one went backward", section="scaler")
def scaled_loss_discarded(by: str) -> Worded:
    return (
        "scaler.scale(loss) was called but backward ran on the unscaled loss, so scaler.step divides "
        f"gradients by {by} that were never multiplied by it",
        "use what scale returns: scaler.scale(loss).backward()",
    )


class _Unscaled(Rule):
    """A loss in fp16 went backward unscaled: in the place of what a scaler returned, or of none."""

    def __init__(self) -> None:
        self.waiting = False  # a scaled loss has not gone backward

    @on(events.LossScaled)
    def scale(self, event: events.LossScaled, past: Past) -> None:
        has_graph = bool(event.made_by) or event.elements != 1  # the scale times 1 is no loss
        self.waiting = self.waiting or (event.enabled and has_graph)

    @on(events.Backward)
    def backward(self, event: events.Backward, past: Past) -> Verdicts:
        if event.scaler is not None:
            self.waiting = False
        elif event.in_fp16 and event.scalers_called and past.precision.scaled and self.waiting:
            yield seen(scaled_loss_discarded("the scale"))
        elif event.in_fp16 and event.factor <= 1.0 and not event.in_fp32:
            why = "autocast ran in fp16 since the last step, and no scaler's scale is in this loss's graph"
            yield likely(loss_not_scaled("no scaler has seen it"), why)


@mistake("the loss scale is too small for small gradients to survive", costs="rounded", section="race")
def scale_too_small(scale: float, effect: str) -> Worded:
    return (
        f"the loss scale {scale:g} is too small: {effect}",
        "leave init_scale at its default, 65536; the scaler lowers it by itself",
    )


@on(events.Underflow)
def _(event: events.Underflow, past: Past) -> Verdicts:
    backward = past.last(events.Backward)
    if past.steps.asked[None] > past.steps.made[None] or backward is None or backward.scaler is None:
        return
    finding = scale_too_small(event.scale, "small gradients vanish in fp16")
    if event.scale == 1.0:
        finding = loss_not_scaled("the scaler's scale is 1")
    why = "multiplied by it, the largest of all gradients has four significant bits in fp16 at most"
    yield likely(finding, why, backward.line)


@mistake("the model's outputs were scaled instead of the loss")
def outputs_scaled() -> Worded:
    return (
        "scaler.scale was called on a tensor of many numbers (the model's outputs, say), not on the "
        "loss: a loss of scaled outputs is another function, and its gradients are not the scaled ones",
        "compute the loss first, then call scaler.scale(loss).backward()",
    )


@on(events.LossScaled)
def _(event: events.LossScaled, past: Past) -> Verdicts:
    if event.elements > 1 and event.enabled:
        yield seen(outputs_scaled())
