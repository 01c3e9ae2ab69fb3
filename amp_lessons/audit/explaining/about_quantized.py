"""Weights in 8 and 4 bits, and FP8: what the libraries that hold and multiply them say.

``source`` is the library's file, as in ``about_frameworks``.
"""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message

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
            r"Expected (both dimensions of mat2|self\.size\(1\)) to be divisible by 16",
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
    Message(
        name="quantized_once_more",
        patterns=(r"Blockwise( 4bit)? (de)?quantization only supports 16/32-bit floats, but got",),
        meaning="bitsandbytes was to quantize weights that are no floats any more: they are quantized "
        "already, packed in `torch.uint8` or `torch.int8`. Mostly a quantized model was offloaded or moved "
        "by a tool that quantizes each time it brings the weights to the GPU.",
        cure="Leave out the offloading of this part (`enable_sequential_cpu_offload`; "
        "`enable_model_cpu_offload` moves whole models), or load the model that is not quantized and "
        "quantize it once.",
        lesson="07",
        source="bitsandbytes/functional.py",
        seen_at="https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1525",
        unless=(r"quantization only supports 16/32-bit floats, but got torch\.float8",),
    ),
    Message(
        name="quantized_from_fp8",
        patterns=(
            r"Blockwise( 4bit)? (de)?quantization only supports 16/32-bit floats, but got torch\.float8",
        ),
        meaning="bitsandbytes quantizes weights in fp16, bf16 or fp32, and these are in FP8: the checkpoint "
        "is, or an option has cast them (ComfyUI's `--fp8_e4m3fn-unet`).",
        cure="Leave that option out, or load the checkpoint that is in 16 bits, and quantize that. An FP8 "
        "one is cast before, `weight.to(torch.bfloat16)`, times its scale where it has one.",
        lesson="07",
        source="bitsandbytes/functional.py",
        seen_at="https://github.com/comfyanonymous/ComfyUI_bitsandbytes_NF4/pull/21",
    ),
    Message(
        name="integers_have_no_gradient",
        patterns=(
            r"[Oo]nly Tensors of floating point (and complex )?dtype can require gradients",
            r"data set to a tensor that requires gradients must be floating point or complex dtype",
        ),
        meaning="A tensor of integers was to be trained. Whole numbers have no derivative: quantized "
        "weights (`int8`, packed 4 bits) are kept fixed, and something makes parameters of them that ask "
        "for gradients, as `nn.Parameter` does unless it is told otherwise.",
        cure="`nn.Parameter(weight, requires_grad=False)`, and train adapters (LoRA) beside the quantized "
        "weights. With FSDP store 4-bit weights in a float dtype, `bnb_4bit_quant_storage=torch.bfloat16`. "
        "If no quantized model is meant, `.float()` is missing.",
        lesson="07",
        source="C++",
        seen_at="https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1232",
    ),
    Message(
        name="quantized_model_cast",
        patterns=(
            r"`\.(half|float|to)(\(\))?` is not supported for (quantized model|`[48]-bit`)",
            r"You cannot cast a (bitsandbytes|GPTQ) model in a new `dtype`",
        ),
        meaning="The weights are 8 or 4 bits with scales beside them, on the device that they were loaded "
        "to. A cast would take for numbers what is no number yet, so it is refused; older versions refuse "
        "to move them as well.",
        cure="Say dtype and device where the model is loaded, `from_pretrained(..., dtype=torch.bfloat16, "
        "device_map='auto', quantization_config=...)`, and leave out the cast. The dtype of the products "
        "is `bnb_4bit_compute_dtype`.",
        lesson="07",
        source="transformers/modeling_utils.py",
    ),
    Message(
        name="quantized_model_trained",
        patterns=(r"You cannot perform fine-tuning on purely quantized models",),
        meaning="Weights in 8 or 4 bits cannot take the small steps of a training: an update would be "
        "rounded away, and integers have no gradient.",
        cure="Put adapters on top, which are trained in fp32 or bf16: `get_peft_model(model, "
        "LoraConfig(...))`. To train all weights load the model without quantization.",
        lesson="07",
        source="transformers/trainer_utils.py",
    ),
    Message(
        name="quantized_model_elsewhere",
        patterns=(r"model that has been loaded in 8-bit (or 4-bit )?precision on a different device than",),
        meaning="Quantized weights are not moved after loading, and these lie on another device than the "
        "one that this process trains on: with several processes, all of them have loaded onto the first "
        "GPU.",
        cure="Load onto the process's own GPU: `device_map={'': PartialState().process_index}` with "
        "Accelerate's `PartialState`, or `device_map={'': torch.cuda.current_device()}` after the device "
        "is set.",
        lesson="07",
        source="accelerate/accelerator.py",
    ),
    Message(
        name="quantized_for_another_dtype",
        patterns=(r"torch\.\w+ is not supported for quantization method \w+\. Supported dtypes",),
        meaning="The kernels of this quantization compute in the dtypes listed only, and the checkpoint, or "
        "`--dtype`, says another one.",
        cure="Ask for a dtype of the list, `--dtype half` for AWQ's old kernels. A model that was trained "
        "in bf16 may overflow in fp16: leave out `--quantization` first, so that vLLM chooses a kernel, "
        "which may take bf16.",
        lesson="11",
        source="vllm/config/vllm.py",
        seen_at="https://github.com/vllm-project/vllm/issues/1823",
    ),
)

FLOAT8_DEVICES = (
    Message(
        name="fp8_recipe_for_newer_gpu",
        patterns=(
            r"compute capability \S+ or higher required for \w+ execution",
            r"FP8 block scaled GEMM requires compute capability",
            r"MXFP8 \(for all gemm layouts\) is not supported on",
            r"Float8 dynamic (activation )?quantization (is only supported on|requires) CUDA",
            r"insufficient for FP8 mixed precision training",
            r"FP8 quantized models is only supported on GPUs with compute capability",
            r"FP8 models require a GPU with Compute Capability",
            r"quantization method fp8 is not supported for the current GPU",
        ),
        meaning="This GPU has no tensor cores for the format. FP8 with one scale per tensor needs compute "
        "capability 8.9 (Ada, Hopper), with one per block 9.0, MXFP8 and NVFP4 need 10.0 (Blackwell); "
        "Transformer Engine has no MXFP8 yet for 12.0 (RTX 50). An A100, an RTX 3090 and a T4 have no FP8 "
        "at all.",
        cure="Take a recipe that the GPU has, or train in bf16 (in fp16 with a scaler on a GPU older than "
        "Ampere). Where FP8 was to save memory, quantize the weights to 8 or 4 bits, which are expanded to "
        "16 bits for each product.",
        lesson="09",
        source="transformer_engine/pytorch/quantization.py",
        seen_at="https://github.com/NVIDIA/TransformerEngine/issues/1159",
    ),
    Message(
        name="fp8_in_a_triton_kernel",
        patterns=(
            r"type fp8\w+ not supported in this architecture",
            r"fp8e4nv data type is not supported on CUDA arch",
            r"f8e4m3nv is only supported on compute capability",
        ),
        meaning="A Triton kernel was to be compiled for an FP8 format that this GPU cannot convert. "
        "`fp8e4nv` is Triton's name for `torch.float8_e4m3fn`; it needs compute capability 8.9 (Ada, "
        "Hopper), and the message lists the formats that are left.",
        cure="Take the checkpoint in bf16, or one in 8 or 4 bits of integers (AWQ, GPTQ). For a KV cache "
        "in FP8 take `fp8_e5m2`, which older GPUs convert. In code that is compiled, cast outside of it. "
        "Where 90 is asked of an Ada GPU (8.9), Triton is too old: update PyTorch.",
        lesson="09",
        source="triton/language/core.py",
        seen_at="https://github.com/vllm-project/vllm/issues/17581",
    ),
    Message(
        name="fp8_weights_only",
        patterns=(
            r"GPU does not have native support for FP8 computation but FP8 quantization is being used",
        ),
        meaning="This GPU has no FP8 product, or this build of vLLM has none for it: the weights are "
        "expanded to 16 bits for each product. Memory is saved as promised; time is saved only where "
        "reading weights is what takes it, that is with few sequences at once.",
        cure="Nothing to do for right results. For speed with large batches take a GPU of compute "
        "capability 8.9 and up, or weights in INT8. On such a GPU update vLLM.",
        lesson="11",
        source="vllm/model_executor/layers/quantization/utils/marlin_utils_fp8.py",
        seen_at="https://github.com/vllm-project/vllm/issues/10142",
    ),
    Message(
        name="fp8_cache_without_scales",
        patterns=(r"Using KV cache scaling factor 1\.0 for fp8_e4m3",),
        meaning="Keys and values are stored in E4M3 without a scale: what exceeds 448 is clipped, and what "
        "is very small becomes 0. The checkpoint brings no scales.",
        cure="Take a checkpoint with scales for its KV cache, or have them found from data (llm-compressor "
        "does). Compare answers with `--kv-cache-dtype auto` before you trust it; that is the model's own "
        "dtype.",
        lesson="11",
        source="vllm/model_executor/layers/quantization/kv_cache.py",
    ),
    Message(
        name="fp8_rows_in_bf16_only",
        patterns=(r"PerRow quantization only works for bfloat16 precision",),
        meaning="torchao's FP8 product with a scale for each row gives bf16, so the weights have to be bf16.",
        cure="`model.to(torch.bfloat16)` before `quantize_`, or one scale per tensor, "
        "`granularity=PerTensor()`.",
        lesson="09",
        source="torchao/quantization/quant_api.py",
    ),
)
