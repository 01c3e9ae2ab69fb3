"""The scaler's calls in a wrong order, or one of them missing."""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message

_SOURCE = "torch/amp/grad_scaler.py"

SCALER_CALLS = (
    Message(
        name="nothing_scaled",
        patterns=(
            r"Attempted \S+ but _(scale|growth_tracker) is None",
            r"_scale is None in (unscale_|update)",
            r"Expected _scale (and _growth_tracker )?to be initialized",
        ),
        meaning="A `GradScaler` was asked to unscale, step or update before it had ever scaled a loss. It "
        "makes its scale at the first `scaler.scale(loss)`, on the loss's device.",
        cure="Call `scaler.scale(loss).backward()` in place of `loss.backward()`, with the same scaler "
        "that you step with. After a resume it is the same: the scale is loaded, but a loss must be scaled "
        "before the step.",
        lesson="03",
        source=_SOURCE,
        seen_at="https://github.com/facebookresearch/fairseq2/issues/1346",
    ),
    Message(
        name="unscaled_twice",
        patterns=(r"unscale_\(\) has already been called on this optimizer since the last update",),
        meaning="The gradients of this optimizer are unscaled already; dividing them by the scale again "
        "would make them too small. It happens when `unscale_` runs for every micro-batch, when a "
        "framework that clips for you has unscaled them, or when a batch was left with `continue` before "
        "`update`.",
        cure="Call `scaler.unscale_(optimizer)` once per optimizer step, after the last backward pass of "
        "the window, and reach `scaler.update()` on every way out of the step.",
        lesson="03",
        source=_SOURCE,
        seen_at="https://github.com/huggingface/transformers/issues/24449",
    ),
    Message(
        name="unscaled_after_step",
        patterns=(r"unscale_\(\) is being called after step\(\)",),
        meaning="`unscale_` came after `step`: the gradients have been used already. Most often `update` "
        "is missing at the end of the iteration before, so the scaler still counts it as the same one.",
        cure="Keep the order `scaler.scale(loss).backward()`, `scaler.unscale_(optimizer)`, clip, "
        "`scaler.step(optimizer)`, `scaler.update()`.",
        lesson="03",
        source=_SOURCE,
    ),
    Message(
        name="stepped_twice",
        patterns=(r"step\(\) has already been called since the last update\(\)",),
        meaning="`scaler.step` ran twice for one optimizer with no `scaler.update()` between. Either "
        "`update` is missing, or there are two steps for one batch.",
        cure="Call `scaler.update()` once at the end of each iteration, after the steps of all optimizers.",
        lesson="03",
        source=_SOURCE,
        seen_at="https://github.com/Azure/MS-AMP/pull/45",
    ),
    Message(
        name="no_gradients_to_check",
        patterns=(r"No inf checks were recorded for this optimizer",),
        meaning="`scaler.step` found no gradient at all: every `.grad` of this optimizer is None. "
        "Gradients were set to None between backward and step, or none of its parameters had a part in the "
        "loss.",
        cure="Move `optimizer.zero_grad()` before the forward pass, and see that the optimizer was given "
        "the parameters that are trained: `[p.grad is None for p in model.parameters()]` after backward. "
        "Leave out the step of an optimizer that has nothing to do in this iteration.",
        lesson="03",
        source=_SOURCE,
        seen_at="https://github.com/SheldonTsui/GOF_NeurIPS2021/issues/2",
    ),
    Message(
        name="update_without_check",
        patterns=(r"No inf checks were recorded prior to update",),
        meaning="`scaler.update` has nothing to learn from: since the last update neither `scaler.step` "
        "nor `scaler.unscale_` looked at any gradient. Often `optimizer.step()` was called directly, so "
        "that the weights moved by gradients that are too large by the scale, or `update` was called "
        "twice.",
        cure="Call `scaler.step(optimizer)` in place of `optimizer.step()`, and `scaler.update()` once "
        "after it.",
        lesson="03",
        source=_SOURCE,
        seen_at="https://github.com/huggingface/accelerate/issues/357",
    ),
    Message(
        name="closure",
        patterns=(r"Closure use is not currently supported if GradScaler is enabled",),
        meaning="A closure computes gradients anew within the step, where the scaler cannot check them. "
        "Optimizers that need one, such as LBFGS, do not go with a `GradScaler`. A closure that is passed "
        "by position is not refused: it runs, unchecked.",
        cure="Do forward and backward yourself, then `scaler.step(optimizer)`. With LBFGS, train in bf16, "
        "which needs no scaler.",
        lesson="03",
        source=_SOURCE,
    ),
)
