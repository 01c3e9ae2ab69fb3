"""Rules on dtypes: where autocast starts and stops, and what goes backward."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from amp_lessons._base.text.words import counted, listed
from amp_lessons.audit import catalogue
from amp_lessons.audit.judging.rule import Memory, Verdict, likely, on, seen
from amp_lessons.audit.recorder import events
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.precisions import HALVES

_HALVES = frozenset(HALVES.values())
_CONVERTED = "parameters that the optimizer steps were converted to, or made in,"
_MOST_NAMED = 3
_MANY = 0.25  # of the weights, standing still


@on(events.Backward)
def backward_in_autocast(event: events.Backward, memory: Memory) -> Iterator[Verdict]:
    """Report a backward pass that ran inside autocast."""
    if event.autocast is not None:
        yield seen(catalogue.precision.backward_in_autocast(dtype_name(event.autocast)), event.autocast_at)


@on(events.ProductsInStep)
def step_in_autocast(event: events.ProductsInStep, memory: Memory) -> Iterator[Verdict]:
    """Report an optimizer's own products that autocast cast."""
    yield seen(catalogue.precision.step_in_autocast(dtype_name(event.dtype)))


@on(events.StaleForward)
def stale_weights(event: events.StaleForward, memory: Memory) -> Iterator[Verdict]:
    """Report a layer that computed with weights from before a step."""
    yield seen(catalogue.precision.one_big_autocast())


@on(events.LossScaled)
def scaled_loss_in_half(event: events.LossScaled, memory: Memory) -> Iterator[Verdict]:
    """Report a loss in 16 bits that is about to be scaled."""
    if event.dtype is None:
        yield seen(catalogue.steps.scale_needs_a_tensor())
    elif event.enabled and event.elements == 1:
        yield from _in_half(event, event.dtype)


@on(events.Backward)
def loss_in_half(event: events.Backward, memory: Memory) -> Iterator[Verdict]:
    """Report a loss in 16 bits that goes backward unscaled."""
    if event.scaler is None and event.forward:
        yield from _in_half(event, event.dtype)


def _in_half(event: events.LossScaled | events.Backward, dtype: torch.dtype) -> Iterator[Verdict]:
    if dtype not in _HALVES:
        return
    name = dtype_name(dtype)
    by_hand = event.made_by[:1] == ("ToCopyBackward0",)
    if by_hand or not event.outside:
        line = event.cast_at if by_hand else event.made_at
        yield seen(catalogue.steps.loss_in_half(name, by_hand=by_hand), line)
    else:
        yield seen(catalogue.steps.loss_outside_autocast(name), event.made_at)


@on(events.Backward)
def part_outside_autocast(event: events.Backward, memory: Memory) -> Iterator[Verdict]:
    """Report a part of the loss in 16 bits outside autocast, which a cast of the result does not mend."""
    part = event.part_in_half
    if part is not None:
        what = f"a part of the loss (`{part.operation}`)"
        yield seen(catalogue.steps.loss_outside_autocast(dtype_name(part.dtype), what, part=True), part.line)


@on(events.Backward)
def no_autocast(event: events.Backward, memory: Memory) -> Iterator[Verdict]:
    """Report a scaled loss of trained weights for which nothing was computed in 16 bits."""
    inside = event.inside  # known of steps that are looked at closely
    cast = event.cast or inside is None or inside.compiled or inside.halves or inside.weights
    if event.reached and event.scaler is not None and not event.forward and not cast:
        yield seen(catalogue.precision.no_autocast("the forward pass", dtype_name(torch.float16)))


@on(events.ForwardSeen)
def forward_without_autocast(event: events.ForwardSeen, memory: Memory) -> Iterator[Verdict]:
    """Report layers that all ran without autocast, although the loss was scaled for fp16."""
    if event.without and not event.with_autocast and memory.last_backward_scaled and not memory.by_hand:
        yield seen(catalogue.precision.no_autocast("the forward pass", dtype_name(torch.float16)))
    elif event.without and not event.with_autocast and memory.asked in HALVES and not memory.autocast:
        hint = "give the model to accelerator.prepare, or run it inside with accelerator.autocast():"
        asked = f"{memory.asked}, which Accelerate was asked for"
        yield seen(catalogue.precision.no_autocast("the forward pass", asked, hint))


@on(events.ForwardSeen)
def forward_in_evaluation_mode(event: events.ForwardSeen, memory: Memory) -> Iterator[Verdict]:
    """Suspect a forward pass in evaluation mode that a step followed."""
    if event.evaluating:
        yield likely(
            catalogue.precision.evaluation_mode("while it was trained"),
            f"{event.evaluating} was off in a pass that backward followed",
            event.evaluating_since,
        )


@on(events.Backward)
def fp16_without_scaling(event: events.Backward, memory: Memory) -> Iterator[Verdict]:
    """Suspect a loss that goes backward through fp16 as it is."""
    if event.scaler is not None or torch.float16 not in event.forward:
        return
    if event.scalers_called and memory.enabled_scalers:
        yield seen(catalogue.steps.scaled_loss_discarded("the scale"))
    elif event.factor <= 1.0:
        why = "autocast ran in fp16 since the last step, and no scaler's scale is in this loss's graph"
        yield likely(catalogue.steps.loss_not_scaled("no scaler has seen it"), why)


def unscaled_by_hand(memory: Memory) -> Iterator[tuple[events.Event, Verdict]]:
    """Suspect, at the end, a loss unscaled before fp16 by hand, where most gradients of a layer were 0."""
    if memory.fp16_by_hand is None or memory.any_scaled or not memory.zeros:
        return
    shares = [f"{share:.0%} of those of `{layer}`" for layer, share in memory.zeros.items()]
    effect = f"gradients below 2⁻²⁵ vanish in fp16, and {listed(shares[:_MOST_NAMED])} were exactly 0"
    seen_of = "it was computed in fp16 by hand, outside autocast, and no scaler has seen it"
    why = "fp16 is in this loss's graph, and no scaler's scale"
    hint = "call scaler.scale(loss).backward() and scaler.step(optimizer), or cast to bf16"
    yield memory.fp16_by_hand, likely(catalogue.steps.loss_not_scaled(seen_of, effect, hint=hint), why)


@on(events.StepAsked)
def weights_in_fp16(event: events.StepAsked, memory: Memory) -> Iterator[Verdict]:
    """Report an optimizer that steps weights in fp16."""
    if event.half == torch.float16:
        which = "parameters that the optimizer steps are in" if event.cast_at is None else _CONVERTED
        yield seen(catalogue.precision.half_parameters(which, bool(memory.enabled_scalers)), event.cast_at)


@on(events.WeightsInHalf)
def weights_in_bfloat16(event: events.WeightsInHalf, memory: Memory) -> Iterator[Verdict]:
    """Remark on an optimizer that steps weights in bf16, which may be meant so."""
    if event.dtype == torch.bfloat16:
        moments = f", and so are its moments ({listed(event.moments)})" if event.moments else ""
        seen_of = f"the weights that the optimizer steps are bf16{moments}"
        yield seen(
            catalogue.precision.pure_bfloat16(
                f"{seen_of}, {event.origin}" if event.origin else seen_of, event.under_autocast
            ),
            event.since,
        )


@on(events.UpdatesLost)
def weights_stand_still(event: events.UpdatesLost, memory: Memory) -> Iterator[Verdict]:
    """Report weights in 16 bits of which a step left many as they were, or half of some layers twice."""
    half, again = dtype_name(event.dtype), [layer for layer in event.still if layer in memory.still]
    if event.share > _MANY:
        told = f"a step left {event.share:.0%} of the weights in {half} that have a gradient as they were"
        yield seen(catalogue.precision.updates_rounded_away(told, half), event.since)
    elif again:
        told = (
            f"half or more of the weights of {len(again)} of {event.layers} layers in {half} stayed the same"
        )
        twice = f"{told}, at two steps in a row that were looked at, `{again[0]}` among them"
        yield seen(catalogue.precision.updates_rounded_away(twice, half), event.since)


@on(events.Backward)
def summed_in_half(event: events.Backward, memory: Memory) -> Iterator[Verdict]:
    """Remark on gradients of several backward passes that are added up in 16 bits."""
    if event.summed is not None:
        half = dtype_name(event.summed)
        seen_of = f"gradients of several backward passes are added up in {half}, the dtype of the weights"
        yield seen(catalogue.precision.gradients_summed_in_half(seen_of, half))


@on(events.SummedInHalf)
def sent_in_half(event: events.SummedInHalf, memory: Memory) -> Iterator[Verdict]:
    """Remark on gradients that ranks send to each other in 16 bits."""
    half = "bf16" if "bf16" in event.hook else "fp16"
    seen_of = f"{event.hook} has DDP send gradients in {half}, in which the ranks add them up"
    yield seen(catalogue.precision.gradients_summed_in_half(seen_of, half))


def decay_never_acts(memory: Memory) -> Iterator[tuple[events.Event, Verdict]]:
    """Remark, at the end, on weight decay that was too small for 16 bits at every step."""
    for first, largest in memory.decays.values():
        if first.half is not None and 0.0 < largest < torch.finfo(first.half).eps / 4:
            finding = catalogue.precision.decay_rounded_away(largest, dtype_name(first.half))
            yield first, seen(finding, first.cast_at)


@on(events.Underflow)
def scale_too_small(event: events.Underflow, memory: Memory) -> Iterator[Verdict]:
    """Suspect a scale that was never lowered and is far too small."""
    if memory.steps_skipped or not memory.last_backward_scaled:
        return
    why = "multiplied by it, the largest of all gradients has four significant bits in fp16 at most"
    if event.scale == 1.0:
        yield likely(catalogue.steps.loss_not_scaled("the scaler's scale is 1"), why)
    else:
        yield likely(catalogue.steps.scale_too_small(event.scale, "small gradients vanish in fp16"), why)


@on(events.WeightsBroken)
def weights_broken(event: events.WeightsBroken, memory: Memory) -> Iterator[Verdict]:
    """Report weights that a step has left inf or NaN."""
    first, *others = event.layers
    which = f"`{first}`" + (f" and {counted(len(others), 'other layer')}" if others else "")
    more: dict[str, str] = {}
    if event.in_backward:
        more["gradients"] = "were inf or NaN, although its loss was finite: they came up in its backward pass"
        more["hint"] = (
            "look for what has no finite gradient at this batch: a root, a norm, a division or a logarithm "
            "at 0, which wants an eps inside or a clamp; go on from a checkpoint before it"
        )
    yield seen(catalogue.precision.weights_broken(which, f"step {event.step + 1}", **more))


@on(events.GradientsZero)
def gradients_all_zero(event: events.GradientsZero, memory: Memory) -> Iterator[Verdict]:
    """Report gradients of which not one was other than 0."""
    in_fp16 = event.used == torch.float16
    yield seen(catalogue.precision.gradients_all_zero(event.scale if in_fp16 else None))


@on(events.Backward)
def scaler_for_bfloat16(event: events.Backward, memory: Memory) -> Iterator[Verdict]:
    """Remark on a scaler where only bf16 is used."""
    if event.scaler is not None and event.forward == {torch.bfloat16}:
        yield seen(catalogue.scaler.scaler_with_bfloat16())


@on(events.ScalerMade)
def scaler_for_another_device(event: events.ScalerMade, memory: Memory) -> Iterator[Verdict]:
    """Remark on a scaler that switched itself off."""
    if event.disabled_for:
        yield seen(catalogue.scaler.device_not_here("the gradient scaler", event.disabled_for))


@on(events.AutocastEntered)
def autocast_for_another_device(event: events.AutocastEntered, memory: Memory) -> Iterator[Verdict]:
    """Remark on an autocast context that switched itself off."""
    if event.disabled_for:
        yield seen(catalogue.scaler.device_not_here("autocast", event.disabled_for))


@on(events.OldSpelling)
def old_spelling(event: events.OldSpelling, memory: Memory) -> Iterator[Verdict]:
    """Remark on a deprecated name."""
    yield seen(catalogue.scaler.deprecated_api(event.name))


@on(events.ShardsInHalf)
def masters_in_half(event: events.ShardsInHalf, memory: Memory) -> Iterator[Verdict]:
    """Suspect shards in 16 bits: they are the only copy of the weights that an optimizer steps."""
    why = (
        f"`{event.layer}` has some; an optimizer that keeps fp32 copies, or rounds at random, needs no other"
    )
    yield likely(catalogue.ranks.masters_not_fp32(str(event.dtype)), why)
