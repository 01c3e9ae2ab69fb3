"""Mistakes with overflows and the scaler: what it learned, what it was told, and what was kept from it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

from amp_lessons import formats
from amp_lessons.audit.recorder import events
from amp_lessons.audit.rules.past import Past
from amp_lessons.audit.rules.rows import Worded, mistake, remark
from amp_lessons.audit.rules.rule import AtTheEnd, Rule, Verdicts, dtype_name, likely, on, seen

if TYPE_CHECKING:
    from amp_lessons.audit.seen import StepSeen

_LOW = 16.0  # a first scale: 1/4096 of the default
_TOO_MANY = 20  # skipped steps in a row: from 65536 down to 1/16
_MANY_BETWEEN = 6  # skipped steps between others: gradients that differ by a factor of 64
_LONG = 20  # steps: in fewer, single batches that overflow are many
_LEAST_SCALE = 1.0
_PATIENT = 3  # skipped steps in a row, after which a loop may give up with good reason
_TOO_MANY_BROKEN = 8  # skipped steps in a row whose loss was inf or NaN, which no scale has done
_MOST_KEPT = 10_000  # overflows that were cleared


@mistake("training ended at a batch that overflowed", costs="stops", section="scaler")
def stops_at_overflow(exception: str = "") -> Worded:
    by = f" ({exception})" if exception else ""
    return (
        f"training ended at a batch that overflowed{by}; an overflow is an everyday event in fp16, after "
        "which the scaler lowers its scale",
        "let scaler.step skip that batch, call scaler.update() and go on",
    )


@remark(
    "the loop itself left out a batch whose loss is not finite",
    unseen="a loop may leave out batches",
    section="scaler",
)
def batch_left_out(costs: str = "") -> Worded:
    return (
        "a batch whose loss was not finite was left out by the loop itself, and the scaler did not hear of "
        f"it: the scale stays as it is{costs}, and where several ranks train together the others wait for "
        "this one's backward pass",
        "treat every batch alike: scaler.step skips what is not finite, and scaler.update lowers the scale",
    )


@mistake("inf and NaN were removed before the scaler could see them", section="clip")
def overflow_hidden(gradients: str = "the gradients") -> Worded:
    return (
        f"{gradients} overflowed, and inf and NaN were removed from them (nan_to_num, clip_grad_value_, a "
        "mask) before the scaler could see them: it took the step, and has no reason to lower its scale",
        "leave non-finite gradients alone until scaler.unscale_ or scaler.step has checked them",
    )


@on(events.MadeFinite)
def _(event: events.MadeFinite, past: Past) -> Verdicts:
    why = "nan_to_num was called on gradients that the scaler has not checked; none need have been inf"
    yield seen(overflow_hidden()) if event.broken else likely(overflow_hidden(), why)


@on(events.Unscaled)
def _(event: events.Unscaled, past: Past) -> Verdicts:
    if event.change == "made finite":
        yield seen(overflow_hidden(), _made_finite(past))


@on(events.OverflowPassed)
def _(event: events.OverflowPassed, past: Past) -> Verdicts:
    why = "inf or NaN was seen on its way back, and the scaler found none in the parameters' gradients"
    yield likely(overflow_hidden(), why, _made_finite(past))


def _made_finite(past: Past) -> events.Line:
    made = past.last(events.MadeFinite)
    return None if made is None else made.line


@mistake("a step was made past the scaler although gradients had overflowed", section="scaler")
def step_bypasses_scaler(how: str, weights: str = "the weights", optimizer: str = "optimizer") -> Worded:
    """Report a step on ``weights`` (whose) with gradients that were not finite, or had not been."""
    return (
        f"a batch overflowed, and a step was made on {weights} all the same: {how}, so nothing skipped it",
        f"call scaler.step({optimizer}), also after scaler.unscale_({optimizer}): it skips the step when a "
        "gradient is not finite",
    )


@on(events.StepAsked, last=True)
def _(event: events.StepAsked, past: Past) -> Verdicts:
    if event.scaler is not None:
        return
    if event.overflowed and past.precision.scaled:
        yield seen(step_bypasses_scaler("optimizer.step() was called directly"))
    elif not event.overflowed and event.unscaled and event.fresh and event.scaled_by is None:
        how = "scaler.unscale_ was called, and then optimizer.step() directly"
        why = "the scaler's check was passed by; no gradient needs to have overflowed yet"
        yield likely(step_bypasses_scaler(how), why)


@mistake("clipping was told to raise an error for inf and NaN", costs="stops", section="clip")
def clip_raises_on_overflow() -> Worded:
    return (
        "clip_grad_norm_ was told to raise an error for non-finite gradients (error_if_nonfinite=True); in "
        "fp16 they are an everyday event that the scaler deals with",
        "leave error_if_nonfinite at False: scaler.step skips that step, and scaler.update lowers the scale",
    )


@on(events.Ended)
def _(event: events.Ended, past: Past) -> Verdicts:
    backward, in_a_row = past.last(events.Backward), max(past.steps.skipped_in_a_row.values(), default=0)
    if not past.precision.scaled:
        return
    if "is non-finite, so it cannot be clipped" in event.message:
        yield seen(clip_raises_on_overflow())
    elif "returned nan values" in event.message:
        yield seen(stops_at_overflow(event.exception))
    elif event.stopped and backward is not None and backward.in_fp16 and in_a_row < _PATIENT:
        why = (
            "the gradients of that batch are inf or NaN, the weights are finite, and scaler.step, which "
            "would have skipped it, was not called"
        )
        yield likely(stops_at_overflow(event.exception), why)
    elif event.overflow:
        yield likely(
            stops_at_overflow(event.exception), "a batch overflowed just before, which need not be why"
        )


@mistake("the scale did not fall after an overflow", lesson="03", costs="stops", section="scaler")
def scale_never_lowered(
    before: float,
    after: float,
    hint: str = "call scaler.update() without arguments in every iteration, after the step",
) -> Worded:
    return (
        f"a batch overflowed at scale {before:g}, and the scale afterwards was {after:g}: if it does not "
        "fall after an overflow, every later step may be skipped",
        hint,
    )


class _Cleared(NamedTuple):
    """An overflow that was cleared, where its backward pass was, and whether that was before any step."""

    event: events.OverflowDropped
    backward_at: events.Line
    early: bool


class _NeverLowered(Rule):
    """What was cleared may have been added up elsewhere before: then the next update lowers the scale.

    Passes that warm up are cleared whatever they hold, and their overflows oblige nobody: no step follows a
    backward pass on their line, or, before the first step, one on it was cleared although it was finite.
    """

    def __init__(self) -> None:
        self.skipped: set[int] = set()  # these scalers have, since their last update
        self.open: defaultdict[int, list[_Cleared]] = defaultdict(list)  # since then
        self.dropped: list[_Cleared] = []  # the scale stayed after these
        self.stepped: set[events.Line] = set()  # lines of backward passes that a step followed
        self.finite: set[events.Line] = set()  # those whose finite gradients were cleared before any step

    @on(events.StepDone)
    def step(self, event: events.StepDone, past: Past) -> None:
        self.stepped |= event.backward_at | {_backward_at(past)}  # that of a gradient handed on is no loss's
        if event.scaler is not None and not event.happened:
            self.skipped.add(event.scaler)

    @on(events.Dropped)
    def unused(self, event: events.Dropped, past: Past) -> None:
        backward = past.last(events.Backward)
        if backward is not None and backward.loss is not None and math.isfinite(backward.loss):
            self.finite.add(backward.line)

    @on(events.OverflowDropped)
    def cleared(self, event: events.OverflowDropped, past: Past) -> None:
        if len(self.dropped) < _MOST_KEPT:
            early = not past.steps.asked[None]
            self.open[event.scaler].append(_Cleared(event, _backward_at(past), early))

    @on(events.Updated)
    def update(self, event: events.Updated, past: Past) -> Verdicts:
        skipped, dropped = event.scaler in self.skipped, self.open.pop(event.scaler, [])
        self.skipped.discard(event.scaler)
        if event.before is not None and event.after is not None and event.after >= event.before:
            self.dropped += dropped
            if skipped:
                yield seen(scale_never_lowered(event.before, event.after))

    @on(AtTheEnd)
    def never_told(self, past: Past) -> Verdicts:
        for each in chain(self.dropped, *self.open.values()):
            if each.event.scale is not None and not self._warms_up(each):
                yield seen(scale_never_lowered(each.event.scale, each.event.scale), about=each.event)

    def _warms_up(self, cleared: _Cleared) -> bool:
        never_stepped = bool(self.stepped) and cleared.backward_at not in self.stepped
        return never_stepped or (cleared.early and cleared.backward_at in self.finite)


def _backward_at(past: Past) -> events.Line:
    backward = past.last(events.Backward)
    return None if backward is None else backward.line


@mistake("an iteration ended without scaler.update()", costs="stops", section="scaler")
def no_update(
    hint: str = "call scaler.update() at the end of every iteration, also when you skip the step yourself",
    what: str = "an iteration",
) -> Worded:
    return (
        f"{what} ended without scaler.update(): the scaler still holds its inf check and refuses "
        "another; after an overflow it would never learn that its scale is too large",
        hint,
    )


@mistake("scaler.update() was called without a step to learn from", costs="stops", section="scaler")
def update_without_step(
    when: str = "in an iteration that left scaler.step(optimizer) out (because its loss was not finite, say)",
    hint: str = "call scaler.step(optimizer) in every iteration: it leaves the step out by itself when a "
    "gradient is not finite",
) -> Worded:
    return (f"scaler.update() was called {when}: there was no inf check to learn from", hint)


@mistake("gradients were unscaled, or the scale was changed, within a window", section="accumulate")
def update_every_batch(left_over: bool = False) -> Worded:
    if left_over:
        return (
            "the gradients still contained those of a loss for which another optimizer has stepped since: "
            "they were multiplied by the scale before scaler.update(), and those that were added to them by "
            "the one after",
            "call zero_grad() of this optimizer before its own backward pass: the other loss has filled its "
            "gradients, too; where both are meant to be added up, call scaler.update() after its step",
        )
    return (
        "scaler.unscale_() or scaler.update() was called within a window of batches, or after one whose "
        "gradients were not cleared: the gradients that are added up must all be multiplied by one scale",
        "unscale_, step and update belong together, once per window, and zero_grad() after them",
    )


@on(events.GradientsMixed)
def _(event: events.GradientsMixed, past: Past) -> Verdicts:
    if not event.scales and not event.added.applied and not event.added.unscaled:
        yield seen(update_every_batch(event.added.left_over))


@mistake("a part of the loss went backward unscaled, beside another that was scaled", only_audit=True)
def part_not_scaled(
    what: str, hint: str = "add them up before: scaler.scale(loss + penalty).backward()"
) -> Worded:
    return (
        f"{what}: the step divides all gradients by the scale, so that this part counts next to nothing",
        hint,
    )


@on(events.GradientsMixed)
def _(event: events.GradientsMixed, past: Past) -> Verdicts:
    if event.added.unscaled:
        what = "this loss went backward unscaled, and its gradients were added to those of a scaled loss"
        hint = "scaler.scale(penalty).backward(), or penalty.backward() after scaler.unscale_(optimizer)"
        yield seen(part_not_scaled(what, hint))


@on(events.Backward)
def _(event: events.Backward, past: Past) -> Verdicts:
    if event.part_unscaled and event.reached:
        yield seen(part_not_scaled("a part of the loss was added unscaled to another that was scaled"))


@mistake("two scalers with different scales fed one step", lesson="03", only_audit=True)
def two_scalers(theirs: str) -> Worded:
    return (
        f"two scalers have scaled losses whose gradients were added up for one step, at {theirs}: the step "
        "divides all of them by one scale, so that the others count too much, or too little",
        "one scaler for all losses of an optimizer: scaler.scale(a).backward(), scaler.scale(b).backward(), "
        "then scaler.step(optimizer) and scaler.update() once",
    )


@on(events.GradientsMixed)
def _(event: events.GradientsMixed, past: Past) -> Verdicts:
    if len(set(event.scales)) > 1:
        named = ("a scale that is not known" if each is None else f"{each:g}" for each in event.scales)
        yield seen(two_scalers(" and ".join(named)))


@mistake("scaler.update() was called twice in one iteration", costs="stops", section="scaler")
def update_twice() -> Worded:
    return (
        "scaler.update() was called twice in one iteration: the second has no inf check to learn from",
        "one scaler.update() per iteration, after the step",
    )


@mistake("scaler.update() was called before the step", costs="stops", section="scaler")
def update_before_step() -> Worded:
    return (
        "scaler.update() was called before scaler.step(optimizer): no gradient had been checked for inf yet",
        "call scaler.update() after scaler.step(optimizer)",
    )


@mistake("the scale changed between a backward pass and its step", section="two")
def update_between_steps() -> Worded:
    return (
        "scaler.update() changed the scale between a backward pass and the step on its gradients, which were "
        "divided by another scale than they were multiplied by",
        "call scaler.update() once, after the last scaler.step of the iteration",
    )


@on(events.Unscaled, last=True)
def _(event: events.Unscaled, past: Past) -> Verdicts:
    if event.outdated:
        yield seen(update_between_steps())


@mistake("a new scaler forgot what the old one had learned", lesson="03", costs="beside", section="scaler")
def scaler_recreated(
    forgotten: str = "what the old one had learned is lost: its scale, unless that was handed on, and its "
    "count of steps without an overflow",
    hint: str = "make one GradScaler before the first epoch",
) -> Worded:
    return f"a new GradScaler was made during training: {forgotten}", hint


@mistake("the scale was set back by hand", costs="beside")
def scale_reset(how: str) -> Worded:
    return (
        f"between two batches the scale was set {how}, not by scaler.update(): what was learned from "
        "overflows is forgotten",
        "leave the scale to scaler.update(); load a scaler's state only when training is resumed",
    )


@on(events.ScalerLoaded)
def _(event: events.ScalerLoaded, past: Past) -> Verdicts:
    if event.raised and event.scaler in past.steps.scaler_of.values():
        yield seen(scale_reset("by scaler.load_state_dict"))


@remark(
    "the scaler is enabled for bf16 too, which does not need it", lesson="03", costs="gain", section="bf16"
)
def scaler_with_bfloat16() -> Worded:
    return (
        "the scaler is also enabled for bf16: harmless, the updates are the same bit for bit, but not "
        "needed, since bf16 has the exponent range of fp32",
        "GradScaler(device_type, enabled=dtype == torch.float16)",
    )


@on(events.Backward)
def _(event: events.Backward, past: Past) -> Verdicts:
    if event.scaler is not None and [dtype_name(each) for each in event.forward] == ["bf16"]:
        yield seen(scaler_with_bfloat16())


@remark("the scaler begins at a small scale", lesson="03", only_audit=True, costs="rounded", section="scaler")
def scale_begins_low(scale: float, vanish: float) -> Worded:
    """Report the first ``scale``, and below which number gradients ``vanish`` at it."""
    return (
        f"the scaler begins at the scale {scale:g}, and doubles it every 2000 steps unless it is told "
        f"otherwise: until then gradients below {vanish:.1g} become 0 in fp16",
        "leave init_scale at its default, 65536: the scaler lowers it by itself",
    )


class _Scalers(Rule):
    def __init__(self) -> None:
        self.made: dict[int, events.ScalerMade] = {}
        self.loaded: set[int] = set()
        self.resumed = False  # from a checkpoint with a scaler's state

    @on(events.ScalerMade)
    def new(self, event: events.ScalerMade, past: Past) -> None:
        if event.enabled:
            self.made[event.scaler] = event

    @on(events.ScalerLoaded)
    def load(self, event: events.ScalerLoaded, past: Past) -> None:
        self.loaded.add(event.scaler)

    @on(events.Resumed)
    def resume(self, event: events.Resumed, past: Past) -> None:
        self.resumed = event.scaler

    @on(events.StepDone)
    def step(self, event: events.StepDone, past: Past) -> Verdicts:
        before, now = past.steps.scaler_of.get(event.optimizer), event.scaler
        made_at = self.made[now].line if now in self.made else None
        if now is None or now in self.loaded:
            return
        if before not in (None, now):
            yield seen(scaler_recreated(), made_at)
        elif self.resumed and now not in past.steps.scaler_of.values():
            forgotten = "the checkpoint that it goes on from holds a scaler's state, which was not loaded"
            yield seen(scaler_recreated(forgotten, 'scaler.load_state_dict(checkpoint["scaler"])'), made_at)

    @on(AtTheEnd)
    def began_low(self, past: Past) -> Verdicts:
        for made in self.made.values():
            stepped = made.scaler in past.steps.scaler_of.values()
            if made.scale is not None and made.scale <= _LOW and stepped and past.precision.in_fp16:
                scale = made.scale or 1.0
                yield seen(scale_begins_low(scale, 2.0**-25 / scale), about=made)


@remark("an old spelling was used, of which PyTorch warns", costs="gain", section="walkthrough")
def deprecated_api(spelling: str) -> Worded:
    return (
        f"{spelling} is deprecated and warns in current PyTorch",
        f"write torch.amp.{spelling.rsplit('.', 1)[-1]}(device_type, …)",
    )


@on(events.OldSpelling)
def _(event: events.OldSpelling, past: Past) -> Verdicts:
    yield seen(deprecated_api(event.name))


@mistake("scaler.step was given a closure")
def closure(wants_closure: bool = False) -> Worded:
    """Report a closure given to ``scaler.step``, which the optimizer needs where it ``wants_closure``."""
    hint = "do forward and backward yourself, then scaler.step(optimizer) without a closure"
    if wants_closure:
        hint = (
            "an optimizer that computes its loss several times in a step, as LBFGS does, needs the closure, "
            "and no scaler can be used with it: call optimizer.step(closure), with loss.backward() in the "
            "closure and autocast in bf16, which needs no scaler, or in fp32"
        )
    return (
        "scaler.step was given a closure; the scaler cannot check gradients that the closure computes "
        "afterwards",
        hint,
    )


@on(events.ClosureGiven)
def _(event: events.ClosureGiven, past: Past) -> Verdicts:
    yield seen(closure(event.wants))


@mistake("the optimizer's parameters had no gradients", costs="stops")
def no_gradients() -> Worded:
    return (
        "scaler.step(optimizer) found no gradient on any parameter of the optimizer: backward reached "
        "none of them",
        "give the optimizer the parameters that backward reaches, and leave out scaler.step(optimizer) where "
        "they have no part in the loss",
    )


@mistake("a step was made although a batch overflowed", section="race")
def overflow_not_skipped(how: str) -> Worded:
    return (
        f"a batch overflowed, and the weights changed all the same: {how}",
        "call scaler.step(optimizer), which leaves the weights alone when a gradient is not finite",
    )


@on(events.StepAsked, last=True)
def _(event: events.StepAsked, past: Past) -> Verdicts:
    backward = past.last(events.Backward)
    alone = event.scaler is None and not past.precision.scaled
    if event.overflowed and alone and backward is not None and backward.in_fp16:
        yield seen(overflow_not_skipped("optimizer.step() was called in spite of it"))


@mistake(
    "many steps in a row were skipped, whatever the scale",
    lesson="03",
    only_audit=True,
    costs="stops",
    section="deeper-breaks",
)
def always_overflows(steps: int, loss: float | None = None) -> Worded:
    """Report many ``steps`` skipped in a row, or fewer whose ``loss`` was inf or NaN before it was scaled.

    A ``loss`` that is a number is that of the last of many steps; None is one that nobody has seen.
    """
    told, source = "", "the forward or the backward pass, or from the data"
    cure = "look for the first inf or NaN of the forward pass; keep what overflows there in fp32, or use bf16"
    if loss is not None and math.isfinite(loss):
        told, source = f", the loss of the last was {loss:.3g}", "the backward pass, or from another rank"
        cure = "a root, a log or a norm at zero has an infinite slope: put an eps inside of it"
        cure += "; where gradients overflow at any scale, use bf16"
    elif loss is not None:
        told = f", the loss of each was inf or NaN before it was scaled, at last {loss}"
        source = "the forward pass or from the data"
    return (
        f"{steps} steps in a row were skipped{told}, and every one of them halved the scale: inf or NaN do "
        f"not come from the scale, but from {source}, and no scale will cure them",
        cure,
    )


class _InARow(Rule):
    def __init__(self) -> None:
        self.broken: Counter[int] = Counter()  # skipped steps of an optimizer whose loss was inf or NaN
        self.many = _TOO_MANY

    @on(events.ScalerMade)
    def new(self, event: events.ScalerMade, past: Past) -> None:
        if event.scale is not None and 1 < event.scale < math.inf:  # one that begins high has long to fall
            self.many = max(self.many, math.ceil(math.log2(event.scale)) + 4)

    @on(events.StepDone)
    def step(self, event: events.StepDone, past: Past) -> Verdicts:
        no_number = event.loss is not None and not math.isfinite(event.loss)
        broken = self.broken[event.optimizer] + 1 if no_number and not event.happened else 0
        self.broken[event.optimizer] = broken
        if broken == _TOO_MANY_BROKEN:
            yield seen(always_overflows(_TOO_MANY_BROKEN, event.loss), event.broken_at)
        elif broken > _TOO_MANY_BROKEN or event.happened:
            return
        elif past.steps.skipped_in_a_row[event.optimizer] + 1 == self.many:
            # where the loss is finite, what the forward pass has made of inf was of no consequence
            finding = always_overflows(self.many, None if no_number else event.loss)
            yield seen(finding, event.broken_at if event.loss is None else None)


@mistake(
    "the scaler skips far more steps than its search for a larger scale",
    lesson="03",
    only_audit=True,
    section="scaler",
)
def skipped_too_often(
    skipped: int,
    steps: int,
    growth_interval: int = 2000,
    fell: tuple[float, float] | None = None,
    broken: int = 0,
    grown: float | None = None,
) -> Worded:
    """Report ``skipped`` of the last ``steps``; ``growth_interval`` is the scaler's.

    Where all steps are known, the scale ``fell`` from one number to another, and the losses of so many of
    the skipped ones were ``broken``: inf or NaN before they were scaled. Through the line that is said the
    gradients may have ``grown`` so many times.
    """
    if fell is None:
        return (
            f"{skipped} of the last {steps} steps were skipped, and their batches lost; a scaler that has "
            f"found its scale tries a larger one every {growth_interval:,} steps: most of these have another "
            "reason",
            "audit a part of the run: it names the module in whose pass the first inf or NaN appears; keep "
            "that in fp32, or use bf16; where single batches overflow, look at their data",
        )
    losses = f"the loss of {broken} of them was inf or NaN before it was scaled"
    if not broken:
        losses = "all their losses were finite, so gradients overflowed in the backward pass"
    if grown is not None:
        losses += f", where they grew {grown:.0e} times through this line, and fp16 ends at 65,504"
    return (
        f"{skipped} of {steps} steps were skipped, up to the end and not in a row, and their batches lost, "
        f"while the scale went from {fell[0]:g} to {fell[1]:g}: {losses}; a scaler that looks for its scale "
        "skips its first steps only, and one at each try of a larger scale",
        "look for what these batches have in common, and for what overflows there: a division, a root or a "
        "logarithm near 0 has gradients that fp16 cannot hold even where it is computed in fp32 with a small "
        "eps: clamp(min=1e-2), say; keep in fp32 what overflows, or use bf16",
    )


@mistake(
    "the loss scale has fallen to where it protects little",
    lesson="03",
    only_audit=True,
    section="deeper-breaks",
)
def scale_fell(scale: float, overflows_above: float) -> Worded:
    """Report a ``scale`` that overflows have brought down; ``overflows_above`` is a gradient's magnitude."""
    return (
        f"the loss scale has fallen to {scale:g}: at it, a gradient overflows in fp16 only above "
        f"{overflows_above:,.0f}, so inf or NaN mostly come from the forward pass, from the data, or from "
        "weights that are NaN already; small gradients vanish meanwhile",
        "look for the first inf or NaN of the forward pass; keep what overflows there in fp32, or use bf16; "
        "where true gradients are that large, make the loss smaller, as by a mean in place of a sum",
    )


@on(AtTheEnd, last=True)
def _(past: Past) -> Verdicts:
    by_optimizer: dict[int, list[StepSeen]] = {}
    for step in past.steps.numbers():
        by_optimizer.setdefault(step.optimizer, []).append(step)
    for steps in by_optimizer.values():
        skipped = [step for step in steps if not step.happened]
        if not _is_no_search(steps) or skipped[-1].index not in past.steps.skipped:
            continue
        broken = sum(step.loss is not None and not math.isfinite(step.loss) for step in skipped)
        first, last = skipped[0].scale, steps[-1].scale
        event = past.steps.skipped[skipped[-1].index]
        of_optimizer = [each for each in past.steps.skipped.values() if each.optimizer == event.optimizer]
        line, grown = next((each.grown for each in of_optimizer if each.grown and not broken), (None, None))
        if broken == len(skipped):
            line = next((each.broken_at for each in of_optimizer if each.broken_at), None)
        if len({each.scaler for each in of_optimizer}) > 1 or event.optimizer in past.steps.unchecked:
            continue  # each looks for its scale anew, or broke the weights: which is another mistake
        yield seen(
            skipped_too_often(len(skipped), len(steps), fell=(first, last), broken=broken, grown=grown),
            line,
            about=event,
        )
        if last < _LEAST_SCALE < first:
            largest = formats.FORMATS["fp16"].max / last if last else math.inf
            yield seen(scale_fell(last, largest), about=event)


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
