"""Rules on the scaler: what it learned, what it was told, and what it refused."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain, groupby, pairwise

import torch

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding
from amp_lessons.audit.judging.rule import Memory, Verdict, is_broken, likely, on, seen
from amp_lessons.audit.recorder import events
from amp_lessons.audit.seen import StepSeen

_LOW = 16.0  # a first scale: 1/4096 of the default
_TOO_MANY = 20  # skipped steps in a row: from 65536 down to 1/16
_MANY_BETWEEN = 6  # skipped steps between others: gradients that differ by a factor of 64
_LONG = 20  # steps: in fewer, single batches that overflow are many
_LEAST_SCALE = 1.0
_PATIENT = 3  # skipped steps in a row, after which a loop may give up with good reason
_TOO_MANY_BROKEN = 8  # skipped steps in a row whose loss was inf or NaN, which no scale has done


@on(events.StepDone)
def made_anew(event: events.StepDone, memory: Memory) -> Iterator[Verdict]:
    """Report an optimizer that another scaler stepped before, whose state was not handed on."""
    before = memory.scaler_of.get(event.optimizer)
    another = event.scaler is not None and before not in (None, event.scaler)
    if another and event.scaler not in memory.loaded_scalers:
        made = memory.scalers_made.get(event.scaler or 0)
        yield seen(catalogue.scaler.scaler_recreated(), made.line if made is not None else None)


def begins_low(memory: Memory) -> Iterator[tuple[events.Event, Verdict]]:
    """Remark, at the end, on scalers for fp16 that were made with a small scale."""
    for made in memory.scalers_made.values():
        small = made.scale is not None and made.scale <= _LOW
        if small and torch.float16 in memory.autocast and made.scaler in memory.scaler_of.values():
            yield made, seen(catalogue.scaler.scale_begins_low(made.scale or 1.0))


@on(events.StepDone)
def always_overflows(event: events.StepDone, memory: Memory) -> Iterator[Verdict]:
    """Report many steps skipped in a row, or some whose loss was no number: no scale would help."""
    if event.happened:
        return
    broken = memory.broken_in_a_row[event.optimizer] + 1 if is_broken(event) else 0
    if broken == _TOO_MANY_BROKEN:
        yield seen(catalogue.scaler.always_overflows(_TOO_MANY_BROKEN, event.loss), event.broken_at)
    elif broken < _TOO_MANY_BROKEN and memory.skipped_in_a_row[event.optimizer] + 1 == _TOO_MANY:
        # where the loss is finite, what the forward pass has made of inf was of no consequence
        line = event.broken_at if event.loss is None else None
        yield seen(catalogue.scaler.always_overflows(_TOO_MANY), line)


def skips_again_and_again(memory: Memory) -> Iterator[tuple[events.Event, Verdict]]:
    """See, at the end, steps skipped between others that were made, not for a scale that is looked for."""
    by_optimizer: dict[int, list[StepSeen]] = {}
    for step in memory.steps():
        by_optimizer.setdefault(step.optimizer, []).append(step)
    for steps in by_optimizer.values():
        skipped = [step for step in steps if not step.happened]
        if not _is_no_search(steps) or skipped[-1].index not in memory.skipped:
            continue
        broken = sum(step.loss is not None and not math.isfinite(step.loss) for step in skipped)
        first, last = skipped[0].scale, steps[-1].scale
        event = memory.skipped[skipped[-1].index]
        if len({each.scaler for each in memory.skipped.values() if each.optimizer == event.optimizer}) > 1:
            continue  # each looks for its scale anew, which is another mistake
        often = catalogue.scaler.skipped_too_often
        yield event, seen(often(len(skipped), len(steps), fell=(first, last), broken=broken))
        if last < _LEAST_SCALE < first:
            largest = torch.finfo(torch.float16).max / last if last else math.inf
            yield event, seen(catalogue.scaler.scale_fell(last, largest))


def _is_no_search(steps: Sequence[StepSeen]) -> bool:
    """Whether a scaler has skipped many steps, up to the last ones, that it had not to, to find its scale.

    It has to skip the first ones, and one for each time that it has raised the scale. What is skipped in a
    row is another mistake.
    """
    rows = [(happened, len(list(row))) for happened, row in groupby(steps, lambda step: step.happened)]
    search = 0 if not rows or rows[0][0] else rows[0][1]
    after = steps[search:]
    skipped = [at for at, step in enumerate(after) if not step.happened]
    raised = sum(later.scale > step.scale for step, later in pairwise(after))
    in_the_end = sum(at >= len(after) * 2 / 3 for at in skipped)
    in_a_row = max((length for happened, length in rows[1:] if not happened), default=0)
    many = len(after) >= _LONG and len(skipped) - raised >= max(_MANY_BETWEEN, len(after) / 5)
    return many and in_the_end > 1 and in_a_row < _TOO_MANY_BROKEN


@on(events.Updated)
def never_lowered(event: events.Updated, memory: Memory) -> Iterator[Verdict]:
    """Report a scale that a skipped step left as it was."""
    if event.before is None or event.after is None:
        return
    if event.scaler in memory.skipped_since_update and event.after >= event.before:
        yield seen(catalogue.scaler.scale_never_lowered(event.before, event.after))


def overflow_dropped(memory: Memory) -> Iterator[tuple[events.Event, Verdict]]:
    """Report, at the end, overflows after which the scale did not fall, for no scaler was told of them.

    What was cleared may have been added up elsewhere before: then the next update lowers the scale.
    """
    for event in chain(memory.overflows_dropped, *memory.overflows_open.values()):
        if event.scale is not None:
            yield event, seen(catalogue.scaler.scale_never_lowered(event.scale, event.scale))


@on(events.Ended)
def ended(event: events.Ended, memory: Memory) -> Iterator[Verdict]:
    """See, or suspect, that an overflow ended the training."""
    if not memory.enabled_scalers:
        return
    if "is non-finite, so it cannot be clipped" in event.message:
        yield seen(catalogue.scaler.clip_raises_on_overflow())
    elif "returned nan values" in event.message:
        yield seen(catalogue.scaler.stops_at_overflow(event.exception))
    elif event.stopped and memory.in_fp16 and max(memory.skipped_in_a_row.values(), default=0) < _PATIENT:
        why = (
            "the gradients of that batch are inf or NaN, the weights are finite, and scaler.step, which "
            "would have skipped it, was not called"
        )
        yield likely(catalogue.scaler.stops_at_overflow(event.exception), why)
    elif event.overflow:
        why = "a batch overflowed just before, which need not be why"
        yield likely(catalogue.scaler.stops_at_overflow(event.exception), why)


@on(events.ScalerLoaded)
def set_back(event: events.ScalerLoaded, memory: Memory) -> Iterator[Verdict]:
    """Report a scaler in use that is given an older state."""
    if event.scaler in memory.scaler_of.values() and event.raised:
        yield seen(catalogue.scaler.scale_reset("by scaler.load_state_dict"))


@on(events.LossScaled)
def outputs_scaled(event: events.LossScaled, memory: Memory) -> Iterator[Verdict]:
    """Report many numbers scaled instead of a loss."""
    if event.elements > 1 and event.enabled:
        yield seen(catalogue.steps.outputs_scaled())


@on(events.Refused)
def refused(event: events.Refused, memory: Memory) -> Iterator[Verdict]:
    """Explain an exception of the scaler by what was called before it."""
    for fragment, meaning in _MEANINGS:
        if fragment in event.message:
            finding = meaning(event, memory)
            yield seen(finding, _where(finding.code, event, memory))
            return


def _where(code: str, event: events.Refused, memory: Memory) -> events.Line:
    """Return the line on which what a scaler refused is mended, None for that of the refused call."""
    if code == "half_parameters":
        return event.cast_at
    if code == "gradients_cleared":
        return event.cleared_at
    if code == "loss_not_scaled":
        return memory.unscaled_at
    return memory.stepped_directly if code == "optimizer_step_direct" else None


def _unscaled_again(event: events.Refused, memory: Memory) -> Finding:
    first, last = (_place(called, "unscale_") for called in (event.called, event.called[::-1]))
    between = event.called[first + 1 : len(event.called) - last - 1]
    if "scaler.step" not in between and "zero_grad" in between:  # nothing is added up: an iteration has ended
        return catalogue.scaler.no_update()
    if event.called.count("unscale_") > 1 or ("unscale_" in event.called and "update" in event.called_before):
        every_batch = event.called.count("backward") > 1 and "scaler.step" not in event.called
        if every_batch and event.called_before.count("backward") != 1:
            return catalogue.scaler.update_every_batch()
        if every_batch:
            return catalogue.scaler.no_update()
        return catalogue.steps.unscale_twice()
    return catalogue.scaler.no_update()


def _place(called: tuple[str, ...], name: str) -> int:
    return called.index(name) if name in called else len(called)


def _stepped_again(event: events.Refused, memory: Memory) -> Finding:
    if event.called.count("scaler.step") > 1:
        return catalogue.steps.double_step("scaler.step(optimizer) was called")
    return catalogue.scaler.no_update()


def _unscaled_after_step(event: events.Refused, memory: Memory) -> Finding:
    stepped = "scaler.step" in event.called
    return catalogue.steps.unscale_after_step() if stepped else catalogue.scaler.no_update()


def _before_backward(event: events.Refused) -> Finding:
    if "unscale_" in event.called:
        return catalogue.steps.unscale_without_gradients()
    return catalogue.steps.step_before_backward()


def _nothing_to_check(event: events.Refused, memory: Memory) -> Finding:
    if "backward" not in event.called:
        return _before_backward(event)
    if event.called.count("scaler.step") > 1:
        return catalogue.steps.step_without_backward()
    if "zero_grad" in event.called[event.called.index("backward") :]:
        return catalogue.steps.gradients_cleared()
    return catalogue.scaler.no_gradients()


def _nothing_to_learn(event: events.Refused, memory: Memory) -> Finding:
    if event.called.count("update") > 1:
        last, before, *_ = (i for i in reversed(range(len(event.called))) if event.called[i] == "update")
        went_on = "autocast" in event.called[before:last]
        return catalogue.scaler.update_without_step() if went_on else catalogue.scaler.update_twice()
    if "optimizer.step" in event.called:
        return catalogue.steps.optimizer_step_direct(None)
    if "backward" in event.called and event.called.count("backward") > 1:
        return catalogue.scaler.update_every_batch()
    if "scaler.step" not in event.called and "scaler.step" in event.called_before:
        return catalogue.scaler.update_without_step()
    return catalogue.scaler.update_before_step()


def _half_gradients(event: events.Refused, memory: Memory) -> Finding:
    return catalogue.precision.half_parameters()


def _never_scaled(event: events.Refused, memory: Memory) -> Finding:
    if "backward" not in event.called:
        return _before_backward(event)
    if memory.factor > 1.0:
        return catalogue.steps.scaled_by_hand(memory.factor)
    return catalogue.steps.loss_not_scaled("a GradScaler was made, but scaler.scale(loss) was never called")


def _no_graph(event: events.Refused, memory: Memory) -> Finding:
    return catalogue.steps.no_graph()


def _graph_gone(event: events.Refused, memory: Memory) -> Finding:
    if event.again:
        return catalogue.steps.backward_twice()
    return catalogue.steps.graph_used_twice(
        "this loss is another, and something in it was computed before, and had gone backward already",
        "detach what is carried over from one batch to the next; of two losses that share a forward pass, "
        "add them up and go backward once",
    )


_MEANINGS = (
    ("unscale_() has already been called", _unscaled_again),
    ("unscale_() is being called after step()", _unscaled_after_step),
    ("step() has already been called", _stepped_again),
    ("No inf checks were recorded for this optimizer", _nothing_to_check),
    ("No inf checks were recorded prior to update", _nothing_to_learn),
    ("Attempting to unscale FP16 gradients", _half_gradients),
    ("_scale is None", _never_scaled),
    ("element 0 of tensors does not require grad", _no_graph),
    ("backward through the graph a second time", _graph_gone),
)
