"""What frameworks around PyTorch say of precision: trainers, engines, kernels and quantized layers.

``source`` is the file of theirs that says it. Most are not installed where the tests run: those are quoted as
they stand in a public report or in their published source, in
``tests/audit/explaining/test_library_messages.py``.
"""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message

SCALERS = (
    Message(
        name="scale_at_minimum",
        patterns=(
            r"Current loss scale already at minimum - cannot decrease scale anymore",
            r"Minimum loss scale reached",
        ),
        meaning="Every step of late was skipped, and each halved the loss scale until it reached the "
        "least that is allowed. At a scale of 1 only a gradient above 65,504 overflows in fp16, so inf "
        "or NaN mostly come from the forward pass, from the data, or from weights that are NaN already.",
        cure="Train in bf16 where the GPU has it, above all a model that was pretrained in bf16. Else "
        "look for the first inf or NaN of the forward pass (`amp-lessons audit`) and keep what "
        "overflows there in fp32. A smaller least scale helps only where true gradients are that large.",
        lesson="03",
        source="deepspeed/runtime/fp16/loss_scaler.py",
        seen_at="https://github.com/deepspeedai/DeepSpeedExamples/issues/418",
    ),
    Message(
        name="step_skipped",
        patterns=(
            r"OVERFLOW! (Rank \d+ )?Skipping step\.",
            r"dynamic loss scale overflow! Skipping step\.",
            r"Gradient overflow\. Skipping step, loss scaler \d+ reducing loss scale",
            r"gradient overflow detected, ignoring gradient, setting loss scale to",
        ),
        meaning="A gradient was inf or NaN, so the scaler left this step out and lowered the loss scale: "
        "its everyday work in fp16, mostly in the first steps, where the scale starts too high.",
        cure="Nothing, if it happens a few times and then rarely. If it happens in step after step, "
        "the fault is not the scale: look for the first inf or NaN of the forward pass, or train "
        "in bf16.",
        lesson="03",
        source="deepspeed/runtime/fp16/loss_scaler.py",
        seen_at="https://github.com/deepspeedai/DeepSpeedExamples/issues/531",
    ),
)

DEVICES = (
    Message(
        name="trainer_without_bf16",
        patterns=(r"Your setup doesn't support bf16/(gpu|\(cpu)",),
        meaning="`bf16=True` was asked of a `Trainer` that finds no GPU with bf16. Either PyTorch sees no"
        " GPU at all (a build without CUDA, or a driver that is too old for it), or the GPU is "
        "older than Ampere.",
        cure="Ask `torch.cuda.is_available()` first: if it is False, install PyTorch for your driver. "
        "On an older GPU, such as a T4, use `fp16=True`. On a CPU say `use_cpu=True`.",
        lesson="07",
        source="transformers/training_args.py",
    ),
    Message(
        name="trainer_without_fp16",
        patterns=(r"[Mm]ixed precision training with AMP or APEX .*can only be used on CUDA",),
        meaning="`fp16=True` was asked of a `Trainer` that finds no GPU. Mostly PyTorch sees none: it was "
        "built without CUDA, its driver is too old for it, or `CUDA_VISIBLE_DEVICES` names one that is not "
        "there. Older versions of Transformers say so; newer ones leave it to Accelerate, which has other "
        "words.",
        cure="Ask `torch.cuda.is_available()`: if it is False, install PyTorch for your driver. Without a "
        "GPU leave out `fp16`, and take `bf16=True` where the processor is fast in it.",
        lesson="07",
        source="transformers/training_args.py",
        seen_at="https://github.com/princeton-nlp/SimCSE/issues/273",
    ),
    Message(
        name="speech_model_in_fp32",
        patterns=(r"FP16 is not supported on CPU; using FP32 instead",),
        meaning="Whisper decodes in fp16 unless it is told otherwise, and has found no GPU: it computes in "
        "fp32 on the CPU. The text is no worse for it; it takes longer than on a GPU.",
        cure="`model.transcribe(file, fp16=torch.cuda.is_available())` gives no warning. If the machine "
        "has an NVIDIA GPU, a PyTorch without CUDA was installed.",
        lesson="02",
        source="whisper/transcribe.py",
        seen_at="https://github.com/foges/whisper-dictation/issues/9",
    ),
    Message(
        name="compute_type_without_kernels",
        patterns=(r"but the target device or backend do not support efficient \w+ computation",),
        meaning="CTranslate2 (faster-whisper, WhisperX) has no fast kernels for this format on this "
        "device: fp16 on a CPU or on a GPU older than Volta, for one. Where the format was asked for it "
        "stops, else it goes on in fp32.",
        cure="`compute_type='int8'` on a CPU, `'float32'` or `'int8'` on an old GPU, `'float16'` on a "
        "newer one; or `'default'`, which takes what there is.",
        lesson="07",
        source="CTranslate2: src/types.cc",
        seen_at="https://github.com/SYSTRAN/faster-whisper/issues/65",
    ),
    Message(
        name="flags_and_model_of_two_dtypes",
        patterns=(r"Model is in b?float16 precision but you want to use b?float16 precision",),
        meaning="Unsloth trains a model in the dtype that it was loaded in, and the trainer's flags ask "
        "for another.",
        cure="Set the flags to the model's dtype, as the message says: `fp16` for float16, `bf16` for "
        "bfloat16. If the GPU has bf16, load in it.",
        lesson="07",
        source="unsloth/models/rl.py",
    ),
    Message(
        name="no_tf32_on_this_gpu",
        patterns=(r"--tf32 requires Ampere or a newer GPU",),
        meaning="`tf32=True` was asked of a `Trainer` without a GPU that has TF32, which came with Ampere "
        "(compute capability 8.0).",
        cure="Leave out `tf32`. On an older GPU fp32 products stay fp32; `fp16=True` is what makes them "
        "faster.",
        lesson="05",
        source="transformers/training_args.py",
    ),
    Message(
        name="two_precisions_at_once",
        patterns=(
            r"At most one of fp16 and bf16 can be True",
            r"bfloat16 and fp16 cannot be enabled at once",
            r"\bbf(loat)?16 and fp16 modes cannot be simultaneously enabled",
            r"ds (fp16|bf16)\.enabled=\S+ vs hf",
            r"`--mixed_precision` arg cannot be set to `\w+` when `\w+` is set in the DeepSpeed config",
            r"Cannot enable both amp with \(legacy\) fp16 or bfloat16 mode",
        ),
        meaning="Two places ask for two precisions: both flags are set, or DeepSpeed's configuration says "
        "another one than the trainer or the launcher.",
        cure="Decide in one place: bf16 where the GPU has it, else fp16. In DeepSpeed's configuration write "
        "`auto` for `fp16.enabled` and `bf16.enabled`, so that they follow the trainer's flags.",
        lesson="07",
        source="transformers/training_args.py",
    ),
    Message(
        name="deepspeed_without_16_bits",
        patterns=(
            r"Type (fp16|bf16) is not supported(\.| on your device)",
            r"Cannot use fp16 without (accelerator|CUDA)",
        ),
        meaning="DeepSpeed decides by the device whether it trains in 16 bits there: fp16 on GPUs from "
        "compute capability 7.0 (Volta) on, bf16 on those of which PyTorch says so, on a CPU bf16, and "
        "neither on Apple's GPU. Or it has found no GPU and taken the CPU.",
        cure="See which device it has chosen in the log, `Setting ds_accelerator to ...`. On a P100 or a "
        "GTX 10 set `DS_ALLOW_DEPRECATED_FP16=1`, or train in fp32.",
        lesson="07",
        source="deepspeed/runtime/engine.py",
        seen_at="https://github.com/deepspeedai/DeepSpeed/issues/6723",
    ),
    Message(
        name="engine_without_bf16",
        patterns=(r"Bfloat16 is only supported on GPUs with compute capability of at least",),
        meaning="The checkpoint says bf16, and this GPU has no bf16 arithmetic. The engine refuses "
        "instead of converting.",
        cure="Say `--dtype=half` where the model bears fp16. Models that were trained in bf16 may hold"
        " activations beyond 65,504: look at a few outputs for inf first, and use fp32 if there "
        "are any.",
        lesson="07",
        source="vllm/worker/worker.py",
    ),
    Message(
        name="engine_casts_to_fp16",
        patterns=(r"Casting torch\.bfloat16 to torch\.float16",),
        meaning="vLLM runs in fp16 a checkpoint that says bf16, because `--dtype` or the program around it "
        "asks for that. Activations beyond 65,504 become inf there: empty answers, or one sign repeated.",
        cure="`--dtype bfloat16` on a GPU that has it, from compute capability 8.0 on. On an older one "
        "compare some answers with `--dtype float32` first.",
        lesson="11",
        source="vllm/config/model.py",
        seen_at="https://github.com/vllm-project/vllm/issues/7561",
    ),
    Message(
        name="engine_without_fp16",
        patterns=(r"The model type '\w+' does not support float16\. Reason: Numerical instability",),
        meaning="vLLM knows of this kind of model (Gemma 2 and 3 among them) that fp16 does not hold it: "
        "trained in bf16, it has activations that fp16, which ends at 65,504, turns into inf.",
        cure="`--dtype bfloat16`. On a GPU without it (a T4, a V100) `--dtype float32`, or another model.",
        lesson="11",
        source="vllm/config/model.py",
        seen_at="https://github.com/vllm-project/vllm/issues/28857",
    ),
    Message(
        name="launcher_without_16_bits",
        patterns=(
            r"fp16 mixed precision requires a (device in|GPU)",
            r"(bf16|fp16) mixed precision (requires PyTorch >=|with MPS device requires a P[yY][tT]orch >=)",
        ),
        meaning="`mixed_precision` was asked of Accelerate for a device, or a version of PyTorch, that "
        "has no such autocast.",
        cure="Look at which device it has found, `accelerator.device`. On a CPU take `bf16`, which "
        "saves no time without hardware for it, or `no`.",
        lesson="07",
        source="accelerate/accelerator.py",
    ),
    Message(
        name="no_16_bit_product",
        patterns=(r"CUBLAS_STATUS_NOT_SUPPORTED.*CUDA_R_16B?F",),
        meaning="cuBLAS has no product for these dtypes on this GPU. With `CUDA_R_16BF` it is mostly a "
        "GPU older than Ampere, on which `torch.cuda.is_bf16_supported()` may answer True all the"
        " same, since it counts emulation.",
        cure="Ask `torch.cuda.is_bf16_supported(including_emulation=False)`; where it is False, use "
        "fp16 with a scaler, or fp32. On a newer GPU look whether another CUDA library than "
        "PyTorch's own is loaded, by `LD_LIBRARY_PATH`.",
        lesson="02",
        source="C++",
        seen_at="https://github.com/opendatalab/MinerU/issues/1508",
    ),
)

TRAINERS = (
    Message(
        name="old_name_of_dtype",
        patterns=(r"`torch_dtype` is deprecated! Use `dtype` instead!",),
        meaning="Transformers has renamed an argument. It still does the same: it says the format in which "
        "the weights are loaded, and nothing of autocast.",
        cure="Write `from_pretrained(..., dtype=torch.bfloat16)`. To train in mixed precision say "
        "`dtype=torch.float32`, and `TrainingArguments(bf16=True)`: weights loaded in 16 bits are trained in "
        "16 bits.",
        lesson="07",
        source="transformers/configuration_utils.py",
    ),
    Message(
        name="fp16_became_bf16",
        patterns=(r"precision='?16(-mixed)?'?\)` but (native )?AMP (with fp16 )?is not supported on CPU",),
        meaning="Lightning has no fp16 on a CPU and has taken `bf16-mixed`, which needs no scaler and has "
        "fewer digits: the run is another one than on a GPU.",
        cure="Nothing to do for a trial run. To see on a CPU what fp16 does, write the loop yourself with "
        "`torch.autocast('cpu', dtype=torch.float16)` and `torch.amp.GradScaler('cpu')`.",
        lesson="07",
        source="pytorch_lightning/trainer/connectors/accelerator_connector.py",
    ),
    Message(
        name="clipping_a_fused_optimizer",
        patterns=(
            r"does not allow for gradient clipping because it performs unscaling of gradients internally",
            r"Gradient clipping is not implemented for optimizers handling the unscaling",
        ),
        meaning="A fused optimizer unscales within its own step, so Lightning has no moment at which the "
        "gradients are unscaled and the step not yet made, which is when it would clip.",
        cure="Make the optimizer with `fused=False`. Lightning 2.6 asks for that in `bf16-mixed` as well, "
        "where no scaler is at work.",
        lesson="03",
        source="pytorch_lightning/plugins/precision/amp.py",
        seen_at="https://github.com/Lightning-AI/pytorch-lightning/issues/21435",
    ),
    Message(
        name="scaler_for_bf16",
        patterns=(r"`precision='?bf16-\w+'?` does not use a scaler, found",),
        meaning="A `GradScaler` was handed over for bf16, which has the range of fp32 and needs none.",
        cure="Leave out `scaler=`, or ask for `precision='16-mixed'`.",
        lesson="03",
        source="pytorch_lightning/plugins/precision/amp.py",
    ),
    Message(
        name="unknown_precision_flag",
        patterns=(
            r"Precision .+ is invalid\. Allowed precision values",
            r"\)` is not supported( in (FSDP|DeepSpeed|XLA))?\. `precision` must be one of",
            r"Unknown mixed_precision mode: ",
        ),
        meaning="The trainer, or its strategy, has no precision of this name. Lightning calls them "
        "`32-true`, `16-mixed`, `bf16-mixed`, `16-true`, `bf16-true`: `mixed` is autocast on fp32 weights, "
        "`true` has the weights themselves in 16 bits. Accelerate says `no`, `fp16`, `bf16`, `fp8`.",
        cure="Take one that the message lists; for a training that is `bf16-mixed`, or `16-mixed` on an "
        "older GPU.",
        lesson="07",
        source="lightning_fabric/connector.py",
        seen_at="https://github.com/Lightning-AI/lit-llama/issues/216",
    ),
    Message(
        name="old_name_of_precision",
        patterns=(r"`precision=\w+` is supported for historical reasons but its usage is discouraged",),
        meaning="An old name for a precision. It still means autocast on fp32 weights: `16` is `16-mixed`, "
        "`bf16` is `bf16-mixed`.",
        cure="Write the new name, which the message says.",
        lesson="07",
        source="lightning_fabric/connector.py",
    ),
    Message(
        name="backward_past_fabric",
        patterns=(r"requires you to call `fabric\.backward\(loss\)` instead of `loss\.backward\(\)`",),
        meaning="Fabric scales the loss, or hands it to its strategy, in its own `backward`. Without it "
        "fp16's gradients would not be scaled, and the step would divide them by a scale that they never "
        "had.",
        cure="Call `fabric.backward(loss)`.",
        lesson="07",
        source="lightning_fabric/wrappers.py",
    ),
    Message(
        name="autocast_around_deepspeed",
        patterns=(r"torch\.autocast is enabled outside DeepSpeed",),
        meaning="The loop has `torch.autocast` around DeepSpeed's engine, whose configuration does not ask "
        "for it. From version 0.17.2 it is an error; later ones warn, and switch it off within the engine.",
        cure="With DeepSpeed's `bf16` or `fp16` section leave autocast out around the engine, and cast its "
        'inputs: the weights are in 16 bits. For autocast on fp32 weights write `"torch_autocast": '
        '{"enabled": true, "dtype": "bfloat16"}` in their place.',
        lesson="08",
        source="deepspeed/runtime/torch_autocast.py",
        seen_at="https://github.com/deepspeedai/DeepSpeed/issues/7529",
    ),
    Message(
        name="amp_check_failed",
        patterns=(
            r"checks failed\W{0,6}(disabling Automatic Mixed Precision|Anomalies were detected with AMP)",
            r"checks failed\W{0,6}AMP training on .* may cause NaN losses",
        ),
        meaning="Before it trains, YOLO's trainer finds boxes in one picture in fp32 and under autocast. "
        "They differed, or the GPU is of a kind whose fp16 convolutions are known to give NaN (GTX 16 "
        "among others): it trains in fp32, right and slower.",
        cure="Leave it so on a GTX 16 or a T600, where fp16 brings NaN. On a newer GPU update PyTorch and "
        "the driver, and compare a convolution in fp16 with fp32 yourself.",
        lesson="06",
        source="ultralytics/utils/checks.py",
        seen_at="https://github.com/ultralytics/yolov5/issues/7908",
    ),
    Message(
        name="transformer_engine_outside_autocast",
        patterns=(r"Data types for parameters must match when outside of autocasted region",),
        meaning="Transformer Engine casts weights only under PyTorch's autocast. Outside of it input and "
        "weights have to have one dtype; its own `te.autocast` (or `fp8_autocast`) does not change that.",
        cure="Put `torch.autocast('cuda', dtype=torch.bfloat16)` around the model too, or make its layers "
        "with `params_dtype` equal to the input's dtype.",
        lesson="09",
        source="transformer_engine/pytorch/module/base.py",
        seen_at="https://github.com/Lightning-AI/lightning-thunder/issues/1044",
    ),
    Message(
        name="model_cast_before_apex",
        patterns=(
            r"When using amp\.(initialize|register), you do not need to call \.half\(\) on your model",
        ),
        meaning="Apex's `amp` wants the model in fp32 and makes what copies it needs itself; this one was "
        "cast.",
        cure="Leave out `model.half()`. Better leave Apex's `amp`, which is deprecated, for "
        "`torch.autocast` and `torch.amp.GradScaler`.",
        lesson="02",
        source="apex/amp/_initialize.py",
        seen_at="https://github.com/NVIDIA/apex/issues/818",
    ),
)

IMAGES = (
    Message(
        name="pipeline_on_a_cpu",
        patterns=(r"Pipelines loaded with `(torch_)?dtype=torch\.float16` cannot run with `cpu` device",),
        meaning="The pipeline was loaded in fp16 and moved to the CPU, which has few fp16 kernels: an "
        "operation without one would stop it. To park it there between two uses is harmless.",
        cure="To run on a CPU load it without the dtype, in fp32. If there is a GPU, "
        "`pipe.to('cuda')`, and see why `torch.cuda.is_available()` is False.",
        lesson="02",
        source="diffusers/pipelines/pipeline_utils.py",
    ),
    Message(
        name="nan_in_an_image_model",
        patterns=(
            r"A tensor with (all )?NaNs was produced in (VAE|Unet)",
            r"invalid value encountered in cast images = \(images \* 255\)",
        ),
        meaning="The picture's decoder (VAE) or denoiser made NaN, mostly in fp16: some published "
        "decoders have activations beyond 65,504, which become inf, and inf minus inf is NaN. The"
        " picture would be black.",
        cure="Run that part in fp32 (`--no-half-vae`, `--no-half`; in diffusers "
        "`pipe.vae.to(torch.float32)`, and its latents with it) or in bf16, or take a decoder that was "
        "made for fp16. Switching the check off leaves a black picture.",
        lesson="07",
        source="modules/devices.py of stable-diffusion-webui",
        seen_at="https://github.com/AUTOMATIC1111/stable-diffusion-webui/issues/10227",
    ),
)
