"""Mistakes in mixed precision training that more than one place can find: one wording for each.

A function is called as the code of its finding. Its arguments are what differs: whose step it was, which
numbers were seen.
"""

from __future__ import annotations

import torch

from amp_lessons.audit.findings import Finding, failed, note
from amp_lessons.formats.dtypes import dtype_name

# --- in which dtype


def no_autocast(forward: str, dtype: torch.dtype) -> Finding:
    """Report that ``forward`` (of whom) ran in fp32 although ``dtype`` was asked for."""
    return failed(
        "no_autocast",
        f"{forward} ran in fp32, outside autocast: nothing is gained from {dtype_name(dtype)}",
        "run every forward pass and its loss inside with torch.autocast(device_type, dtype=dtype):",
    )


def wrong_autocast_dtype(what: str, seen: torch.dtype, asked: torch.dtype) -> Finding:
    """Report that ``what`` ran in another dtype than asked for."""
    return failed(
        "wrong_autocast_dtype",
        f"{what} ran in {dtype_name(seen)} although dtype={asked} was asked for",
        "pass the argument on: torch.autocast(device_type, dtype=dtype)",
    )


def inputs_cast(whose: str) -> Finding:
    """Remark on inputs cast to 16 bits by hand; ``whose`` ends in a verb: "the inputs were"."""
    return note(
        "inputs_cast",
        f"{whose} cast to 16 bits by hand: autocast casts what an operation needs, and leaves the others the "
        "digits and the range of fp32, which a cast by hand takes from all",
        "pass them on as they are",
    )


def one_big_autocast(anew: str = "in every iteration") -> Finding:
    """Report that autocast's cache of 16-bit weights outlived a step; ``anew`` says when to begin again."""
    return failed(
        "one_big_autocast",
        "the forward pass used old weights: one autocast context stays open over several optimizer steps, "
        "and its cache of 16-bit weights is emptied only when the outermost context ends",
        f"enter autocast anew {anew}, around forward and loss only",
    )


def backward_in_autocast(dtype: torch.dtype) -> Finding:
    """Report a backward pass inside the autocast context."""
    return failed(
        "backward_in_autocast",
        "backward ran inside the autocast context: the backward pass of operations kept in fp32 is cast to "
        f"{dtype_name(dtype)} there, and PyTorch advises against it",
        "leave the with block after the loss; backward, step and update belong outside",
    )


def half_parameters() -> Finding:
    """Report parameters that are in 16 bits themselves."""
    return failed(
        "half_parameters",
        "the model's parameters were converted to a 16-bit dtype: small updates to them are rounded away, "
        "and the scaler refuses their gradients",
        "leave the parameters in fp32; autocast casts what an operation needs",
    )


def updates_rounded_away(seen: str, half: str) -> Finding:
    """Report weights in 16 bits that stay what they are; ``seen`` says how many, ``half`` names the dtype."""
    return failed(
        "updates_rounded_away",
        f"{seen}: an update below half the distance to the next {half} number is rounded away, and so is the "
        "next, however many there are",
        "keep the weights themselves, or what rounding cuts off them, in fp32; only the forward and backward "
        f"pass need be in {half}",
    )


def products_in_another_dtype(what: str, seen: torch.dtype | None, asked: torch.dtype) -> Finding:
    """Report that ``what`` (whose, in the plural) ran in ``seen``; None stands for none that ran at all."""
    ran = f"ran in {dtype_name(seen)}" if seen else "did not run at all"
    return failed(
        "products_in_another_dtype",
        f"{what} {ran}, and {dtype_name(asked)} was asked for: their speed and memory are what 16 bits are "
        "for",
        "keep the products in 16 bits, and take only what loses digits to fp32",
    )


def nan_hidden(what: str) -> Finding:
    """Report that NaN went in, and that ``what`` came out as an ordinary number."""
    return failed(
        "nan_hidden",
        f"NaN went in, and {what} came out as an ordinary number: whatever is broken before this point will "
        "never be noticed",
        "mend the operation that makes NaN out of good numbers, and let any other NaN through; "
        "leave out nan_to_num and its like",
    )


def parameters_frozen(when: str, which: str, hint: str) -> Finding:
    """Report parameters left with ``requires_grad=False``."""
    return failed(
        "parameters_frozen",
        f"{when}, {which} had requires_grad=False: training would not change them any more, and where "
        "nothing else needs a gradient backward raises",
        hint,
    )


def evaluation_mode(when: str) -> Finding:
    """Report a model that trains, or goes on to train, in evaluation mode."""
    return failed(
        "evaluation_mode",
        f"{when} the model was in evaluation mode, in which dropout is off and batch norm's statistics "
        "stand still",
        "leave the model in training mode (model.train()); model.eval() is for inference",
    )


# --- from the loss to its gradients


def no_graph() -> Finding:
    """Report a loss that backward cannot start from."""
    return failed(
        "no_graph",
        "backward had nothing to go through: the loss was computed under no_grad, or detached with "
        ".detach() or .item()",
        "call backward on the tensor that the loss function returned, computed with gradients enabled",
    )


def backward_twice() -> Finding:
    """Report two backward passes through one loss."""
    return failed(
        "backward_twice",
        "backward was called twice through the same loss: every gradient is counted twice",
        "one scaler.scale(loss).backward() per batch",
    )


def graph_used_twice(how: str, hint: str) -> Finding:
    """Report a backward pass through a graph that another had freed; ``how`` says which."""
    return failed("graph_used_twice", f"the second backward went through the graph of the first: {how}", hint)


def loss_outside_autocast(half: str, loss: str = "the loss") -> Finding:
    """Report ``loss`` (whose) computed on outputs in ``half`` precision where autocast was off."""
    return failed(
        "loss_outside_autocast",
        f"{loss} was computed outside autocast on {half} outputs, so it is itself {half}: it loses "
        "digits, and in fp16 the scale 65536 overflows at the very start of backward",
        "compute the loss inside the autocast context, which computes losses in fp32, or on outputs.float()",
    )


def loss_in_half(half: str, loss: str = "the loss", by_hand: bool = True) -> Finding:
    """Report ``loss`` (whose) in ``half`` precision: cast ``by_hand``, or computed so inside autocast."""
    how, cure = f"was cast to {half} before backward", ", or as it comes out of the autocast context"
    if not by_hand:
        how = f"was computed in {half}, by operations that autocast leaves in 16 bits on this device"
        cure = ""
    too_large = ", and fp16 ends at 65504, so the scale 65536 becomes inf" if half == "fp16" else ""
    return failed(
        "loss_in_half",
        f"{loss} {how}: it loses digits{too_large}",
        f"keep the loss in fp32: compute it from outputs.float(){cure}",
    )


def loss_rescaled(update: str, factor: float, how: str, hint: str) -> Finding:
    """Report an ``update`` (whose) off by ``factor``, as its loss was; ``how`` says what was seen of it."""
    return failed("loss_rescaled", f"{update} is {factor:.4g} times the right one: {how}", hint)


def scale_needs_a_tensor() -> Finding:
    """Report that ``scaler.scale`` was given a float, or None."""
    return failed(
        "scale_needs_a_tensor",
        "scaler.scale() was given something that is not a tensor (a float from loss.item(), or what "
        "backward() returns)",
        "write scaler.scale(loss).backward(), with loss the tensor that the loss function returned",
    )


def loss_not_scaled(
    why: str,
    effect: str = "gradients below 2⁻²⁵ vanish in fp16",
    loss: str = "the loss",
    hint: str = "call scaler.scale(loss).backward()",
) -> Finding:
    """Report that ``loss`` (whose) went backward as it is; ``why`` is what shows it."""
    return failed("loss_not_scaled", f"{loss} was not scaled before backward ({why}): {effect}", hint)


def scaled_by_hand(factor: float) -> Finding:
    """Report a loss that was multiplied by ``factor`` without the scaler's knowing."""
    return failed(
        "scaled_by_hand",
        f"the loss was multiplied by {factor:g} by hand: scaler.scale was never called, so the scaler "
        "does not know by what to divide the gradients",
        "call scaler.scale(loss).backward()",
    )


def scaled_loss_discarded(by: str) -> Finding:
    """Report a scaled loss that nobody used; ``by`` says what the gradients are divided by."""
    return failed(
        "scaled_loss_discarded",
        "scaler.scale(loss) was called but backward ran on the unscaled loss, so scaler.step divides "
        f"gradients by {by} that were never multiplied by it",
        "use what scale returns: scaler.scale(loss).backward()",
    )


def scale_too_small(scale: float, effect: str) -> Finding:
    """Report gradients that vanished although the loss was scaled."""
    return failed(
        "scale_too_small",
        f"the loss scale {scale:g} is too small: {effect}",
        "leave init_scale at its default, 65536; the scaler lowers it by itself",
    )


def signs_ignored(effect: str, hint: str) -> Finding:
    """Report that the largest number was taken where the largest magnitude decides."""
    return failed("signs_ignored", effect, hint)


def capped(seen: str) -> Finding:
    """Report a scale that does not grow beyond a bound, although nothing would overflow."""
    return failed(
        "capped",
        f"{seen}: the scale was given an upper bound",
        "set no upper bound: GradScaler begins at 65536, but may grow beyond it, and an overflow lowers a "
        "scale that is too large",
    )


def outputs_scaled() -> Finding:
    """Report that ``scaler.scale`` was given many numbers."""
    return failed(
        "outputs_scaled",
        "scaler.scale was called on a tensor of many numbers (the model's outputs, say), not on the "
        "loss: a loss of scaled outputs is another function, and its gradients are not the scaled ones",
        "compute the loss first, then call scaler.scale(loss).backward()",
    )


# --- steps


def no_zero_grad(gradients: str = "the gradients", optimizer: str = "optimizer") -> Finding:
    """Report that backward added to the ``gradients`` (whose) of an earlier step."""
    return failed(
        "no_zero_grad",
        f"{gradients} still contained those of an earlier step: they were not set to zero in between, and "
        "backward added to them",
        f"call {optimizer}.zero_grad() once per update, before the forward pass or after the step",
    )


def gradients_cleared(optimizer: str = "optimizer") -> Finding:
    """Report gradients that were set to zero before ``optimizer`` could apply them."""
    return failed(
        "gradients_cleared",
        f"the gradients were cleared, as zero_grad() does, between backward and the {optimizer} step, which "
        "had none left to apply",
        f"call {optimizer}.zero_grad() before the forward pass, or after the step",
    )


def optimizer_step_direct(
    scale: float | None, gradients: str = "the gradients", optimizer: str = "optimizer"
) -> Finding:
    """Report that an optimizer applied ``gradients`` (whose) still multiplied by ``scale``, where known."""
    times = f" {scale:g} times" if scale is not None else ""
    return failed(
        "optimizer_step_direct",
        f"{optimizer}.step() was called directly: it applied {gradients} while they were still{times} too "
        "large (the loss scale), and nothing checked them for inf",
        f"call scaler.step({optimizer}) instead: it unscales, checks for inf and only then steps",
    )


def double_step(
    step: str = "the optimizer stepped",
    how: str = "",
    hint: str = "one scaler.step(optimizer) per iteration: it calls optimizer.step() itself",
) -> Finding:
    """Report two steps where one belongs; ``step`` is what was done twice."""
    return failed("double_step", f"{step} twice in one iteration{f': {how}' if how else ''}", hint)


def no_step() -> Finding:
    """Report backward passes that no step ever followed."""
    return failed(
        "no_step",
        "gradients were computed but no step followed: the weights did not change",
        "call scaler.step(optimizer) after backward",
    )


def step_without_backward(step: str = "scaler.step(optimizer)", left_out: bool = False) -> Finding:
    """Report a ``step`` that found no gradient: it had been made, or the backward pass was ``left_out``."""
    if left_out:
        return failed(
            "step_without_backward",
            f"{step} was called although the loss was not finite and its backward pass had been left out: "
            "there was no gradient to step with",
            "call backward whatever the loss: scaler.step leaves out the step, and scaler.update lowers the "
            "scale",
        )
    return failed(
        "step_without_backward",
        f"{step} was called once more after the step that had applied the gradients, with no backward pass "
        "in between: with momentum or weight decay the weights would move all the same",
        "step once for the gradients that were added up; a step at the end of an epoch belongs only where "
        "gradients are still waiting",
    )


def gradients_changed(
    whose: str,
    optimizer: str = "optimizer",
    how: str = ", which this exercise does not ask for",
    hint: str = "apply the gradients as they are",
) -> Finding:
    """Report gradients (``whose``) that the ``optimizer`` was not given as backward left them."""
    return failed(
        "gradients_changed",
        f"{whose} were changed between backward and the {optimizer} step{how}",
        hint,
    )


def step_before_backward(backward: str = "backward had produced any gradient") -> Finding:
    """Report a step that came before ``backward``."""
    return failed(
        "step_before_backward",
        f"scaler.step(optimizer) was called before {backward}",
        "call backward first: the step applies the gradients that it leaves in .grad",
    )


def unscaled_twice(scale: float | None, update: str = "the update") -> Finding:
    """Report gradients that were divided by the loss scale twice; ``update`` says whose it was."""
    times = "by the loss scale" if scale is None else f"{scale:g} times"
    return failed(
        "unscaled_twice",
        f"{update} is {times} too small: the gradients were divided by the loss scale twice",
        "leave the unscaling to scaler.unscale_ or scaler.step, which do it once",
    )


def weights_changed(although: str) -> Finding:
    """Report weights that moved otherwise than by the optimizer; ``although`` says what it did."""
    return failed(
        "weights_changed",
        f"{although}, but the weights changed otherwise as well: something other than the optimizer writes "
        "to the parameters, or the learning rate was changed for a while",
        "leave the weights and the optimizer's settings to the optimizer",
    )


def wrong_update(update: str, how_far: str, hint: str) -> Finding:
    """Report an ``update`` (whose) that no known mistake explains."""
    return failed("wrong_update", f"{update} is not plain SGD on the gradient of its loss: {how_far}", hint)


def clip_before_unscale(how: str, effect: str) -> Finding:
    """Report gradients clipped while they were scaled; ``how`` says by what, ``effect`` what came of it."""
    return failed(
        "clip_before_unscale",
        f"the gradients were clipped {how}: {effect}",
        "call scaler.unscale_(optimizer) before you clip: max_norm is meant for gradients of their true size",
    )


def clip_after_step(applied: str) -> Finding:
    """Report gradients clipped too late; ``applied`` says which gradient the step had applied."""
    return failed(
        "clip_after_step",
        f"the gradients were clipped after the step, which had already applied {applied}",
        "clip between scaler.unscale_(optimizer) and scaler.step(optimizer)",
    )


def gradients_changed_before_unscale(larger: str) -> Finding:
    """Report gradients changed while they were scaled; ``larger`` says how much larger they were."""
    return failed(
        "gradients_changed_before_unscale",
        "the gradients were changed (clipped, decayed, replaced) while they were still multiplied by "
        f"the loss scale, so a threshold meant for true gradients acted on values {larger} larger",
        "call scaler.unscale_(optimizer) before you change the gradients",
    )


def unscale_twice() -> Finding:
    """Report a second ``unscale_`` in one iteration."""
    return failed(
        "unscale_twice",
        "scaler.unscale_(optimizer) was called twice in one iteration: the second would divide the "
        "gradients by the scale again, so PyTorch refuses",
        "call scaler.unscale_(optimizer) once, after backward and before clipping; scaler.step will "
        "not repeat it",
    )


def unscale_without_gradients(
    why: str = "backward, which puts them there, had not run yet",
    hint: str = "call scaler.unscale_(optimizer) after backward",
) -> Finding:
    """Report an ``unscale_`` with nothing to divide; ``why`` says where gradients come from."""
    return failed(
        "unscale_without_gradients",
        "scaler.unscale_(optimizer) was called when no parameter had a gradient: it divides what is in "
        f".grad, and {why}",
        hint,
    )


def unscale_after_step() -> Finding:
    """Report an ``unscale_`` that came after the step."""
    return failed(
        "unscale_after_step",
        "scaler.unscale_(optimizer) was called after scaler.step(optimizer) in the same iteration: the "
        "step had already unscaled the gradients and used them",
        "call scaler.unscale_(optimizer) before the step, or leave it out: the step unscales by itself",
    )


# --- overflows and the scaler


def stops_at_overflow(exception: str = "") -> Finding:
    """Report a training that a batch which overflows ends, by an ``exception`` or without one."""
    by = f" ({exception})" if exception else ""
    return failed(
        "stops_at_overflow",
        f"training ended at a batch that overflowed{by}; an overflow is an everyday event in fp16, after "
        "which the scaler lowers its scale",
        "let scaler.step skip that batch, call scaler.update() and go on",
    )


def batch_left_out(costs: str = "") -> Finding:
    """Remark on a batch that never reached a backward pass; ``costs`` says what else that cost."""
    return note(
        "batch_left_out",
        "a batch whose loss was not finite was left out by the loop itself, and the scaler did not hear of "
        f"it: the scale stays as it is{costs}, and where several ranks train together the others wait for "
        "this one's backward pass",
        "treat every batch alike: scaler.step skips what is not finite, and scaler.update lowers the scale",
    )


def overflow_hidden(gradients: str = "the gradients") -> Finding:
    """Report that inf and NaN were taken out of ``gradients`` (whose)."""
    return failed(
        "overflow_hidden",
        f"{gradients} overflowed, and inf and NaN were removed from them (nan_to_num, clip_grad_value_, a "
        "mask) before the scaler could see them: it took the step, and has no reason to lower its scale",
        "leave non-finite gradients alone until scaler.unscale_ or scaler.step has checked them",
    )


def step_bypasses_scaler(how: str, weights: str = "the weights", optimizer: str = "optimizer") -> Finding:
    """Report that gradients which are not finite reached ``weights`` (whose)."""
    return failed(
        "step_bypasses_scaler",
        f"a batch overflowed, and its inf or NaN gradients were applied to {weights}: {how}, so nothing "
        "skipped the step",
        f"call scaler.step({optimizer}), also after scaler.unscale_({optimizer}): it skips the step when a "
        "gradient is not finite",
    )


def clip_raises_on_overflow() -> Finding:
    """Report clipping that raises for gradients that are not finite."""
    return failed(
        "clip_raises_on_overflow",
        "clip_grad_norm_ was told to raise an error for non-finite gradients (error_if_nonfinite=True); in "
        "fp16 they are an everyday event that the scaler deals with",
        "leave error_if_nonfinite at False: scaler.step skips that step, and scaler.update lowers the scale",
    )


def scale_never_lowered(
    before: float,
    after: float,
    hint: str = "call scaler.update() without arguments in every iteration, after the step",
) -> Finding:
    """Report a scale that an overflow did not lower."""
    return failed(
        "scale_never_lowered",
        f"gradients overflowed at scale {before:g}, and the scale afterwards was {after:g}: if it does not "
        "fall after an overflow, every later step may be skipped",
        hint,
    )


def no_update(
    hint: str = "call scaler.update() at the end of every iteration, also when you skip the step yourself",
    what: str = "an iteration",
) -> Finding:
    """Report an iteration, or ``what`` else ends with an update, that the scaler was not told to end."""
    return failed(
        "no_update",
        f"{what} ended without scaler.update(): the scaler still holds its inf check and refuses "
        "another; after an overflow it would never learn that its scale is too large",
        hint,
    )


def update_without_step(
    when: str = "in an iteration that left scaler.step(optimizer) out (because its loss was not finite, say)",
    hint: str = "call scaler.step(optimizer) in every iteration: it leaves the step out by itself when a "
    "gradient is not finite",
) -> Finding:
    """Report that the scaler was to learn from gradients that nothing had checked."""
    return failed(
        "update_without_step",
        f"scaler.update() was called {when}: there was no inf check to learn from",
        hint,
    )


def update_every_batch() -> Finding:
    """Report what belongs to the end of a window of accumulated batches, and was done within it."""
    return failed(
        "update_every_batch",
        "scaler.unscale_() or scaler.update() was called within a window of batches: the gradients that are "
        "added up there must all be multiplied by one scale, until the step",
        "unscale_, step and update belong together, once per window",
    )


def update_twice() -> Finding:
    """Report a second ``update`` in one iteration."""
    return failed(
        "update_twice",
        "scaler.update() was called twice in one iteration: the second has no inf check to learn from",
        "one scaler.update() per iteration, after the step",
    )


def update_before_step() -> Finding:
    """Report an ``update`` that came before the step."""
    return failed(
        "update_before_step",
        "scaler.update() was called before scaler.step(optimizer): no gradient had been checked for inf yet",
        "call scaler.update() after scaler.step(optimizer)",
    )


def update_between_steps(which: str, hint: str) -> Finding:
    """Report an ``update`` between a backward pass and its step; ``which`` is off by it."""
    return failed(
        "update_between_steps",
        f"{which}: scaler.update() changed the scale between its backward pass and its step",
        hint,
    )


def scaler_recreated() -> Finding:
    """Report a scaler that took another's place while training went on."""
    return failed(
        "scaler_recreated",
        "a new GradScaler was made during training: its scale starts at the initial value again, and what "
        "was learned from overflows is forgotten",
        "make one GradScaler before the first epoch",
    )


def scale_reset(how: str) -> Finding:
    """Report a scale that was set back; ``how`` says from where to where, or by what."""
    return failed(
        "scale_reset",
        f"between two batches the scale was set {how}, not by scaler.update(): what was learned from "
        "overflows is forgotten",
        "leave the scale to scaler.update(); load a scaler's state only when training is resumed",
    )


def scaler_with_bfloat16() -> Finding:
    """Remark on a scaler that bf16 does not need."""
    return note(
        "scaler_with_bfloat16",
        "the scaler is also enabled for bf16: harmless, the updates are the same bit for bit, but not "
        "needed, since bf16 has the exponent range of fp32",
        "GradScaler(device_type, enabled=dtype == torch.float16)",
    )


def deprecated_api(spelling: str) -> Finding:
    """Remark on an old ``spelling``, as in "torch.cuda.amp.autocast"."""
    return note(
        "deprecated_api",
        f"{spelling} is deprecated and warns in current PyTorch",
        f"write torch.amp.{spelling.rsplit('.', 1)[-1]}(device_type, …)",
    )


def closure() -> Finding:
    """Report that ``scaler.step`` was given more than the optimizer."""
    return failed(
        "closure",
        "scaler.step was given a closure; the scaler cannot check gradients that the closure computes "
        "afterwards",
        "do forward and backward yourself, then scaler.step(optimizer) without a closure",
    )


def no_gradients() -> Finding:
    """Report a step for which the scaler found no gradient at all."""
    return failed(
        "no_gradients",
        "scaler.step(optimizer) found no gradient on any parameter of the optimizer: backward filled others",
        "train the model that was passed in, with the optimizer that was passed in",
    )


def overflow_not_skipped(how: str) -> Finding:
    """Report a step in spite of inf or NaN; ``how`` says what was seen of it."""
    return failed(
        "overflow_not_skipped",
        f"a batch overflowed, and the weights changed all the same: {how}",
        "call scaler.step(optimizer), which leaves the weights alone when a gradient is not finite",
    )


def always_overflows(steps: int) -> Finding:
    """Report many ``steps`` skipped in a row."""
    return failed(
        "always_overflows",
        f"{steps} steps in a row were skipped, and every one of them halved the scale: inf or NaN do not "
        "come from the scale, but from the forward pass or from the data, and no scale will cure them",
        "look for the first inf or NaN of the forward pass; keep what overflows there in fp32, or use bf16",
    )


# --- what goes along with the optimizer's steps


def schedule_on_skipped_step(advanced: int, steps: int) -> Finding:
    """Report a schedule that was ``advanced`` more often than there were optimizer ``steps``."""
    return failed(
        "schedule_on_skipped_step",
        f"the learning rate's schedule was advanced {advanced} times for {steps} steps of the optimizer, "
        "also where a batch had overflowed and the scaler skipped the step: a warm-up is over too early",
        "advance it only where the step was made: scaler.update() lowers the scale after a skipped one",
    )


def average_on_skipped_step(advanced: int, steps: int) -> Finding:
    """Report averaged weights (an EMA) that were ``advanced`` more often than there were ``steps``."""
    return failed(
        "average_on_skipped_step",
        f"the averaged weights were updated {advanced} times for {steps} steps of the optimizer: where the "
        "scaler skipped the step they took in old weights once more, and their count runs ahead",
        "update them only where the step was made: scaler.update() lowers the scale after a skipped one",
    )


# --- gradients that are part of the loss


def penalty_on_scaled_gradients(counts: str) -> Finding:
    """Report a penalty on gradients that were still scaled; ``counts`` says how much it counts for that."""
    return failed(
        "penalty_on_scaled_gradients",
        f"the penalty counts {counts}: it was taken on gradients that were still multiplied by the "
        "loss scale, so that it drowns the loss, and overflows long before it",
        "bring what torch.autograd.grad returns to its true size before you take the penalty: "
        "scaler.get_scale() is what it was multiplied by",
    )


# --- what goes on beside the steps


def scaler_not_saved() -> Finding:
    """Report a checkpoint with an optimizer's state and without the scaler's."""
    return failed(
        "scaler_not_saved",
        "checkpoints were written with the optimizer's state and without the scaler's: training that goes on "
        "from them starts again at the first scale, and skips its first steps",
        'add "scaler": scaler.state_dict() to the checkpoint, and load it with scaler.load_state_dict',
    )


def logs_scaled(what: str) -> Finding:
    """Report a number that was read while it was multiplied by the loss scale."""
    return failed(
        "logs_scaled",
        f"{what} was read while it was multiplied by the loss scale: it jumps whenever the scale changes",
        "log loss.item() before scaling, and gradients after scaler.unscale_(optimizer)",
    )


def device_not_here(what: str, device: str) -> Finding:
    """Remark on autocast or a scaler, ``what``, that PyTorch has switched off."""
    return note(
        "device_not_here",
        f"{what} was made for {device!r}, which this machine does not have: PyTorch has switched it off, and "
        "what depends on it cannot be judged here",
        "pass the device that the model is on, as in torch.autocast(device.type) and GradScaler(device.type)",
    )


# --- numbers that 16 bits cannot hold


def average_stuck(came: str, half: str) -> Finding:
    """Report a moving average that is rounded to ``half`` precision; ``came`` says what was seen of it."""
    return failed(
        "average_stuck",
        f"{came}: the average is rounded to {half} in every step, and what is left of an update after "
        "(1 - decay) is too small to survive that",
        "keep the average, and decay, in more digits than the weights have",
    )


def positions_rounded(seen: str, lacking: str) -> Finding:
    """Report positions that run together; ``seen`` says of what, ``lacking`` what the format lacks."""
    return failed(
        "positions_rounded",
        f"{seen}: the positions are rounded to a format that has no {lacking}, and several of them become "
        "one",
        "compute with the positions in fp32 from the beginning; cos and sin may be cast",
    )


def metric_stops(seen: str, half: str, stop: float) -> Finding:
    """Report a sum in ``half`` precision that takes no more ones from ``stop`` on; ``seen`` says where."""
    return failed(
        "metric_stops",
        f"{seen}: a sum in {half} takes no more ones from {stop:,.0f} on, where they are half of its "
        "spacing, and stands still while the number of samples grows",
        "sum in fp32, in integers, or in Python's own numbers",
    )


def metric_rounded(
    seen: str, how: str, hint: str = "sum in fp32, in integers, or in Python's own numbers"
) -> Finding:
    """Report a metric that is not the true one; ``seen`` gives both, ``how`` says when it was rounded."""
    return failed("metric_rounded", f"{seen}: {how}", hint)


def eps_vanishes(seen: str, how: str, hint: str = "add eps where it is a number: in fp32") -> Finding:
    """Report a small constant that a format does not have; ``seen`` says where, ``how`` it vanished."""
    return failed("eps_vanishes", f"{seen}: {how}", hint)


def masked_row_nan(seen: str) -> Finding:
    """Report a mask whose number is -inf in 16 bits; ``seen`` says where."""
    return failed(
        "masked_row_nan",
        f"{seen}: -1e9 is beyond fp16, where it becomes -inf, and softmax of nothing but -inf divides zero "
        "by zero",
        "mask with a number that the dtype has, or with a bool mask, and give such rows zeros",
    )
