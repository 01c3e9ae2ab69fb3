"""Backward passes, optimizers, memory and several processes in a training with mixed precision."""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message

GRADIENTS = (
    Message(
        name="nan_in_backward",
        patterns=(
            r"Function '\w+' returned nan values in its \d+\w+ output",
            r"Compiled [Aa]utograd returned NaN gradients",
            r"inputs\[\S+\] already having NaN gradient",
        ),
        meaning="Anomaly detection stopped at the first operation whose gradient is NaN. With a "
        "`GradScaler` an overflow is part of its work: the scale starts too high, inf times 0 is NaN, and "
        "the step would only have been skipped. NaN at a low scale, or without one, is a real fault of "
        "this operation.",
        cure="Try again with the scaler off, or with `init_scale=1.0`. If NaN stays, look at the forward "
        "line that the warning before it names: a square root or a division at 0, a log of 0, an eps that "
        "16 bits round to 0. Compute that in fp32.",
        lesson="06",
        source="C++",
    ),
    Message(
        name="loss_not_finite",
        patterns=(
            r"Loss is (nan|-?inf), stopping training",
            r"non-finite loss, ending training",
            r"Loss became infinite or NaN at iteration",
            r"found (NaN|Inf) in local forward loss calculation",
        ),
        meaning="The loss itself is NaN or inf, so the fault lies in the forward pass or in the weights, "
        "where no scaler helps: it mends gradients. In fp16 some activation passed 65,504 (attention "
        "scores, often); or an earlier step, unscaled wrongly or too large, has made the weights NaN.",
        cure="Repeat that batch with autocast off. If the loss is finite, take bf16, or keep in fp32 what "
        "overflows (`amp-lessons audit` finds the first place). If not, look at the weights, "
        "`torch.isfinite(p).all()`, then at the data and the learning rate.",
        lesson="06",
        source="references/detection/engine.py of torchvision",
        seen_at="https://github.com/LTH14/mar/issues/69",
    ),
    Message(
        name="gradient_norm_not_finite",
        patterns=(r"found (NaN|Inf) in local grad norm",),
        meaning="Megatron looks at each rank's gradients before they are summed, so the rank that it names "
        "had NaN or inf of its own. The loss was finite: it is the backward pass, which in bf16 and FP8 no "
        "scaler watches.",
        cure="Repeat the iteration in fp32 or with FP8 off. NaN on one rank only, and not again when it is "
        "repeated: suspect the GPU. In fp16 with a dynamic scale Megatron leaves the check to the scaler.",
        lesson="08",
        source="megatron/core/distributed/param_and_grad_buffer.py",
        seen_at="https://github.com/NVIDIA/Megatron-LM/issues/2301",
    ),
    Message(
        name="logged_not_finite",
        patterns=(r"NaN or Inf found in input tensor",),
        meaning="A value that was sent to TensorBoard is NaN or inf. It is a warning of the logger's, and "
        "the training goes on. With a `GradScaler` a gradient norm may be inf in the steps that it skips; "
        "a loss may not.",
        cure="See which value it is. If it is the loss, stop: find the first step and tensor that is not "
        "finite. If it is a norm, log it after `scaler.unscale_(optimizer)`, and not in steps that the "
        "scaler skips.",
        lesson="06",
        source="tensorboardX/x2num.py",
        seen_at="https://github.com/lm-sys/FastChat/issues/2378",
    ),
    Message(
        name="norm_not_finite",
        patterns=(r"The total norm of order \S+ for gradients from `parameters` is non-finite",),
        meaning="Clipping with `error_if_nonfinite=True` met inf or NaN. With a `GradScaler` that is how "
        "it finds a scale that is too high: it would have skipped the step and lowered the scale.",
        cure="With a scaler leave `error_if_nonfinite` False, and clip after `scaler.unscale_(optimizer)`. "
        "Without one, in bf16 or fp32, the error is right: look for the first tensor that is not finite.",
        lesson="03",
        source="torch/nn/utils/clip_grad.py",
    ),
    Message(
        name="no_graph",
        patterns=(r"element \d+ of tensors does not require grad and does not have a grad_fn",),
        meaning="The loss has no graph to go back through. Apart from a detached or frozen loss, older "
        "versions of PyTorch lose it under autocast: a forward pass under `no_grad` leaves its cast "
        "weights in autocast's cache, and the training pass in the same `with` block takes them, without "
        "their history.",
        cure="Give the pass under `no_grad` an autocast block of its own, or say `cache_enabled=False`. If "
        "that changes nothing, look for `.detach()`, `.item()` or `requires_grad=False` on the way to the "
        "loss.",
        lesson="06",
        source="C++",
        seen_at="https://github.com/pytorch/pytorch/issues/120483",
    ),
    Message(
        name="backward_twice",
        patterns=(r"Trying to backward through the graph a second time",),
        meaning="Two backward passes went through one graph. Neither autocast nor the scaler does that: "
        "two losses share a forward pass, a step that was skipped is tried again with the same loss, or "
        "something is carried from one batch to the next, such as a hidden state or a summed loss.",
        cure="Where two losses share a forward pass, call `scaler.scale(loss_a + loss_b).backward()` once. "
        "After a skipped step go on with the next batch. Detach what is carried on.",
        lesson="06",
        source="C++",
    ),
    Message(
        name="checkpoint_recomputed_otherwise",
        patterns=(r"Recomputed values for the following tensors have different metadata",),
        meaning="Activation checkpointing repeated a forward pass and got tensors of another dtype or "
        "shape. If the dtypes differ, autocast was not the same both times: it was switched within the "
        "function from outside, or set by a hook that runs only once.",
        cure="Enter autocast around `checkpoint(...)`, or unconditionally inside the function, not in "
        "between; checkpointing restores the state it found at the call. Take `use_reentrant=False`.",
        lesson="07",
        source="torch/utils/checkpoint.py",
        unless=(r"recomputed metadata: \{'shape': torch\.Size\(\[0\]\)",),
    ),
)


OPTIMIZERS = (
    Message(
        name="schedule_before_step",
        patterns=(r"Detected call of `lr_scheduler\.step\(\)` before `optimizer\.step\(\)`",),
        meaning="The schedule moved on, but no optimizer step has happened yet. With a `GradScaler` the "
        "order in the code can be right: the first steps are often skipped, because the scale starts too "
        "high, and the schedule has lost as many of its values.",
        cure="Move the schedule only when the step happened: `before = scaler.get_scale()`, "
        "`scaler.step(optimizer)`, `scaler.update()`, then `if scaler.get_scale() >= before: "
        "schedule.step()`. Or begin with a lower `init_scale`.",
        lesson="03",
        source="torch/optim/lr_scheduler.py",
        seen_at="https://github.com/pytorch/pytorch/issues/44511",
    ),
    Message(
        name="fused_unscaling",
        patterns=(
            r"Expected grad_scale and found_inf to be None",
            r"found_inf must be a (1-element|float) tensor",
        ),
        meaning="Only the fused kernels unscale gradients by themselves. This optimizer was handed a scale "
        "that it cannot use, which the scaler does for fused ones only: `fused` was changed after the "
        "optimizer was made, or `grad_scale` and `found_inf` were set by hand.",
        cure="Choose when you make it, `torch.optim.AdamW(parameters, fused=True)` or without, and call it "
        "by `scaler.step(optimizer)` alone.",
        lesson="03",
        source="torch/optim/adam.py",
    ),
    Message(
        name="fused_state_dtypes",
        patterns=(
            r"Tensors of the same index must be on the same device and the same dtype except `step` tensors",
            r"Mixed-precision fused Adam",
        ),
        meaning="A parameter, its gradient and its optimizer state have different dtypes or devices. "
        "`model.half()` or `model.to(...)` came after the optimizer had made its state, or a state in "
        "another dtype was loaded. From PyTorch 2.12 on CUDA's fused Adam takes one mixture: fp32 parameters "
        "and gradients, both moments in bf16.",
        cure="Bring the model to its device and dtype first, then make the optimizer, then load its state.",
        lesson="04",
        source="C++",
    ),
    Message(
        name="average_in_another_dtype",
        patterns=(r"expected dtype \S+ for `?(end|weight)`?,? but got (dtype )?\w",),
        meaning="`lerp` was given two dtypes. Moving averages do that whose copy is in fp32 and whose "
        "model is in 16 bits, and Adam, when `half()` came after it had made its state in fp32.",
        cure="Cast to the average's dtype, `average.lerp_(weight.to(average.dtype), 1 - decay)`, and keep "
        "the average itself in fp32: in 16 bits it stops moving. Cast a model before its optimizer is "
        "made, not after. A `weight` that is a tensor is cast in the same way.",
        lesson="04",
        source="C++",
        seen_at="https://github.com/LoganBooker/prodigy-plus-schedule-free/issues/10",
    ),
)


MEMORY = (
    Message(
        name="out_of_memory",
        patterns=(
            r"\b(CUDA|HIP|XPU|MPS backend) out of memory",
            r"CUDA error: out of memory",
            r"DefaultCPUAllocator: (can't|not enough)",
        ),
        meaning="The device's memory is full. Autocast halves most of the activations that are kept for "
        "backward; it does not shrink parameters, gradients and optimizer state, which stay fp32 (16 bytes "
        "a parameter with Adam), and for a moment it adds a 16-bit copy of the weights.",
        cure="Halve the batch and accumulate gradients. If the peak hardly moves with the batch, "
        "parameters and optimizer state fill it: shard them, or take a smaller optimizer state. Keep no "
        "loss tensors in lists: `loss.item()`. `measure.predict_memory` says beforehand what will be "
        "needed.",
        lesson="05",
        source="C++",
        seen_at="https://github.com/pytorch/pytorch/issues/61173",
    ),
)


SHARDING = (
    Message(
        name="shards_of_two_dtypes",
        patterns=(
            r"FSDP expects uniform (original parameter|reduce) dtype",
            r"(Must flatten tensors with|requires) uniform dtype but got",
            r"Cannot flatten integer dtype tensors",
        ),
        meaning="Parameters that FSDP shards together have different dtypes: part of the model was loaded "
        "in 16 bits, or adapters in fp32 were added to it.",
        cure="Bring all to fp32 before sharding, `model.float()`, and let the policy cast, "
        "`MixedPrecisionPolicy(param_dtype=torch.bfloat16)`. What must keep another dtype is wrapped on "
        "its own.",
        lesson="08",
        source="torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py",
        seen_at="https://github.com/huggingface/accelerate/issues/1620",
    ),
    Message(
        name="norms_kept_out_of_16_bits",
        patterns=(r"Both mixed precision and an auto_wrap_policy were specified to FSDP",),
        meaning="FSDP has kept batch normalisation (or the classes that the policy names) in fp32, each as "
        "an instance of its own. That is usually what one wants.",
        cure="Nothing to do. To choose yourself, give `MixedPrecision(_module_classes_to_ignore=...)`, or "
        "take `fully_shard`, which leaves the choice to you.",
        lesson="08",
        source="torch/distributed/fsdp/_wrap_utils.py",
    ),
    Message(
        name="sharding_policy",
        patterns=(
            r"Invalid fsdp_pre_all_gather",
            r"Expected _(fwd_bwd_param|reduce)_dtype to be not None",
            r"Expected buffers and buffer_dtypes to have the same length",
        ),
        meaning="FSDP's mixed precision policy and the module do not fit: an extension has another "
        "signature, or the policy was changed after sharding.",
        cure="Give the policy when the module is sharded and leave it. An extension such as torchao's "
        "float8 has to fit the version of PyTorch: update both.",
        lesson="08",
        source="torch/distributed/fsdp/_fully_shard/_fsdp_param.py",
    ),
    Message(
        name="reduced_in_two_dtypes",
        patterns=(
            r"Invalid usage of tensors with different dtypes",
            r"Invalid scale shape for fp8 all-gather",
        ),
        meaning="The ranks, or the tensors of one call, brought different dtypes to a collective.",
        cure="Cast before the call, on every rank alike; reduce gradients in fp32 where there are many "
        "ranks.",
        lesson="08",
        source="torch/distributed/distributed_c10d.py",
    ),
    Message(
        name="plain_beside_sharded",
        patterns=(
            r"(_amp_foreach_non_finite_check_and_unscale_|_foreach_norm|_foreach_mul_|\bstack)\S* got mixed "
            r"torch\.Tensor and DTensor",
        ),
        meaning="Some parameters are sharded (DTensors) and some are plain: `fully_shard` was called on "
        "blocks, and not on the model. A scaler and `clip_grad_norm_` take gradients of one kind only; "
        "an optimizer's step takes both. The plain ones are not reduced either: each rank trains its own.",
        cure="Call `fully_shard(model)` after the blocks, which shards what is left. What must stay plain "
        "gets an optimizer of its own, and an all-reduce of its gradients.",
        lesson="08",
        source="torch/distributed/tensor/_dispatch.py",
    ),
    Message(
        name="clipped_on_two_meshes",
        patterns=(
            r"All operands in aten\.stack\.default must have the same mesh",
            r"inputs with different meshes: .*_foreach_mul_",
        ),
        meaning="`clip_grad_norm_` was given gradients that are sharded over different meshes, such as "
        "experts beside the rest, and it stacks their norms, which takes one mesh.",
        cure="Take `get_total_norm(...).full_tensor()` of the gradients of each mesh, the root of the sum of "
        "their squares, and `clip_grads_with_norm_` for each mesh. Experts of other ranks, and stages of "
        "a pipeline, are on no mesh of this rank: all-reduce the squares over them first.",
        lesson="08",
        source="torch/distributed/tensor/_ops/_tensor_ops.py",
        seen_at="https://github.com/pytorch/pytorch/issues/180346",
    ),
)
