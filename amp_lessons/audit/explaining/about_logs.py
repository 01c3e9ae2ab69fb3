"""What people paste of a run that went wrong: log lines, checks of their own, NaN that surfaces elsewhere."""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message

LOGS = (
    Message(
        name="nan_in_a_log_line",
        patterns=(
            r"'grad_norm': ?'?(nan|inf)\b",
            r"'(train_|eval_)?loss': ?'?(nan|inf)\b",
            r"\b(train_|val_)?loss ?[=:] ?(nan|inf)\b",
            r"\bgrad(ient)?[_ ]norm ?[=:] ?(nan|inf)\b",
        ),
        meaning="A log line with NaN or inf in it. Which of the two was first decides: gradients alone, now "
        "and then and with a `GradScaler`, are its everyday work; a loss that is NaN (or is logged as "
        "0.0 beside a `grad_norm` of nan, as trainers do that leave NaN out) comes from the forward "
        "pass, or from weights that are NaN since an earlier step. Without a scaler, as in bf16, a step "
        "whose gradients are NaN and that is not skipped makes the weights NaN.",
        cure="Find the first line that has it and look at the step before: `torch.isfinite(p).all()` for the "
        "weights, then the batch, above all labels that are all masked. In fp16 take bf16, or "
        "`amp-lessons audit train.py`, which names the first place.",
        lesson="06",
        source="a trainer's log",
        seen_at="https://github.com/hiyouga/LLaMA-Factory/issues/7263",
    ),
    Message(
        name="own_check_of_gradients",
        patterns=(
            r"[Nn]on-?finite gradients? ",
            r"[Tt]he grad norm is (nan|-?inf)\. Skipping updating the model",
            r"Skip this batch \d+! ?\(Loss: (inf|nan)",
            r"Nan grad norm occurs, please check it",
        ),
        meaning="The loop's own check found a gradient or a loss that is inf or NaN. With fp16 and a "
        "`GradScaler` that happens in the first steps and now and then later, because the scale is "
        "tried out; without a scaler, as in bf16, or in step after step, it is a fault of the forward "
        "pass or the weights.",
        cure="With a scaler leave the check out: `scaler.step(optimizer)` skips that batch, and "
        "`scaler.update()`, which has to be called for it too, lowers the scale. Without one leave "
        "out the step, and look for the first inf or NaN where it is not rare.",
        lesson="03",
        source="espnet2/train/trainer.py",
        seen_at="https://github.com/pytorch/pytorch/issues/185915",
    ),
    Message(
        name="nan_surfaces_elsewhere",
        patterns=(
            r"matrix contains invalid numeric entries",
            r"input_val >= zero && input_val <= one",
            r"contained non-finite values",
            r"Input (\w )?contains (NaN|infinity)",
        ),
        meaning="This operation only met a NaN or an inf that was made further up: in a forward pass in 16 "
        "bits, or by weights that an earlier step has broken. A cost matrix, a decomposition, a "
        "cross-entropy of probabilities or a metric is where it is looked at for the first time. That "
        "cross-entropy asks for 0 to 1: logits, given to it by mistake, end in the same words.",
        cure="Find where it was made: `amp-lessons audit train.py` names the first module. Compute costs, "
        "distances and decompositions in fp32, `x.float()` in a region with `enabled=False`; if "
        "weights are NaN, go back to a checkpoint before.",
        lesson="06",
        source="scipy/optimize/_lsap.py",
        seen_at="https://github.com/lyuwenyu/RT-DETR/issues/527",
    ),
    Message(
        name="numbers_cast_beyond_fp16",
        patterns=(r"overflow encountered in cast",),
        meaning="NumPy has cast numbers to a format that ends before them: fp16 ends at 65,504, so targets, "
        "features or labels became inf before the training began.",
        cure="Keep the data in fp32, and let autocast cast what products need. Normalise targets that are "
        "larger than 65,504: the model's output is computed in 16 bits, too.",
        lesson="01",
        source="NumPy's casts",
        seen_at="https://github.com/aharley/alltracker/issues/9",
    ),
)

SWITCHES = (
    Message(
        name="tf32_is_off",
        patterns=(
            r"TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled",
            r"that has Tensor Cores\. To properly utilize them",
            r"Please use the new API settings to control TF32",
        ),
        meaning="Harmless. Products in fp32 could run in TF32 on this GPU, several times as fast, with 10 "
        "bits behind the point in place of 23. What autocast runs in 16 bits is not concerned.",
        cure="Leave it, or allow it for all that stays in fp32: "
        "`torch.set_float32_matmul_precision('high')`, before the model is compiled. Use either the old "
        "switches or the new ones (`torch.backends.cuda.matmul.fp32_precision`), not both.",
        lesson="02",
        source="torch/_inductor/compile_fx.py",
        seen_at="https://github.com/huggingface/transformers/issues/42371",
    ),
    Message(
        name="cublas_workspace",
        patterns=(
            r"CUBLAS_WORKSPACE_CONFIG",
            r"Deterministic behavior was enabled with either .* not deterministic because it uses CuBLAS",
        ),
        meaning="`torch.use_deterministic_algorithms(True)` is on, and cuBLAS may add up in another order "
        "from run to run unless its workspace is fixed before it starts.",
        cure="Set `CUBLAS_WORKSPACE_CONFIG=:4096:8` in the environment before Python starts, "
        "`CUBLAS_WORKSPACE_CONFIG=:4096:8 python train.py`. To compare two precisions no bit need be equal: "
        "`amp-lessons compare` asks how far they come apart.",
        lesson="07",
        source="C++",
        seen_at="https://github.com/Lightning-AI/litgpt/issues/2124",
    ),
)

GPUS = (
    Message(
        name="attention_of_newer_gpus",
        patterns=(r"FlashAttention only supports Ampere GPUs or newer",),
        meaning="The package flash-attn has no kernels for GPUs before Ampere (compute capability 8.0): T4, "
        "V100, RTX 20. These have no bf16 in hardware either.",
        cure='Take PyTorch\'s own attention, `attn_implementation="sdpa"`, and fp16 with a `GradScaler`: '
        "bf16 is emulated there, and slow.",
        lesson="05",
        source="flash_attn",
        seen_at="https://github.com/Dao-AILab/flash-attention/issues/762",
    ),
    Message(
        name="nothing_for_this_attention",
        patterns=(
            r"cutlassF: no kernel found to launch",
            r"[Qq]uery/[Kk]ey/[Vv]alue should either all have the same dtype",
        ),
        meaning="The attention kernel has no variant for what it was given: dtypes that differ (one of "
        "query, key and value left fp32 beside 16 bits), bf16 on a GPU without it, or a head that is too "
        "wide.",
        cure="Cast all three to one dtype, fp16 before Ampere; else switch the kernel off, "
        "`torch.nn.attention.sdpa_kernel(SDPBackend.MATH)`.",
        lesson="05",
        source="xformers/ops/fmha/common.py",
    ),
    Message(
        name="nvfp4_of_another_gpu",
        patterns=(r"FP4 cvt PTX instructions are architecture-specific",),
        meaning="NVFP4's default recipe rounds at random, by an instruction of data-centre Blackwell (10.0). "
        "RTX 50 and RTX PRO 6000 (12.0) have not got it, nor MXFP8 in Transformer Engine.",
        cure="On 12.0 take `Float8CurrentScaling`, or NVFP4 that rounds to nearest.",
        lesson="09",
        source="transformer_engine/common/recipe/nvfp4.cu",
        seen_at="https://github.com/NVIDIA/TransformerEngine/issues/2255",
    ),
    Message(
        name="two_dtypes_on_mps",
        patterns=(
            r"LLVM ERROR: Failed to infer result type",
            r"tensor<\S*f\d+>'? and '?tensor<\S*f\d+>'? are not broadcast compatible",
        ),
        meaning="Two dtypes met in one operation on Apple's GPU, fp16 and fp32 mostly: Metal's compiler ends "
        "the whole process, and Python gets no exception.",
        cure="Bring both to one dtype before the line that ran last: `y.to(x.dtype)`; keep norms and softmax "
        "in fp32. Run on the CPU, where the same line says which two they are.",
        lesson="02",
        source="MetalPerformanceShadersGraph",
        seen_at="https://github.com/pytorch/pytorch/issues/154887",
    ),
    Message(
        name="scaler_on_mps",
        patterns=(
            r"grad_scaler\.py.* Cannot convert a MPS Tensor to float64 dtype as the MPS framework",
            r"Grad Scaler with MPS device requires",
        ),
        meaning="The scaler itself computes 1 / scale in fp64, which Apple's GPU has not; newer versions of "
        "PyTorch take another way there. No tensor of yours is at fault.",
        cure="Update PyTorch, or train in bf16 without a scaler (on MPS from macOS 14).",
        lesson="03",
        source="accelerate/utils/modeling.py",
        seen_at="https://github.com/pytorch/pytorch/issues/142397",
    ),
)

SHARDS = (
    Message(
        name="gradients_of_two_dtypes",
        patterns=(r"reduce-scatter expects uniform gradient dtype",),
        meaning="FSDP2 sends the gradients of a group of parameters at once, and some of them have another "
        "dtype: some were added up unsharded (in steps without synchronisation) in `reduce_dtype`, "
        "and others, which had none then, come fresh in `param_dtype`.",
        cure="Let every parameter of a group have a gradient in each backward pass, or shard those that "
        "have not in a group of their own; else set `reduce_dtype` to `param_dtype` and add up fewer "
        "batches.",
        lesson="08",
        source="torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py",
        seen_at="https://github.com/pytorch/pytorch/issues/196996",
    ),
    Message(
        name="masters_made_fp32",
        patterns=(r"Upcasted low precision parameters in",),
        meaning="Accelerate has found trained parameters in 16 bits and made them fp32 before it sharded "
        "them: that is what mixed precision wants, since the shards are the only copy that the "
        "optimizer steps.",
        cure="Nothing; load with `dtype=torch.float32` and the warning is gone. Memory is four bytes for "
        "each parameter, and not two.",
        lesson="08",
        source="accelerate/accelerator.py",
        seen_at="https://github.com/huggingface/accelerate/issues/3979",
    ),
    Message(
        name="zero_of_two_dtypes",
        patterns=(r"Model data type and gradient accumulation data type must be equal to use ZeRO",),
        meaning="DeepSpeed's ZeRO stages 1 and 2 add gradients up in the model's own dtype, and another one "
        "was asked for.",
        cure='Leave `"data_types": {"grad_accum_dtype": …}` out, or give the model\'s dtype; bf16 with '
        "gradients added up in fp32 works without ZeRO, or with its `bf16` optimizer (stage 1).",
        lesson="08",
        source="deepspeed/runtime/engine.py",
        seen_at="https://github.com/deepspeedai/DeepSpeed/issues/2352",
    ),
    Message(
        name="cast_kept_by_a_checkpoint",
        patterns=(r"encountered during backward but not found in storage",),
        meaning="Selective checkpointing was told to keep an operation's result (`MUST_SAVE`) that the "
        "forward pass never ran: under autocast a shared weight is cast once, and its second use "
        "comes out of autocast's cache. In the recomputation the cache is empty, and the cast is run.",
        cure="Switch the cache off, `torch.autocast(device, dtype, cache_enabled=False)`, or leave "
        "`aten._to_copy` out of what the policy keeps.",
        lesson="07",
        source="torch/utils/checkpoint.py",
        seen_at="https://github.com/pytorch/pytorch/issues/193338",
    ),
    Message(
        name="sharded_weights_recomputed",
        patterns=(r"recomputed metadata: \{'shape': torch\.Size\(\[0\]\)",),
        meaning="The recomputation of a checkpoint met a tensor without elements, of the same dtype: a "
        "weight that ZeRO-3 or FSDP had sharded again. Autocast has no part in it.",
        cure="Take `use_reentrant=True` with ZeRO-3, or wrap in FSDP outside of the checkpoint "
        "(`apply_activation_checkpointing` before it shards), so that weights are gathered both times.",
        lesson="08",
        source="torch/utils/checkpoint.py",
        seen_at="https://github.com/huggingface/trl/issues/5217",
    ),
    Message(
        name="step_overridden",
        patterns=(
            r"Seems like `?optimizer\.step\(\)`? has been overridden after learning rate scheduler init",
        ),
        meaning="Something has put its own `step` into the optimizer after the schedule was made (apex, "
        "Accelerate, a wrapper), so that the schedule no longer counts the optimizer's steps.",
        cure="Make the schedule after `amp.initialize` or `accelerator.prepare`, or prepare both. With a "
        "`GradScaler` step the schedule where the step was made: `scaler.get_scale()` did not fall.",
        lesson="03",
        source="torch/optim/lr_scheduler.py",
    ),
)

CASTS = (
    Message(
        name="bias_of_another_dtype",
        patterns=(r"invalid dtype for bias - should match query's dtype",),
        meaning="The attention mask is fp32, and query, key and value are in 16 bits: autocast has cast "
        "them, and a float mask is cast only where autocast sees the call, not within compiled code.",
        cure="Give a bool mask, or cast it, `mask.to(query.dtype)`, where the mask's numbers fit: "
        "`torch.finfo(query.dtype).min`, not -1e9.",
        lesson="02",
        source="C++",
    ),
    Message(
        name="two_16_bit_formats",
        patterns=(r"Unexpected floating ScalarType in at::autocast::prioritize",),
        meaning="Autocast brings the inputs of `cat`, `stack` and the like to the widest dtype among them, "
        "and knows its own 16-bit format and fp32 only: a tensor in the other 16-bit format came "
        "before any in fp32.",
        cure="Cast it where it enters, `x.float()`, or use one 16-bit format throughout: weights in bf16 "
        "want autocast in bf16.",
        lesson="02",
        source="C++",
    ),
    Message(
        name="custom_function_compiled",
        patterns=(r"\bdecorate_(fwd|bwd)\b",),
        meaning="`torch.compile` could not follow a custom `autograd.Function` through `custom_fwd` or "
        "`custom_bwd`, which switch autocast for it.",
        cure="Update PyTorch; or leave the function out of what is compiled, `torch.compiler.disable`, or "
        "write it as an operator of its own, `torch.library.custom_op`, with `register_autograd`.",
        lesson="02",
        source="torch/_dynamo/variables/functions.py",
    ),
    Message(
        name="fp64_beside_fp32",
        patterns=(r"found input tensor with Double and parameter tensor with Float",),
        meaning="The input is fp64 and the weights are fp32. Autocast has no part in it, and does not cast "
        "fp64: NumPy's arrays are fp64 unless told otherwise, and so is a state made of them.",
        cure="`torch.from_numpy(array).float()`, or `dtype=np.float32` where the array is made; the first "
        "hidden state too.",
        lesson="01",
        source="C++",
    ),
    Message(
        name="scaler_half_initialised",
        patterns=(r"_growth_tracker initialized before _scale",),
        meaning="The scaler has a count of steps and no scale: its attributes were copied or loaded by hand, "
        "or the scaler was moved between processes, before it had scaled a loss.",
        cure="Load what `scaler.state_dict()` returned by `scaler.load_state_dict`, into a new "
        "`torch.amp.GradScaler(device)`; set none of its attributes.",
        lesson="03",
        source="torch/amp/grad_scaler.py",
    ),
    Message(
        name="product_of_two_fp8_gradients",
        patterns=(r"Multiplication of two Float8_e5m2 matrices is not supported",),
        meaning="No FP8 product has E5M2 on both sides: it is the format of gradients, and each product of a "
        "backward pass multiplies a gradient with weights or activations in E4M3.",
        cure="Cast one side to `torch.float8_e4m3fn`.",
        lesson="09",
        source="C++",
    ),
    Message(
        name="sent_in_a_format_unknown",
        patterns=(r"Unconvertible NCCL type", r"ProcessGroupGloo.* Invalid scalar type"),
        meaning="The library between the ranks does not know this dtype: FP8 for older NCCL, bf16 for older "
        "gloo.",
        cure="Cast before sending, or send the bytes, `x.view(torch.uint8)`; sums between ranks belong in "
        "fp32.",
        lesson="08",
        source="C++",
    ),
)
