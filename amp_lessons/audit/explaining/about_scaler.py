"""How a scaler is made, kept and fed; its calls in a wrong order, or one of them missing."""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message

_SOURCE = "torch/amp/grad_scaler.py"

SCALER = (
    Message(
        name="scaler_off",
        patterns=(r"GradScaler is enabled, but (CUDA|\w+) is not available",),
        meaning="A `GradScaler` for CUDA was made where PyTorch sees no CUDA device. It has turned itself "
        "off: its scale is 1 and all its methods only pass through, so fp16 gradients underflow unnoticed.",
        cure="Name the device that you train on: `torch.amp.GradScaler(device.type)`. On a machine with a "
        "GPU, see why `torch.cuda.is_available()` is False.",
        lesson="03",
        source=_SOURCE,
        seen_at="https://github.com/karpathy/nanoGPT/pull/481",
    ),
    Message(
        name="no_scaler_in_torch_amp",
        patterns=(
            r"module 'torch(\.amp)?' has no attribute 'GradScaler'",
            r"cannot import name 'GradScaler' from 'torch\.amp'",
        ),
        meaning="This PyTorch is older than 2.3, where `torch.amp.GradScaler` came for all devices. "
        "Before, the scaler was CUDA's own.",
        cure="Update PyTorch; or write `torch.cuda.amp.GradScaler()`, which takes no device.",
        lesson="03",
        source=_SOURCE,
        seen_at="https://github.com/ultralytics/ultralytics/issues/14677",
    ),
    Message(
        name="scaler_factors",
        patterns=(
            r"The growth factor must be > 1\.0",
            r"The backoff factor must be < 1\.0",
        ),
        meaning="The scale has to rise when all was well for a while, and to fall after an overflow; with "
        "these factors it would do neither.",
        cure="Take `growth_factor` above 1 and `backoff_factor` below 1. For a constant scale, leave the "
        "factors and give a `growth_interval` longer than the training; it will still fall after an "
        "overflow.",
        lesson="03",
        source=_SOURCE,
    ),
    Message(
        name="fp16_gradients",
        patterns=(r"Attempting to unscale FP16 gradients",),
        meaning="The parameters themselves are fp16, and so are their gradients (from PyTorch 2.10 on unless "
        "`grad_dtype` is set): `model.half()` was "
        "called, the checkpoint was loaded in fp16, or it was saved with `model.half().state_dict()`, "
        "which changes the model in place. Unscaled in fp16, small gradients would be lost, which the "
        "scale was to prevent.",
        cure="Keep the parameters in fp32, `model.float()` before the optimizer is made, and let autocast "
        "cast. For weights that are trained in 16 bits on purpose, take bf16 without a scaler.",
        lesson="03",
        source=_SOURCE,
        seen_at="https://github.com/haotian-liu/LLaVA/issues/363",
    ),
    Message(
        name="bf16_gradients_on_cuda",
        patterns=(r"_amp_foreach_non_finite_check_and_unscale_\w+\"? not implemented for '?BFloat16",),
        meaning="A `GradScaler` was to unscale bf16 gradients, for which CUDA has no kernel in this "
        "version (the CPU has one, so it shows on a GPU only). The parameters are bf16.",
        cure="Leave the scaler out: bf16 has the range of fp32 and needs none, `GradScaler(device, "
        "enabled=dtype == torch.float16)`. Or keep the parameters in fp32, and let autocast cast to bf16.",
        lesson="03",
        source="C++",
        seen_at="https://github.com/pytorch/pytorch/issues/127176",
    ),
    Message(
        name="not_a_loss",
        patterns=(r"outputs must be a Tensor or an iterable of Tensors",),
        meaning="`scaler.scale` was given something that is no tensor, often a number from `loss.item()`, "
        "or a model's whole output.",
        cure="Give it the loss as a tensor that still has its graph: `scaler.scale(loss).backward()`.",
        lesson="03",
        source=_SOURCE,
    ),
    Message(
        name="new_scale",
        patterns=(r"new_scale should be a float or a 1-element",),
        meaning="`scaler.update(new_scale)` was given a tensor of several elements, on another device, or "
        "one that asks for gradients.",
        cure="Give it a float, `scaler.update(1024.0)`, or call `scaler.update()` and let it find the scale.",
        lesson="03",
        source=_SOURCE,
    ),
    Message(
        name="empty_scaler_state",
        patterns=(
            r"state dict is empty, possibly because it was saved from a disabled instance of GradScaler",
        ),
        meaning="The checkpoint was saved by a run whose scaler was off (bf16, fp32, or no GPU), so it "
        "holds no scale to go on from.",
        cure="Load it only if there is something in it: `if state: scaler.load_state_dict(state)`. The "
        "scale then starts at `init_scale`, and the first steps may be skipped until it fits.",
        lesson="03",
        source=_SOURCE,
        seen_at="https://github.com/huggingface/transformers/pull/11663",
    ),
    Message(
        name="scaler_pickled_in_mid_step",
        patterns=(r"A GradScaler instance may only be pickled at the beginning",),
        meaning="The scaler was pickled or copied between `unscale_` or `step` and `update`, when it "
        "remembers gradients that it has looked at.",
        cure="Save after `scaler.update()`, and save `scaler.state_dict()` rather than the scaler.",
        lesson="03",
        source=_SOURCE,
    ),
    Message(
        name="scaler_passed_to_optimizer",
        patterns=(r"GradScaler is going to stop passing itself as a keyword argument",),
        meaning="An optimizer's `step` takes `grad_scaler`, an old way for optimizers that unscale by "
        "themselves.",
        cure="Update the library that the optimizer comes from; one of your own reads `self.grad_scale` "
        "and `self.found_inf`, which the scaler sets.",
        lesson="03",
        source=_SOURCE,
    ),
    Message(
        name="scaler_inside",
        patterns=(
            r"_scale should not be None after lazy init",
            r"_get_scale_async returned None",
            r"expected param to be torch\.Tensor, got \S+",
            r"Expected supported device, got \S+",
        ),
        meaning="The scaler found something in itself or in the optimizer that cannot be there by its own "
        "calls: private attributes were set by hand, the optimizer holds something other than tensors, or "
        "the loss lies on a device that the scaler was not made for.",
        cure="Make the scaler anew for the loss's device, `torch.amp.GradScaler(loss.device.type)`, load "
        "its `state_dict()`, and set none of its attributes that begin with an underscore.",
        lesson="03",
        source=_SOURCE,
    ),
)


_CALLS_SOURCE = "torch/amp/grad_scaler.py"

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
        source=_CALLS_SOURCE,
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
        source=_CALLS_SOURCE,
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
        source=_CALLS_SOURCE,
    ),
    Message(
        name="stepped_twice",
        patterns=(r"step\(\) has already been called since the last update\(\)",),
        meaning="`scaler.step` ran twice for one optimizer with no `scaler.update()` between. Either "
        "`update` is missing, or there are two steps for one batch.",
        cure="Call `scaler.update()` once at the end of each iteration, after the steps of all optimizers.",
        lesson="03",
        source=_CALLS_SOURCE,
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
        source=_CALLS_SOURCE,
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
        source=_CALLS_SOURCE,
        seen_at="https://github.com/huggingface/accelerate/issues/357",
    ),
    Message(
        name="closure",
        patterns=(
            r"Closure use is not currently supported if GradScaler is enabled",
            r"AMP and the LBFGS optimizer are not compatible",
        ),
        meaning="A closure computes gradients anew within the step, where the scaler cannot check them. "
        "Optimizers that need one, such as LBFGS, do not go with a `GradScaler`. A closure that is passed "
        "by position is not refused: it runs, unchecked.",
        cure="Do forward and backward yourself, then `scaler.step(optimizer)`. With LBFGS, train in bf16, "
        "which needs no scaler.",
        lesson="03",
        source=_CALLS_SOURCE,
    ),
)
