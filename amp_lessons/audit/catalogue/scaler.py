"""Mistakes with overflows and the scaler, and with what goes on beside the steps."""

from __future__ import annotations

from amp_lessons._base.text.words import counted
from amp_lessons.audit.catalogue.rows import Worded, mistake, remark

# --- overflows and the scaler


@mistake("training ended at a batch that overflowed", costs="stops")
def stops_at_overflow(exception: str = "") -> Worded:
    """Report a training that a batch which overflows ends, by an ``exception`` or without one."""
    by = f" ({exception})" if exception else ""
    return (
        f"training ended at a batch that overflowed{by}; an overflow is an everyday event in fp16, after "
        "which the scaler lowers its scale",
        "let scaler.step skip that batch, call scaler.update() and go on",
    )


@remark("the loop itself left out a batch whose loss is not finite", unseen="a loop may leave out batches")
def batch_left_out(costs: str = "") -> Worded:
    """Remark on a batch that never reached a backward pass; ``costs`` says what else that cost."""
    return (
        "a batch whose loss was not finite was left out by the loop itself, and the scaler did not hear of "
        f"it: the scale stays as it is{costs}, and where several ranks train together the others wait for "
        "this one's backward pass",
        "treat every batch alike: scaler.step skips what is not finite, and scaler.update lowers the scale",
    )


@mistake("inf and NaN were removed before the scaler could see them")
def overflow_hidden(gradients: str = "the gradients") -> Worded:
    """Report that inf and NaN were taken out of ``gradients`` (whose)."""
    return (
        f"{gradients} overflowed, and inf and NaN were removed from them (nan_to_num, clip_grad_value_, a "
        "mask) before the scaler could see them: it took the step, and has no reason to lower its scale",
        "leave non-finite gradients alone until scaler.unscale_ or scaler.step has checked them",
    )


@mistake("a step was made past the scaler although gradients had overflowed")
def step_bypasses_scaler(how: str, weights: str = "the weights", optimizer: str = "optimizer") -> Worded:
    """Report a step on ``weights`` (whose) with gradients that were not finite, or had not been."""
    return (
        f"a batch overflowed, and a step was made on {weights} all the same: {how}, so nothing skipped it",
        f"call scaler.step({optimizer}), also after scaler.unscale_({optimizer}): it skips the step when a "
        "gradient is not finite",
    )


@mistake("clipping was told to raise an error for inf and NaN", costs="stops")
def clip_raises_on_overflow() -> Worded:
    """Report clipping that raises for gradients that are not finite."""
    return (
        "clip_grad_norm_ was told to raise an error for non-finite gradients (error_if_nonfinite=True); in "
        "fp16 they are an everyday event that the scaler deals with",
        "leave error_if_nonfinite at False: scaler.step skips that step, and scaler.update lowers the scale",
    )


@mistake("the scale did not fall after an overflow", lesson="03", costs="stops")
def scale_never_lowered(
    before: float,
    after: float,
    hint: str = "call scaler.update() without arguments in every iteration, after the step",
) -> Worded:
    """Report a scale that an overflow did not lower."""
    return (
        f"gradients overflowed at scale {before:g}, and the scale afterwards was {after:g}: if it does not "
        "fall after an overflow, every later step may be skipped",
        hint,
    )


@mistake("an iteration ended without scaler.update()", costs="stops")
def no_update(
    hint: str = "call scaler.update() at the end of every iteration, also when you skip the step yourself",
    what: str = "an iteration",
) -> Worded:
    """Report an iteration, or ``what`` else ends with an update, that the scaler was not told to end."""
    return (
        f"{what} ended without scaler.update(): the scaler still holds its inf check and refuses "
        "another; after an overflow it would never learn that its scale is too large",
        hint,
    )


@mistake("scaler.update() was called without a step to learn from", costs="stops")
def update_without_step(
    when: str = "in an iteration that left scaler.step(optimizer) out (because its loss was not finite, say)",
    hint: str = "call scaler.step(optimizer) in every iteration: it leaves the step out by itself when a "
    "gradient is not finite",
) -> Worded:
    """Report that the scaler was to learn from gradients that nothing had checked."""
    return (
        f"scaler.update() was called {when}: there was no inf check to learn from",
        hint,
    )


@mistake("gradients were unscaled, or the scale was changed, within a window")
def update_every_batch() -> Worded:
    """Report what belongs to the end of a window of accumulated batches, and was done within it."""
    return (
        "scaler.unscale_() or scaler.update() was called within a window of batches: the gradients that are "
        "added up there must all be multiplied by one scale, until the step",
        "unscale_, step and update belong together, once per window",
    )


@mistake("two scalers with different scales fed one step", lesson="03", only_audit=True)
def two_scalers(scales: tuple[float | None, ...]) -> Worded:
    """Report gradients of one step that two scalers had scaled, at these ``scales``."""
    theirs = " and ".join("a scale that is not known" if each is None else f"{each:g}" for each in scales)
    return (
        f"two scalers have scaled losses whose gradients were added up for one step, at {theirs}: the step "
        "divides all of them by one scale, so that the others count too much, or too little",
        "one scaler for all losses of an optimizer: scaler.scale(a).backward(), scaler.scale(b).backward(), "
        "then scaler.step(optimizer) and scaler.update() once",
    )


@mistake("scaler.update() was called twice in one iteration", costs="stops")
def update_twice() -> Worded:
    """Report a second ``update`` in one iteration."""
    return (
        "scaler.update() was called twice in one iteration: the second has no inf check to learn from",
        "one scaler.update() per iteration, after the step",
    )


@mistake("scaler.update() was called before the step", costs="stops")
def update_before_step() -> Worded:
    """Report an ``update`` that came before the step."""
    return (
        "scaler.update() was called before scaler.step(optimizer): no gradient had been checked for inf yet",
        "call scaler.update() after scaler.step(optimizer)",
    )


@mistake("the scale changed between a backward pass and its step")
def update_between_steps(which: str, hint: str) -> Worded:
    """Report an ``update`` between a backward pass and its step; ``which`` is off by it."""
    return (
        f"{which}: scaler.update() changed the scale between its backward pass and its step",
        hint,
    )


@mistake("a new scaler forgot what the old one had learned", lesson="03", costs="beside")
def scaler_recreated(
    forgotten: str = "its scale starts at the initial value again, and what was learned from overflows is "
    "forgotten",
    hint: str = "make one GradScaler before the first epoch",
) -> Worded:
    """Report a scaler that took another's place while training went on; ``forgotten`` says what it lacks."""
    return f"a new GradScaler was made during training: {forgotten}", hint


@mistake("the scale was set back by hand", costs="beside")
def scale_reset(how: str) -> Worded:
    """Report a scale that was set back; ``how`` says from where to where, or by what."""
    return (
        f"between two batches the scale was set {how}, not by scaler.update(): what was learned from "
        "overflows is forgotten",
        "leave the scale to scaler.update(); load a scaler's state only when training is resumed",
    )


@remark("the scaler is enabled for bf16 too, which does not need it", lesson="03", costs="gain")
def scaler_with_bfloat16() -> Worded:
    """Remark on a scaler that bf16 does not need."""
    return (
        "the scaler is also enabled for bf16: harmless, the updates are the same bit for bit, but not "
        "needed, since bf16 has the exponent range of fp32",
        "GradScaler(device_type, enabled=dtype == torch.float16)",
    )


@remark("the scaler begins at a small scale", lesson="03", only_audit=True, costs="rounded")
def scale_begins_low(scale: float) -> Worded:
    """Remark on a scaler whose first ``scale`` is far below its default."""
    return (
        f"the scaler begins at the scale {scale:g}, and doubles it every 2000 steps unless it is told "
        f"otherwise: until then gradients below {2.0**-25 / scale:.1g} become 0 in fp16",
        "leave init_scale at its default, 65536: the scaler lowers it by itself",
    )


@remark("an old spelling was used, of which PyTorch warns", costs="gain")
def deprecated_api(spelling: str) -> Worded:
    """Remark on an old ``spelling``, as in "torch.cuda.amp.autocast"."""
    return (
        f"{spelling} is deprecated and warns in current PyTorch",
        f"write torch.amp.{spelling.rsplit('.', 1)[-1]}(device_type, …)",
    )


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


@mistake("the optimizer's parameters had no gradients", costs="stops", only_audit=True)
def no_gradients() -> Worded:
    """Report a step for which the scaler found no gradient at all."""
    return (
        "scaler.step(optimizer) found no gradient on any parameter of the optimizer: backward filled others",
        "give the optimizer the parameters that backward reaches, and leave out scaler.step(optimizer) where "
        "they have no part in the loss",
    )


@mistake("a step was made although a batch overflowed")
def overflow_not_skipped(how: str) -> Worded:
    """Report a step in spite of inf or NaN; ``how`` says what was seen of it."""
    return (
        f"a batch overflowed, and the weights changed all the same: {how}",
        "call scaler.step(optimizer), which leaves the weights alone when a gradient is not finite",
    )


@mistake("many steps in a row were skipped, whatever the scale", lesson="03", only_audit=True, costs="stops")
def always_overflows(steps: int, loss: float | None = None) -> Worded:
    """Report many ``steps`` skipped in a row, or fewer whose ``loss`` was inf or NaN before it was scaled."""
    broken = "" if loss is None else f", the loss of each was inf or NaN before it was scaled, at last {loss}"
    return (
        f"{steps} steps in a row were skipped{broken}, and every one of them halved the scale: inf or NaN do "
        "not come from the scale, but from the forward pass or from the data, and no scale will cure them",
        "look for the first inf or NaN of the forward pass; keep what overflows there in fp32, or use bf16",
    )


@mistake("the scaler skips far more steps than its search for a larger scale", lesson="03", only_audit=True)
def skipped_too_often(
    skipped: int,
    steps: int,
    growth_interval: int = 2000,
    fell: tuple[float, float] | None = None,
    broken: int = 0,
) -> Worded:
    """Report ``skipped`` of the last ``steps``; ``growth_interval`` is the scaler's.

    Where all steps are known, the scale ``fell`` from one number to another, and the losses of so many of
    the skipped ones were ``broken``: inf or NaN before they were scaled.
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
    return (
        f"{skipped} of {steps} steps were skipped, up to the end and not in a row, and their batches lost, "
        f"while the scale went from {fell[0]:g} to {fell[1]:g}: {losses}; a scaler that looks for its scale "
        "skips its first steps only, and one at each try of a larger scale",
        "look for what these batches have in common, and for what overflows there: a division, a root or a "
        "logarithm near 0 has gradients that fp16 cannot hold even where it is computed in fp32 with a small "
        "eps: clamp(min=1e-2), say; keep in fp32 what overflows, or use bf16",
    )


@mistake("the loss scale has fallen to where it protects little", lesson="03", only_audit=True)
def scale_fell(scale: float, overflows_above: float) -> Worded:
    """Report a ``scale`` that overflows have brought down; ``overflows_above`` is a gradient's magnitude."""
    return (
        f"the loss scale has fallen to {scale:g}: at it, a gradient overflows in fp16 only above "
        f"{overflows_above:,.0f}, so inf or NaN mostly come from the forward pass, from the data, or from "
        "weights that are NaN already; small gradients vanish meanwhile",
        "look for the first inf or NaN of the forward pass; keep what overflows there in fp32, or use bf16; "
        "where true gradients are that large, make the loss smaller, as by a mean in place of a sum",
    )


# --- what goes along with the optimizer's steps


@mistake("the learning rate's schedule went on although the step was skipped", lesson="03", costs="beside")
def schedule_on_skipped_step(advanced: int, steps: int) -> Worded:
    """Report a schedule that was ``advanced`` more often than there were optimizer ``steps``."""
    return (
        f"the learning rate's schedule was advanced {counted(advanced, 'time')} for {counted(steps, 'step')} "
        "of the optimizer, also where a batch had overflowed and the scaler skipped the step: a warm-up is "
        "over too early",
        "advance it only where the step was made: scaler.update() lowers the scale after a skipped one",
    )


@mistake("the averaged weights went on although the step was skipped", lesson="03", costs="beside")
def average_on_skipped_step(advanced: int, steps: int) -> Worded:
    """Report averaged weights (an EMA) that were ``advanced`` more often than there were ``steps``."""
    return (
        f"the averaged weights were updated {counted(advanced, 'time')} for {counted(steps, 'step')} of the "
        "optimizer: where the scaler skipped the step they took in old weights once more, and their count "
        "runs ahead",
        "update them only where the step was made: scaler.update() lowers the scale after a skipped one",
    )


# --- what goes on beside the steps


@mistake("checkpoints lack the scaler's state", only_audit=True, costs="beside")
def scaler_not_saved(before: int = 0, since: int = 0) -> Worded:
    """Report a checkpoint with an optimizer's state and without the scaler's.

    So many steps were skipped ``before`` it was written and ``since``.
    """
    skipped = f"{since} skipped here since" if since else f"{before} skipped here until then"
    again = f", and skips steps until it has fallen again ({skipped})" if before or since else ""
    return (
        "checkpoints were written with the optimizer's state and without the scaler's: training that goes on "
        f"from them starts again at the first scale{again}",
        'add "scaler": scaler.state_dict() to the checkpoint, and load it with scaler.load_state_dict',
    )


@mistake(
    "a number was read while it was multiplied by the loss scale",
    lesson="03",
    only_audit=True,
    costs="beside",
)
def logs_scaled(what: str) -> Worded:
    """Report a number that was read while it was multiplied by the loss scale."""
    return (
        f"{what} was read while it was multiplied by the loss scale: it jumps whenever the scale changes",
        "log loss.item() before scaling, and gradients after scaler.unscale_(optimizer)",
    )


@remark(
    "mixed precision was asked for on a device that is not there", lesson="02", only_audit=True, costs="gain"
)
def device_not_here(what: str, device: str) -> Worded:
    """Remark on autocast or a scaler, ``what``, that PyTorch has switched off."""
    return (
        f"{what} was made for {device!r}, which this machine does not have: PyTorch has switched it off, and "
        "what depends on it cannot be judged here",
        "pass the device that the model is on, as in torch.autocast(device.type) and GradScaler(device.type)",
    )
