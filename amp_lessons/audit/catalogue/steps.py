"""Mistakes from the loss to the step: gradients of something else, scaled, unscaled and applied."""

from __future__ import annotations

from amp_lessons.audit.catalogue.rows import Worded, mistake, remark

# --- from the loss to its gradients


@mistake("backward had no graph to go through", costs="stops")
def no_graph() -> Worded:
    """Report a loss that backward cannot start from."""
    return (
        "backward had nothing to go through: the loss was computed under no_grad, or detached with "
        ".detach() or .item()",
        "call backward on the tensor that the loss function returned, computed with gradients enabled",
    )


@mistake("backward went through one loss twice")
def backward_twice() -> Worded:
    """Report two backward passes through one loss."""
    return (
        "backward was called twice through the same loss: every gradient is counted twice",
        "one scaler.scale(loss).backward() per batch",
    )


@mistake("a backward pass went through the graph of another", costs="stops")
def graph_used_twice(how: str, hint: str) -> Worded:
    """Report a backward pass through a graph that another had freed; ``how`` says which."""
    return (f"the second backward went through the graph of the first: {how}", hint)


@mistake("the loss was computed outside autocast, and so in 16 bits", lesson="02", costs="rounded")
def loss_outside_autocast(half: str, loss: str = "the loss", part: bool = False) -> Worded:
    """Report ``loss`` (whose, or a ``part`` of it) computed on outputs in ``half`` where autocast was off."""
    whole = "the scale 65536 overflows at the very start of backward"
    return (
        f"{loss} was computed outside autocast on {half} outputs, so it is itself {half}: it loses "
        f"digits, and in fp16 {'scaled gradients overflow there sooner' if part else whole}",
        "compute the loss inside the autocast context, which returns losses in fp32, or on outputs.float()",
    )


@mistake("the loss was cast to 16 bits before backward", lesson="03", costs="rounded")
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


@mistake("the loss was multiplied by a factor of its own", unseen="a loss may have any weight")
def loss_rescaled(update: str, factor: float, how: str, hint: str) -> Worded:
    """Report an ``update`` (whose) off by ``factor``, as its loss was; ``how`` says what was seen of it."""
    return (f"{update} is {factor:.4g} times the right one: {how}", hint)


@mistake("scaler.scale was given something that is not a tensor", costs="stops")
def scale_needs_a_tensor() -> Worded:
    """Report that ``scaler.scale`` was given a float, or None."""
    return (
        "scaler.scale() was given something that is not a tensor (a float from loss.item(), or what "
        "backward() returns)",
        "write scaler.scale(loss).backward(), with loss the tensor that the loss function returned",
    )


@mistake("the loss went backward without being scaled", lesson="03", costs="rounded")
def loss_not_scaled(
    why: str,
    effect: str = "gradients below 2⁻²⁵ vanish in fp16",
    loss: str = "the loss",
    hint: str = "call scaler.scale(loss).backward()",
) -> Worded:
    """Report that ``loss`` (whose) went backward as it is; ``why`` is what shows it."""
    return (f"{loss} was not scaled before backward ({why}): {effect}", hint)


@mistake("the loss was scaled without the scaler's knowing")
def scaled_by_hand(factor: float) -> Worded:
    """Report a loss that was multiplied by ``factor`` without the scaler's knowing."""
    return (
        f"the loss was multiplied by {factor:g} by hand: scaler.scale was never called, so the scaler "
        "does not know by what to divide the gradients",
        "call scaler.scale(loss).backward()",
    )


@mistake("the loss was scaled, and the unscaled one went backward")
def scaled_loss_discarded(by: str) -> Worded:
    """Report a scaled loss that nobody used; ``by`` says what the gradients are divided by."""
    return (
        "scaler.scale(loss) was called but backward ran on the unscaled loss, so scaler.step divides "
        f"gradients by {by} that were never multiplied by it",
        "use what scale returns: scaler.scale(loss).backward()",
    )


@mistake("the loss scale is too small for small gradients to survive", costs="rounded")
def scale_too_small(scale: float, effect: str) -> Worded:
    """Report gradients that vanished although the loss was scaled."""
    return (
        f"the loss scale {scale:g} is too small: {effect}",
        "leave init_scale at its default, 65536; the scaler lowers it by itself",
    )


@mistake("negative gradients were left out", unseen="a scale of one's own is no GradScaler's")
def signs_ignored(effect: str, hint: str) -> Worded:
    """Report that the largest number was taken where the largest magnitude decides."""
    return (effect, hint)


@mistake("the scale has an upper bound", unseen="a scaler of one's own is no GradScaler")
def capped(seen: str) -> Worded:
    """Report a scale that does not grow beyond a bound, although nothing would overflow."""
    return (
        f"{seen}: the scale was given an upper bound",
        "set no upper bound: GradScaler begins at 65536, but may grow beyond it, and an overflow lowers a "
        "scale that is too large",
    )


@mistake("the model's outputs were scaled instead of the loss")
def outputs_scaled() -> Worded:
    """Report that ``scaler.scale`` was given many numbers."""
    return (
        "scaler.scale was called on a tensor of many numbers (the model's outputs, say), not on the "
        "loss: a loss of scaled outputs is another function, and its gradients are not the scaled ones",
        "compute the loss first, then call scaler.scale(loss).backward()",
    )


# --- steps


@mistake("gradients of an earlier step were still there")
def no_zero_grad(
    gradients: str = "the gradients", optimizer: str = "optimizer", now_and_then: bool = False
) -> Worded:
    """Report that backward added to the ``gradients`` (whose) of an earlier step.

    ``now_and_then`` says that they are cleared, but not once for every step.
    """
    if now_and_then:
        return (
            f"{gradients} still contained those of an earlier step: they were cleared only now and then, "
            "several steps apart, so that each step applied those before it once more",
            f"step only where {optimizer}.zero_grad() follows before the next backward pass: once per window "
            "of batches that are added up",
        )
    return (
        f"{gradients} still contained those of an earlier step: they were not set to zero in between, and "
        "backward added to them",
        f"call {optimizer}.zero_grad() once per update, before the forward pass or after the step",
    )


@mistake("gradients were set to zero before the step could apply them", costs="stops")
def gradients_cleared(optimizer: str = "optimizer") -> Worded:
    """Report gradients that were set to zero before ``optimizer`` could apply them."""
    return (
        f"the gradients were cleared, as zero_grad() does, between backward and the {optimizer} step, which "
        "had none left to apply",
        f"call {optimizer}.zero_grad() before the forward pass, or after the step",
    )


@mistake("the optimizer applied gradients that were still scaled")
def optimizer_step_direct(
    scale: float | None, gradients: str = "the gradients", optimizer: str = "optimizer"
) -> Worded:
    """Report that an optimizer applied ``gradients`` (whose) still multiplied by ``scale``, where known."""
    times = f" {scale:g} times" if scale is not None else ""
    return (
        f"{optimizer}.step() was called directly: it applied {gradients} while they were still{times} too "
        "large (the loss scale), and nothing checked them for inf",
        f"call scaler.step({optimizer}) instead: it unscales, checks for inf and only then steps",
    )


@remark("a window's losses, each a mean, were added up", lesson="04", only_audit=True)
def window_added_up(passes: int) -> Worded:
    """Remark on gradients that are the sum of those of as many ``passes``."""
    return (
        f"{passes} losses went backward for each step, each the mean of its own batch, and none was divided: "
        f"the gradients are their sum, {passes} times as large as those of the mean of all",
        f"where the mean is meant, divide each loss by {passes} before it goes backward",
    )


@mistake("there were two steps where one belongs")
def double_step(
    step: str = "the optimizer stepped",
    how: str = "",
    hint: str = "one scaler.step(optimizer) per iteration: it calls optimizer.step() itself",
) -> Worded:
    """Report two steps where one belongs; ``step`` is what was done twice."""
    return (f"{step} twice in one iteration{f': {how}' if how else ''}", hint)


@mistake("no step followed the backward pass", costs="stops")
def no_step() -> Worded:
    """Report backward passes that no step ever followed."""
    return (
        "gradients were computed but no step followed: the weights did not change",
        "call scaler.step(optimizer) after backward",
    )


@mistake("a step was made for which no gradients were left")
def step_without_backward(step: str = "scaler.step(optimizer)", left_out: bool = False) -> Worded:
    """Report a ``step`` that found no gradient: it had been made, or the backward pass was ``left_out``."""
    if left_out:
        return (
            f"{step} was called although the loss was not finite and its backward pass had been left out: "
            "there was no gradient to step with",
            "call backward whatever the loss: scaler.step leaves out the step, and scaler.update lowers the "
            "scale",
        )
    return (
        f"{step} was called once more after the step that had applied the gradients, with no backward pass "
        "in between: with momentum or weight decay the weights would move all the same",
        "step once for the gradients that were added up; a step at the end of an epoch belongs only where "
        "gradients are still waiting",
    )


@mistake(
    "gradients were changed between backward and the step",
    unseen="gradients may be changed once they are unscaled",
)
def gradients_changed(
    whose: str,
    optimizer: str = "optimizer",
    how: str = ", which this exercise does not ask for",
    hint: str = "apply the gradients as they are",
) -> Worded:
    """Report gradients (``whose``) that the ``optimizer`` was not given as backward left them."""
    return (
        f"{whose} were changed between backward and the {optimizer} step{how}",
        hint,
    )


@mistake("the step came before the backward pass", costs="stops")
def step_before_backward(backward: str = "backward had produced any gradient") -> Worded:
    """Report a step that came before ``backward``."""
    return (
        f"scaler.step(optimizer) was called before {backward}",
        "call backward first: the step applies the gradients that it leaves in .grad",
    )


@mistake("the gradients were divided by the loss scale twice")
def unscaled_twice(scale: float | None, update: str = "the update") -> Worded:
    """Report gradients that were divided by the loss scale twice; ``update`` says whose it was."""
    times = "by the loss scale" if scale is None else f"{scale:g} times"
    return (
        f"{update} is {times} too small: the gradients were divided by the loss scale twice",
        "leave the unscaling to scaler.unscale_ or scaler.step, which do it once",
    )


@mistake("something other than the optimizer changed the weights", unseen="weights may be decayed or clamped")
def weights_changed(although: str) -> Worded:
    """Report weights that moved otherwise than by the optimizer; ``although`` says what it did."""
    return (
        f"{although}, but the weights changed otherwise as well: something other than the optimizer writes "
        "to the parameters, or the learning rate was changed for a while",
        "leave the weights and the optimizer's settings to the optimizer",
    )


@mistake("an update is wrong, and no known mistake explains it", unseen="any loss is somebody's")
def wrong_update(update: str, how_far: str, hint: str) -> Worded:
    """Report an ``update`` (whose) that no known mistake explains."""
    return (f"{update} is not plain SGD on the gradient of its loss: {how_far}", hint)


@mistake("gradients were clipped while they were still scaled")
def clip_before_unscale(how: str, effect: str) -> Worded:
    """Report gradients clipped while they were scaled; ``how`` says by what, ``effect`` what came of it."""
    return (
        f"the gradients were clipped {how}: {effect}",
        "call scaler.unscale_(optimizer) before you clip: max_norm is meant for gradients of their true size",
    )


@mistake("gradients were clipped after the step")
def clip_after_step(applied: str) -> Worded:
    """Report gradients clipped too late; ``applied`` says which gradient the step had applied."""
    return (
        f"the gradients were clipped after the step, which had already applied {applied}",
        "clip between scaler.unscale_(optimizer) and scaler.step(optimizer)",
    )


@mistake("gradients were changed while they were still scaled")
def gradients_changed_before_unscale(larger: str) -> Worded:
    """Report gradients changed while they were scaled; ``larger`` says how much larger they were."""
    return (
        "the gradients were changed (clipped, decayed, replaced) while they were still multiplied by "
        f"the loss scale, so a threshold meant for true gradients acted on values {larger} larger",
        "call scaler.unscale_(optimizer) before you change the gradients",
    )


@mistake("scaler.unscale_ was called twice in one iteration", costs="stops")
def unscale_twice() -> Worded:
    """Report a second ``unscale_`` in one iteration."""
    return (
        "scaler.unscale_(optimizer) was called twice in one iteration: the second would divide the "
        "gradients by the scale again, so PyTorch refuses",
        "call scaler.unscale_(optimizer) once, after backward and before clipping; scaler.step will "
        "not repeat it",
    )


@mistake("scaler.unscale_ was called before there were gradients", costs="stops")
def unscale_without_gradients(
    why: str = "backward, which puts them there, had not run yet",
    hint: str = "call scaler.unscale_(optimizer) after backward",
) -> Worded:
    """Report an ``unscale_`` with nothing to divide; ``why`` says where gradients come from."""
    return (
        "scaler.unscale_(optimizer) was called when no parameter had a gradient: it divides what is in "
        f".grad, and {why}",
        hint,
    )


@mistake("scaler.unscale_ was called after the step", costs="stops")
def unscale_after_step() -> Worded:
    """Report an ``unscale_`` that came after the step."""
    return (
        "scaler.unscale_(optimizer) was called after scaler.step(optimizer) in the same iteration: the "
        "step had already unscaled the gradients and used them",
        "call scaler.unscale_(optimizer) before the step, or leave it out: the step unscales by itself",
    )


# --- gradients that are part of the loss


@mistake("the penalty was taken on gradients that were still scaled")
def penalty_on_scaled_gradients(counts: str) -> Worded:
    """Report a penalty on gradients that were still scaled; ``counts`` says how much it counts for that."""
    return (
        f"the penalty counts {counts}: it was taken on gradients that were still multiplied by the "
        "loss scale, so that it drowns the loss, and overflows long before it",
        "bring what torch.autograd.grad returns to its true size before you take the penalty: "
        "scaler.get_scale() is what it was multiplied by",
    )
