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


def loss_in_half(half: str, loss: str = "the loss") -> Finding:
    """Report ``loss`` (whose) cast to ``half`` precision by hand."""
    return failed(
        "loss_in_half",
        f"{loss} was cast to {half} before backward: fp16 ends at 65504, so the scale 65536 becomes inf",
        "keep the loss in fp32, as it comes out of the autocast context",
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
    effect: str = "gradients below 2^-25 vanish in fp16",
    loss: str = "the loss",
    hint: str = "call scaler.scale(loss).backward()",
) -> Finding:
    """Report that ``loss`` (whose) went backward as it is; ``why`` is what shows it."""
    return failed("loss_not_scaled", f"{loss} was not scaled before backward ({why}): {effect}", hint)


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


def step_without_backward(step: str = "scaler.step(optimizer)") -> Finding:
    """Report a ``step`` for which no gradient was left: the step before it had applied them."""
    return failed(
        "step_without_backward",
        f"{step} was called once more after the step that had applied the gradients, with no backward pass "
        "in between: with momentum or weight decay the weights would move all the same",
        "step once for the gradients that were added up; a step at the end of an epoch belongs only where "
        "gradients are still waiting",
    )


def gradients_changed(whose: str, optimizer: str = "optimizer") -> Finding:
    """Report gradients (``whose``) that the ``optimizer`` was not given as backward left them."""
    return failed(
        "gradients_changed",
        f"{whose} were changed between backward and the {optimizer} step, which this exercise does not ask "
        "for",
        "apply the gradients as they are",
    )


def step_before_backward(backward: str = "backward had produced any gradient") -> Finding:
    """Report a step that came before ``backward``."""
    return failed(
        "step_before_backward",
        f"scaler.step(optimizer) was called before {backward}",
        "the order is forward, scaler.scale(loss).backward(), scaler.step(optimizer), scaler.update()",
    )


def unscaled_twice(scale: float, update: str = "the update") -> Finding:
    """Report gradients that were divided by the loss scale twice; ``update`` says whose it was."""
    return failed(
        "unscaled_twice",
        f"{update} is {scale:g} times too small: the gradients were divided by the loss scale twice",
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


def closure() -> Finding:
    """Report that ``scaler.step`` was given more than the optimizer."""
    return failed(
        "closure",
        "scaler.step was given a closure; the scaler cannot check gradients that the closure computes "
        "afterwards",
        "do forward and backward yourself, then scaler.step(optimizer) without a closure",
    )
