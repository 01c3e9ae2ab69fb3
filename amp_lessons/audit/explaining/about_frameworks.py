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
            r"OVERFLOW! (Rank \d+ )?Skipping step\. Attempted loss scale",
            r"Gradient overflow\. Skipping step, loss scaler \d+ reducing loss scale",
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

ATTENTION = (
    Message(
        name="flash_attention_in_fp32",
        patterns=(
            r"FlashAttention only supports? fp16 and bf16 data type",
            r"Flash Attention \S+ only supports torch\.float16 and torch\.bfloat16 dtypes",
        ),
        meaning="FlashAttention was given fp32. Its kernels take 16 bits or fewer: the products run on "
        "tensor cores, and the softmax's running state is kept in fp32 inside.",
        cure="Run the model under `torch.autocast`, or load it with `dtype=torch.bfloat16`. If only "
        "some of query, key and value are fp32, find what made them so: often a rotary embedding "
        "or a norm in fp32, behind which a cast is missing.",
        lesson="02",
        source="flash_attn: csrc/flash_attn/flash_api.cpp",
    ),
)

QUANTIZED = (
    Message(
        name="inputs_cast_to_fp16",
        patterns=(r"MatMul8bitLt: inputs will be cast from \S+ to float16 during quantization",),
        meaning="bitsandbytes' 8-bit layer computes from fp16 inputs: yours are cast on the way in. From "
        "bf16 that can overflow: a magnitude above 65,504 becomes inf.",
        cure="Load the model with `dtype=torch.float16` to spare the cast, if its activations fit into"
        " fp16; else look at outputs for inf, or quantize to 4 bits, where the compute dtype can "
        "be bf16.",
        lesson="07",
        source="bitsandbytes/autograd/_functions.py",
    ),
    Message(
        name="slow_4_bit_layer",
        patterns=(
            r"Input type into Linear4bit is torch\.float16, but bnb_4bit_compute_d?type=torch\.float32",
        ),
        meaning="The 4-bit weights are expanded to fp32 for each product, although the inputs are fp16: "
        "right, and slow.",
        cure="Say `bnb_4bit_compute_dtype=torch.bfloat16`, or `torch.float16`, in the `BitsAndBytesConfig`.",
        lesson="07",
        source="bitsandbytes/nn/modules.py",
    ),
    Message(
        name="fp8_size",
        patterns=(
            r"Expected trailing dimension of mat1 to be divisible by 16",
            r"mat2 shape \(.*\) must be divisible by 16",
            r"FP8 execution requires .* divisible by 16",
            r"Tensor dimensions are not compatible for FP8 execution",
        ),
        meaning="FP8 tensor cores multiply in tiles: the inner dimension and the layer's features have to"
        " be multiples of 16, in Transformer Engine the number of rows a multiple of 8. Backward "
        "multiplies by the rows, too, so that the last, shorter batch meets it as well.",
        cure="Pad sequences and vocabulary to multiples of 16, leave out the last batch "
        "(`drop_last=True`), or keep small and odd layers, such as the head, in bf16.",
        lesson="09",
        source="transformer_engine/pytorch/utils.py",
        seen_at="https://github.com/NVIDIA/TransformerEngine/issues/1422",
    ),
    Message(
        name="fp8_layers_of_two_dtypes",
        patterns=(r"All layers must have the same last seen input_dtype",),
        meaning="torchao's delayed scaling has seen inputs of two dtypes in its layers: some ran under "
        "autocast and others not, or one has perhaps not run yet.",
        cure="Run the whole model under one autocast, or in one dtype, and run every converted layer "
        "before scales are updated.",
        lesson="09",
        source="torchao/float8/float8_linear_utils.py",
    ),
)

IMAGES = (
    Message(
        name="nan_in_an_image_model",
        patterns=(r"A tensor with (all )?NaNs was produced in (VAE|Unet)",),
        meaning="The picture's decoder (VAE) or denoiser made NaN, mostly in fp16: some published "
        "decoders have activations beyond 65,504, which become inf, and inf minus inf is NaN. The"
        " picture would be black.",
        cure="Run that part in fp32 (`--no-half-vae`, `--no-half`) or in bf16, or take a decoder that "
        "was made for fp16. Switching the check off leaves a black picture.",
        lesson="07",
        source="modules/devices.py of stable-diffusion-webui",
        seen_at="https://github.com/AUTOMATIC1111/stable-diffusion-webui/issues/10227",
    ),
)
