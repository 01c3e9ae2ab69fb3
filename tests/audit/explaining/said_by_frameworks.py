"""What frameworks around PyTorch say, as their published source and public reports had it in 2026.

The tests cannot make most of them say it: they are not installed, or want a GPU. ``(name, text)`` are the
entry that explains it, and the words.
"""

from __future__ import annotations

FRAMEWORKS = (
    (
        "scale_at_minimum",
        "Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
    ),
    ("scale_at_minimum", "Minimum loss scale reached (0.0001). Your loss is probably exploding."),
    (
        "step_skipped",
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 16384, reducing to 8192",
    ),
    ("step_skipped", "OVERFLOW! Skipping step. Attempted loss scale: 65536, reducing to 32768"),
    ("step_skipped", "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0"),
    (
        "trainer_without_bf16",
        "Your setup doesn't support bf16/(cpu, tpu, neuroncore). You need torch>=1.10",
    ),
    (
        "engine_without_bf16",
        "Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4",
    ),
    ("launcher_without_16_bits", "fp16 mixed precision requires a GPU (not 'cpu')."),
    (
        "no_16_bit_product",
        "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmStridedBatchedEx(handle, opa, "
        "opb, (int)m, (int)n, (int)k, (void*)&falpha, a, CUDA_R_16BF, (int)lda, stridea, b, CUDA_R_16BF",
    ),
    ("flash_attention_in_fp32", "FlashAttention only support fp16 and bf16 data type"),
    (
        "flash_attention_in_fp32",
        "Flash Attention 2 only supports torch.float16 and torch.bfloat16 dtypes, but the current",
    ),
    (
        "inputs_cast_to_fp16",
        "MatMul8bitLt: inputs will be cast from torch.bfloat16 to float16 during quantization",
    ),
    (
        "slow_4_bit_layer",
        "Input type into Linear4bit is torch.float16, but bnb_4bit_compute_dtype=torch.float32 (default)",
    ),
    (
        "fp8_size",
        "Expected trailing dimension of mat1 to be divisible by 16 but got mat1 shape: (16",
    ),
    ("fp8_size", "mat2 shape (33x16) must be divisible by 16"),
    (
        "fp8_size",
        "FP8 execution requires 2D input matrices with height divisible by 8 and width divisible by 16, "
        "but got tensor with dims=[896, 712]",
    ),
    (
        "fp8_size",
        "Tensor dimensions are not compatible for FP8 execution: (2048 % 8 != 0, 767 % 16 != 0)",
    ),
    (
        "fp8_layers_of_two_dtypes",
        "All layers must have the same last seen input_dtype, got {",
    ),
    (
        "nan_in_an_image_model",
        "A tensor with all NaNs was produced in VAE. This could be",
    ),
    ("nan_in_an_image_model", "A tensor with NaNs was produced in Unet."),
    # Megatron-LM, 22 August 2026; the third as Megatron's core_v0.9 had it, in public reports
    (
        "loss_not_finite",
        "Rank 0, node a, device 0, iteration 7: Unexpected result nan (message='found NaN in local forward "
        "loss calculation')",
    ),
    ("loss_not_finite", "found Inf in local forward loss calculation"),
    ("loss_not_finite", "Rank 114: found NaN in local forward loss calculation. Device: 2, node: b"),
    (
        "gradient_norm_not_finite",
        "Unexpected result nan on rank 3 at iteration #2 invocation #1 (message='found NaN in local grad "
        "norm for bucket #0 in backward pass before data-parallel communication collective')",
    ),
    ("gradient_norm_not_finite", "Rank 3: found NaN in local grad norm in backwards pass. Device: 3"),
    # torchvision's references, DETR, MAE and what was made of them
    ("loss_not_finite", "Loss is nan, stopping training"),
    ("loss_not_finite", "Loss is inf, stopping training"),
    ("loss_not_finite", "WARNING: non-finite loss, ending training  tensor([nan, nan], device='cuda:0')"),
    ("logged_not_finite", "WARNING:root:NaN or Inf found in input tensor."),
    # YOLOv5 and ultralytics, 21 August 2026 and earlier
    (
        "amp_check_failed",
        "AMP: checks failed. Anomalies were detected with AMP on your system that may lead to NaN losses or "
        "zero-mAP results, so AMP will be disabled during training.",
    ),
    ("amp_check_failed", "AMP: checks failed ❌. Anomalies were detected with AMP on your system that may"),
    ("amp_check_failed", "AMP: checks failed ❌, disabling Automatic Mixed Precision. See https://"),
    (
        "amp_check_failed",
        "AMP: checks failed ❌. AMP training on NVIDIA GeForce GTX 1660 GPU may cause NaN losses or zero-mAP",
    ),
    # Transformers 4 and before
    (
        "trainer_without_fp16",
        "FP16 Mixed precision training with AMP or APEX (`--fp16`) and FP16 half precision evaluation "
        "(`--fp16_full_eval`) can only be used on CUDA devices.",
    ),
    (
        "trainer_without_fp16",
        "FP16 Mixed precision training with AMP or APEX (`--fp16`) and FP16 half precision evaluation "
        "(`--fp16_full_eval`) can only be used on CUDA or NPU devices or certain XPU devices (with IPEX).",
    ),
    (
        "trainer_without_fp16",
        "Mixed precision training with AMP or APEX (`--fp16`) can only be used on CUDA devices.",
    ),
    (
        "flash_attention_without_dtype",
        "You are attempting to use Flash Attention 2.0 without specifying a torch dtype. This might lead to",
    ),
    (
        "flash_attention_without_dtype",
        "You are attempting to use Flash Attention 2 without specifying a torch dtype. This might lead to",
    ),
    (
        "queries_cast_back",
        "The input hidden states seems to be silently casted in float32, this might be related to the fact "
        "you have upcasted embedding or layer norm layers in float32. We will cast back the input in "
        "torch.float16.",
    ),
    ("quantized_model_cast", "`.to` is not supported for `4-bit` or `8-bit` bitsandbytes models. Please use"),
    # Transformers 5.23
    (
        "flash_attention_without_dtype",
        "You are attempting to use Flash Attention 3 without specifying a dtype. This might lead to "
        "unexpected",
    ),
    ("queries_cast_back", "Casting fp32 inputs back to torch.bfloat16 for flash-attn compatibility."),
    ("old_name_of_dtype", "`torch_dtype` is deprecated! Use `dtype` instead!"),
    ("two_precisions_at_once", "At most one of fp16 and bf16 can be True, but not both"),
    (
        "two_precisions_at_once",
        "Please correct the following DeepSpeed config values that mismatch TrainingArguments values:\n"
        "- ds fp16.enabled=True vs hf fp16|fp16_full_eval+fp16_backend(amp)=False",
    ),
    ("quantized_model_cast", "`.half()` is not supported for quantized model. Please use the model as it is"),
    ("quantized_model_cast", "You cannot cast a bitsandbytes model in a new `dtype`. Make sure to load"),
    (
        "quantized_model_trained",
        "You cannot perform fine-tuning on purely quantized models. Please attach trainable adapters on top "
        "of",
    ),
    (
        "fp8_recipe_for_newer_gpu",
        "FP8 quantized models is only supported on GPUs with compute capability >= 8.9 (e.g 4090/H100), "
        "actual",
    ),
    # Accelerate 1.15
    (
        "quantized_model_elsewhere",
        "You can't train a model that has been loaded in 8-bit or 4-bit precision on a different device "
        "than the one you're training on. Make sure you loaded the model on the correct device",
    ),
    (
        "two_precisions_at_once",
        "`--mixed_precision` arg cannot be set to `fp16` when `bf16` is set in the DeepSpeed config file.",
    ),
    (
        "unknown_precision_flag",
        "Unknown mixed_precision mode: fp17. Choose between ['no', 'fp8', 'fp16', 'bf16']",
    ),
    (
        "fp8_recipe_for_newer_gpu",
        "The current device has compute capability of (8, 0) which is insufficient for FP8 mixed precision "
        "training (requires a GPU Hopper/Ada Lovelace or higher, compute capability of 8.9 or higher).",
    ),
    # Lightning 2.6, and 1.9
    (
        "fp16_became_bf16",
        "You passed `Trainer(accelerator='cpu', precision='16-mixed')` but AMP with fp16 is not supported "
        "on CPU.",
    ),
    (
        "clipping_a_fused_optimizer",
        "The current optimizer, AdamW, does not allow for gradient clipping because it performs unscaling of "
        "gradients internally. HINT: Are you using a 'fused' optimizer?",
    ),
    (
        "clipping_a_fused_optimizer",
        "Gradient clipping is not implemented for optimizers handling the unscaling.",
    ),
    ("closure", "AMP and the LBFGS optimizer are not compatible."),
    (
        "scaler_for_bf16",
        "`precision='bf16-mixed'` does not use a scaler, found <torch.amp.grad_scaler.GradScaler",
    ),
    (
        "unknown_precision_flag",
        "Precision '8-mixed' is invalid. Allowed precision values: ('transformer-engine',",
    ),
    (
        "unknown_precision_flag",
        "`precision='64-true')` is not supported in FSDP. `precision` must be one of: ('32-true', '16-true',",
    ),
    (
        "unknown_precision_flag",
        "`Trainer(strategy='deepspeed', precision='64-true')` is not supported. `precision` must be one of: "
        "(",
    ),
    (
        "old_name_of_precision",
        "`precision=16` is supported for historical reasons but its usage is discouraged. Please set your",
    ),
    (
        "backward_past_fabric",
        "The current strategy and precision selection requires you to call `fabric.backward(loss)` instead "
        "of `loss.backward()`.",
    ),
    # DeepSpeed, 22 August 2026, and before
    (
        "step_skipped",
        "[deepspeed] fp16 dynamic loss scale overflow! Skipping step. Attempted loss scale: 8, reducing",
    ),
    ("step_skipped", "[deepspeed] OVERFLOW! Rank 0 Skipping step."),
    ("deepspeed_without_16_bits", "Type fp16 is not supported on your device."),
    ("deepspeed_without_16_bits", "Type bf16 is not supported."),
    ("deepspeed_without_16_bits", "Cannot use fp16 without accelerator."),
    ("two_precisions_at_once", "bfloat16 and fp16 cannot be enabled at once"),
    ("two_precisions_at_once", "Cannot enable both amp with (legacy) fp16 or bfloat16 mode"),
    # fairseq
    (
        "step_skipped",
        "| INFO | fairseq.trainer | NOTE: gradient overflow detected, ignoring gradient, setting loss scale "
        "to: 64.0",
    ),
    # Transformer Engine, 22 August 2026
    ("fp8_recipe_for_newer_gpu", "Device compute capability 8.9 or higher required for FP8 execution."),
    ("fp8_recipe_for_newer_gpu", "Device compute capability 10.0 or higher required for MXFP8 execution."),
    ("fp8_recipe_for_newer_gpu", "Device compute capability 10.0 or higher required for NVFP4 execution."),
    ("fp8_recipe_for_newer_gpu", "MXFP8 (for all gemm layouts) is not supported on 12.0+ architectures yet."),
    (
        "fp8_recipe_for_newer_gpu",
        "FP8 block scaled GEMM requires compute capability 9.0 or higher and CUDA >= 12.9.",
    ),
    (
        "fp8_size",
        "FP8 execution requires the product of all dimensions except the last to be divisible by 8 and the "
        "last dimension to be divisible by 16, but got tensor with dims=[17, 16]",
    ),
    (
        "transformer_engine_outside_autocast",
        "Data types for parameters must match when outside of autocasted region. Found input dtype: "
        "torch.bfloat16 and 'weight' dtype: torch.float32",
    ),
    # torchao, 21 August 2026
    (
        "fp8_recipe_for_newer_gpu",
        "Float8 dynamic activation quantization is only supported on CUDA>=8.9 and MI300+",
    ),
    (
        "fp8_recipe_for_newer_gpu",
        "Float8 dynamic quantization requires CUDA compute capability ≥8.9 or MI300+ or XPU.",
    ),
    ("fp8_rows_in_bf16_only", "PerRow quantization only works for bfloat16 precision input weight"),
    # Triton, now and before version 3
    (
        "fp8_in_a_triton_kernel",
        "type fp8e4nv not supported in this architecture. The supported fp8 dtypes are ('fp8e4b15', 'fp8e5')",
    ),
    ("fp8_in_a_triton_kernel", "AssertionError: fp8e4nv data type is not supported on CUDA arch < 89"),
    # vLLM
    (
        "quantized_for_another_dtype",
        "torch.bfloat16 is not supported for quantization method awq. Supported dtypes: [torch.float16]",
    ),
    (
        "fp8_recipe_for_newer_gpu",
        "The quantization method fp8 is not supported for the current GPU. Minimum capability: 90. Current",
    ),
    (
        "fp8_weights_only",
        "Your GPU does not have native support for FP8 computation but FP8 quantization is being used. "
        "Weight-only",
    ),
    (
        "fp8_cache_without_scales",
        "Using KV cache scaling factor 1.0 for fp8_e4m3. If this is unintended, verify",
    ),
    (
        "engine_without_fp16",
        "The model type 'gemma3' does not support float16. Reason: Numerical instability. Please use "
        "bfloat16 or",
    ),
    # bitsandbytes, 19 August 2026
    ("quantized_once_more", "Blockwise quantization only supports 16/32-bit floats, but got torch.uint8"),
    (
        "quantized_once_more",
        "Blockwise 4bit dequantization only supports 16/32-bit floats, but got torch.uint8",
    ),
    # Apex
    (
        "model_cast_before_apex",
        "Found param weight with type torch.cuda.HalfTensor, expected torch.cuda.FloatTensor.\nWhen using "
        "amp.initialize, you do not need to call .half() on your model\nbefore passing it",
    ),
    # Whisper and CTranslate2
    ("speech_model_in_fp32", "UserWarning: FP16 is not supported on CPU; using FP32 instead"),
    (
        "compute_type_without_kernels",
        "Requested float16 compute type, but the target device or backend do not support efficient float16 "
        "computation.",
    ),
    (
        "compute_type_without_kernels",
        "The compute type inferred from the saved model is float16, but the target device or backend do not "
        "support efficient float16 computation. The model weights have been automatically converted to use "
        "the",
    ),
    # diffusers, now and before `dtype`
    (
        "pipeline_on_a_cpu",
        "Pipelines loaded with `dtype=torch.float16` cannot run with `cpu` device. It is not recommended to",
    ),
    ("pipeline_on_a_cpu", "Pipelines loaded with `torch_dtype=torch.float16` cannot run with `cpu` device."),
    (
        "nan_in_an_image_model",
        "image_processor.py:111: RuntimeWarning: invalid value encountered in cast\n  images = (images * "
        '255).round().astype("uint8")',
    ),
    # detectron2
    ("loss_not_finite", "FloatingPointError: Loss became infinite or NaN at iteration=0!\nloss_dict = {}"),
    # Unsloth
    (
        "flags_and_model_of_two_dtypes",
        "Unsloth: Model is in bfloat16 precision but you want to use float16 precision. Set fp16 to `False`",
    ),
    # xformers
    (
        "no_xformers_kernel",
        "No operator found for `memory_efficient_attention_forward` with inputs:\n     query       : "
        "shape=(1, 2, 1, 40) (torch.float32)\n`ckF` is not supported because:\n    dtype=torch.float32 "
        "(supported: {torch.bfloat16, torch.float16})",
    ),
    # Transformers 5.23
    ("no_tf32_on_this_gpu", "--tf32 requires Ampere or a newer GPU arch, cuda>=11 and torch>=1.7"),
    # What loops and programs say of a run that went wrong: log lines, and checks of their own
    ("nan_in_a_log_line", "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.07}"),
    ("nan_in_a_log_line", "{'loss': 'nan', 'learning_rate': 1e-05}"),
    (
        "nan_in_a_log_line",
        "Epoch 3:  42%|####      | 210/500 [01:02<01:26, 3.37it/s, train_loss=nan, lr=1e-4]",
    ),
    ("nan_in_a_log_line", "step 40: grad_norm = inf, lr = 3e-4"),
    ("own_check_of_gradients", "RuntimeError: Non-finite gradient detected"),
    ("own_check_of_gradients", "WARNING: The grad norm is nan. Skipping updating the model."),
    ("own_check_of_gradients", "Skip this batch 2! (Loss: inf)"),
    # SciPy's matching, scikit-learn's inputs, CUDA's assertion in binary_cross_entropy
    ("nan_surfaces_elsewhere", "ValueError: matrix contains invalid numeric entries"),
    ("nan_surfaces_elsewhere", "ValueError: Input contains NaN."),
    (
        "nan_surfaces_elsewhere",
        "ValueError: Input X contains infinity or a value too large for dtype('float32').",
    ),
    (
        "nan_surfaces_elsewhere",
        "../aten/src/ATen/native/cuda/Loss.cu:94: operator(): block: [0,0,0], thread: [1,0,0] Assertion "
        "`input_val >= zero && input_val <= one` failed.",
    ),
    # Lightning, and PyTorch 2.9 and 2.10
    (
        "tf32_is_off",
        "You are using a CUDA device ('NVIDIA A100-SXM4-40GB') that has Tensor Cores. To properly utilize "
        "them, you should set `torch.set_float32_matmul_precision('medium' | 'high')`",
    ),
    ("tf32_is_off", "UserWarning: Please use the new API settings to control TF32 behavior, such as"),
    (
        "cublas_workspace",
        "Deterministic behavior was enabled with either `torch.use_deterministic_algorithms(True)` or "
        "`at::Context::setDeterministicAlgorithms(true)`, but this operation is not deterministic because "
        "it uses CuBLAS and you have CUDA >= 10.2. To enable deterministic behavior in this case, you must "
        "set an environment variable before running your PyTorch application: "
        "CUBLAS_WORKSPACE_CONFIG=:4096:8",
    ),
    # flash-attn, PyTorch's older attention, xformers
    ("attention_of_newer_gpus", "RuntimeError: FlashAttention only supports Ampere GPUs or newer."),
    ("nothing_for_this_attention", "RuntimeError: cutlassF: no kernel found to launch!"),
    (
        "nothing_for_this_attention",
        "ValueError: Query/Key/Value should either all have the same dtype, or (in the",
    ),
    # Transformer Engine
    (
        "nvfp4_of_another_gpu",
        "FP4 cvt PTX instructions are architecture-specific. Try recompiling with sm_XXXa instead of sm_XXX.",
    ),
    # Apple's Metal, PyTorch on it, Accelerate
    ("two_dtypes_on_mps", "LLVM ERROR: Failed to infer result type(s)."),
    (
        "two_dtypes_on_mps",
        "error: input types 'tensor<1x4x8xf16>' and 'tensor<1xf32>' are not broadcast compatible",
    ),
    (
        "scaler_on_mps",
        'File "torch/amp/grad_scaler.py", line 335, in unscale_\n    inv_scale = self._scale.double()\n'
        "TypeError: Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support "
        "float64.",
    ),
    ("scaler_on_mps", "Grad Scaler with MPS device requires a Pytorch >= 2.8.0"),
    # Accelerate, DeepSpeed
    (
        "masters_made_fp32",
        "Upcasted low precision parameters in LlamaDecoderLayer because mixed precision turned on in FSDP.",
    ),
    (
        "zero_of_two_dtypes",
        "Model data type and gradient accumulation data type must be equal to use ZeRO",
    ),
    # ZeRO-3 under checkpointing, in trl's words
    (
        "sharded_weights_recomputed",
        "Recomputed values for the following tensors have different metadata than during the forward pass.\n"
        "tensor at position 4:\nsaved metadata: {'shape': torch.Size([2048]), 'dtype': torch.bfloat16}\n"
        "recomputed metadata: {'shape': torch.Size([0]), 'dtype': torch.bfloat16}",
    ),
    ("bias_of_another_dtype", "RuntimeError: invalid dtype for bias - should match query's dtype"),
    # Dynamo, in older versions
    (
        "custom_function_compiled",
        "torch._dynamo.exc.Unsupported: 'inline in skipfiles: MyMM.forward | decorate_fwd",
    ),
    ("custom_function_compiled", "torch._dynamo.exc.Unsupported: call_function UserDefined decorate_bwd"),
    (
        "fp64_beside_fp32",
        "RuntimeError: Input and parameter tensors are not the same dtype, found input tensor with Double "
        "and parameter tensor with Float",
    ),
    ("product_of_two_fp8_gradients", "Multiplication of two Float8_e5m2 matrices is not supported"),
    # NCCL and gloo, through PyTorch
    ("sent_in_a_format_unknown", "RuntimeError: Unconvertible NCCL type Float8_e4m3fn"),
    ("sent_in_a_format_unknown", "ProcessGroupGloo.cpp:2009: Invalid scalar type"),
    # A field trial on public reports, 29 November 2026: PyTorch's shapes for FP8 in compiled code
    ("fp8_size", "Expected both dimensions of mat2 to be divisible by 16 but got torch.Size([768, 2])"),
    # Triton, before version 3 and on GPUs before Ampere
    ("fp8_in_a_triton_kernel", "Conversion from/to f8e4m3nv is only supported on compute capability >= 90"),
    (
        "bf16_in_a_triton_kernel",
        "Internal Triton PTX codegen error: \nptxas /tmp/compile-ptx-src-9e79cc, line 59; error   : Feature "
        "'.bf16' requires .target sm_80 or higher",
    ),
    (
        "bf16_in_a_triton_kernel",
        "error   : Feature 'cvt with .f32.bf16' requires .target sm_80 or higher",
    ),
    # A node of ComfyUI, bitsandbytes
    (
        "fp8_recipe_for_newer_gpu",
        "ERROR: FP8 models require a GPU with Compute Capability 8.9 or higher (e.g., RTX 4090).",
    ),
    (
        "quantized_from_fp8",
        "Blockwise quantization only supports 16/32-bit floats, but got torch.float8_e4m3fn",
    ),
    # Megatron-DeepSpeed, InternEvo
    ("nan_in_a_log_line", "| loss scale: 1.0 | grad norm: nan | actual seqlen:  2048 |"),
    ("own_check_of_gradients", "Nan grad norm  occurs, please check it."),
    # Metal
    ("two_dtypes_on_mps", "tensor<1x77x1xf16>' and 'tensor<1xf32>' are not broadcast compatible"),
    # DeepSpeed 0.17.2, and later; its configuration
    (
        "autocast_around_deepspeed",
        "torch.autocast is enabled outside DeepSpeed, but not in the DeepSpeed config. Please enable",
    ),
    (
        "autocast_around_deepspeed",
        "torch.autocast is enabled outside DeepSpeed but disabled within the DeepSpeed engine. If you are",
    ),
    ("two_precisions_at_once", "bfloat16 and fp16 modes cannot be simultaneously enabled"),
    # vLLM
    ("engine_casts_to_fp16", "WARNING config.py:1563] Casting torch.bfloat16 to torch.float16."),
    # JAX of 2024 and 0.10.2; XLA
    (
        "lax_of_two_dtypes",
        "lax.select requires arguments to have the same dtypes, got float32, float16. (Tip:",
    ),
    (
        "lax_of_two_dtypes",
        "lax.dot_general requires arguments to have the same dtypes, got float32, bfloat16.",
    ),
    (
        "branches_of_two_dtypes",
        "true_fun and false_fun output must have identical types, got\n({'BERT_0': {'bias': 'DIFFERENT "
        "ShapedArray(bfloat16[512]) vs. ShapedArray(float32[512])'}})",
    ),
    (
        "branches_of_two_dtypes",
        "cond branches must have equal output types but they differ.\nThe output of true_fun at path ['x'] "
        "has type float32[3] but the corresponding output of false_fun has type bfloat16[3], so the dtypes "
        "do not match.",
    ),
    (
        "branches_of_two_dtypes",
        "The input carry c has type bfloat16[3] but the corresponding output carry component has type "
        "float32[3], so the dtypes do not match.",
    ),
    (
        "xla_of_two_dtypes",
        "Seen floating point types of different precisions in %add.281 = f32[16384,768]{1,0} "
        "add(f32[16384,768]{1,0} %dot.276, bf16[16384,768]{1,0} %broadcast.280), but mixed precision is "
        "disallowed.",
    ),
)
