"""Where autocast is asked for, what it refuses, and what becomes of it in captured code."""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message

_SOURCE = "torch/amp/autocast_mode.py"

AUTOCAST = (
    Message(
        name="autocast_off_without_cuda",
        patterns=(
            r"CUDA is not available or torch_xla is imported",
            r"User provided device_type of '\w+', but \w+ is not available",
        ),
        meaning="Autocast for CUDA was asked for where PyTorch sees no CUDA device. It has turned itself "
        "off: everything runs in fp32, with no error and no speed-up.",
        cure="Name the device of your tensors: `torch.autocast(device.type, dtype=...)`. On a machine with "
        "a GPU, see why `torch.cuda.is_available()` is False.",
        lesson="02",
        source=_SOURCE,
    ),
    Message(
        name="autocast_off_for_this_dtype",
        patterns=(
            r"In \S+ autocast, but the target dtype is not supported",
            r"\w [Aa]utocast only supports dtypes? (of )?torch\.",
        ),
        meaning="Autocast lowers to bf16 or fp16. For the dtype asked for, it has turned itself off: "
        "everything runs in the dtypes of its inputs.",
        cure="Give `dtype=torch.bfloat16` or `dtype=torch.float16`. For fp32, say `enabled=False`, which "
        "gives no warning.",
        lesson="02",
        source=_SOURCE,
    ),
    Message(
        name="cpu_autocast_in_fp16",
        patterns=(r"AutocastCPU only support Bfloat16",),
        meaning="Before PyTorch 2.2 the CPU's autocast took bf16 only, and fp16 was asked of it, often by "
        "code that was written for a GPU. It is refused even with `enabled=False`.",
        cure="`dtype=torch.bfloat16` where the device is `cpu`, or PyTorch 2.2 and up, which takes both.",
        lesson="02",
        source="C++",
        seen_at="https://github.com/pytorch/pytorch/issues/115991",
    ),
    Message(
        name="no_bf16_on_this_gpu",
        patterns=(r"Current CUDA Device does not support bfloat16",),
        meaning="This GPU has no arithmetic in bf16; those from Ampere on (compute capability 8.0) have.",
        cure="Take `dtype=torch.float16`, with a `GradScaler`. Ask beforehand with "
        "`torch.cuda.is_bf16_supported(including_emulation=False)`: without it, emulation counts as "
        "support.",
        lesson="01",
        source=_SOURCE,
        seen_at="https://github.com/pytorch/pytorch/issues/124996",
    ),
    Message(
        name="unsafe_to_autocast",
        patterns=(r"unsafe to autocast",),
        meaning="`binary_cross_entropy` takes probabilities. Its gradient divides by p(1-p), which fp16 "
        "cannot hold when p is near 0 or 1, and casting the input to fp32 would not help, since the "
        "gradient is cast back. CUDA's autocast refuses it; the CPU's runs it in fp32, so it shows on a "
        "GPU only.",
        cure="Drop the sigmoid and take `binary_cross_entropy_with_logits` (`nn.BCEWithLogitsLoss`), which "
        "is safe. Or compute this loss in a `torch.autocast(device, enabled=False)` region, on `.float()` "
        "inputs.",
        lesson="02",
        source="C++",
        seen_at="https://github.com/pytorch/pytorch/issues/61098",
    ),
    Message(
        name="autocast_device_unknown",
        patterns=(
            r"User specified an unsupported autocast device_type",
            r"unknown device type for autocast",
            r"\bunsupported scalarType\b",
            r"Device type '[^']*' does not support autocast",
            r"Expected one of cpu, cuda, .* at start of device string",
        ),
        meaning="There is no device of this name, or it has no autocast: `gpu` is called `cuda`, and "
        "`meta` tensors have nothing to cast.",
        cure="Give the type of your tensors' device as a string, `torch.autocast(tensor.device.type)`: "
        "`cuda` (ROCm too), `cpu`, `mps`, `xpu`.",
        lesson="02",
        source=_SOURCE,
        unless=(r"unsupported autocast device_type 'mps'",),
    ),
    Message(
        name="autocast_device_is_no_string",
        patterns=(r"Expected `device_type` of type `str`, got",),
        meaning="Autocast was given a `torch.device`, a dtype or something else in place of the name of a "
        "device type. `torch.cuda.amp.autocast(dtype)` had no device as its first argument, "
        "`torch.autocast` has.",
        cure="`torch.autocast(device.type, dtype=torch.bfloat16)`, with `device.type` a string such as "
        "`cuda`.",
        lesson="02",
        source=_SOURCE,
    ),
    Message(
        name="autocast_called",
        patterns=(r"autocast\(\)\(func\) requires a callable",),
        meaning="An autocast context was called with a tensor, as if it were the model. Called, it "
        "decorates functions.",
        cure="`with torch.autocast(device): output = model(input)`.",
        lesson="02",
        source=_SOURCE,
    ),
    Message(
        name="custom_function_without_device",
        patterns=(r"custom_(fwd|bwd)\(\) missing 1 required keyword-only argument: 'device_type'",),
        meaning="`torch.amp.custom_fwd` and `custom_bwd` have to be told whose autocast they follow; the "
        "old ones of `torch.cuda.amp` were for CUDA.",
        cure="`@torch.amp.custom_fwd(device_type='cuda')` on forward, "
        "`@torch.amp.custom_bwd(device_type='cuda')` on backward.",
        lesson="02",
        source=_SOURCE,
    ),
    Message(
        name="old_spelling",
        patterns=(
            r"`?torch\.(cuda|cpu)\.amp\.\w+(\.\w+)?\([^)]*\)`? is deprecated",
            r"torch\.(get|set|is)_autocast_\w+\([^)]*\) is deprecated",
        ),
        meaning="An old spelling for one device. It still does the same.",
        cure="The message says the new spelling, which names the device: `torch.amp.autocast('cuda', "
        "...)`, `torch.amp.GradScaler('cuda', ...)`. The order of the arguments differs: give them by "
        "keyword.",
        lesson="02",
        source="torch/cuda/amp/autocast_mode.py",
        seen_at="https://github.com/karpathy/nanoGPT/issues/635",
    ),
    Message(
        name="old_spelling_with_a_device",
        patterns=(
            r"autocast\.__(new|init)__\(\) got an unexpected keyword argument 'device_type'",
            r"GradScaler\.__(new|init)__\(\) got an unexpected keyword argument 'device'",
        ),
        meaning="The old classes of `torch.cuda.amp` and `torch.cpu.amp` are for one device and take none.",
        cure="Import from `torch.amp`, `from torch.amp import autocast, GradScaler`, which takes the device.",
        lesson="02",
        source="torch/cuda/amp/autocast_mode.py",
    ),
    Message(
        name="autocast_of_another_backend",
        patterns=(r"Tried to use AMP with the `[^`]*` backend",),
        meaning="A device from outside PyTorch (a plug-in backend) was asked for autocast without having "
        "said which dtypes it has.",
        cure="Update that backend's package, and import it before autocast is used. Its author has to "
        "register a module with `get_amp_supported_dtype`.",
        lesson="02",
        source=_SOURCE,
    ),
    Message(
        name="autocast_in_a_script",
        patterns=(
            r"fast_dtype must not be None in scripting mode",
            r"Unsupported autocast syntax",
            r"Autocast (device|_enabled) argument must be a constant",
            r"Autocast (missing|has invalid) \w+ attribute",
            r"Unsupported case by AMP & JIT",
            r"Calls are not expected with AMP & JIT",
            r"CallMethod form with AMP & JIT",
        ),
        meaning="TorchScript understands only the plainest use of autocast: constant arguments, no nested "
        "calls.",
        cure="Put the autocast context outside, around the call of the scripted module, or use "
        "`torch.compile` in place of `torch.jit.script`.",
        lesson="02",
        source=_SOURCE,
    ),
)


COMPILING = (
    Message(
        name="autocast_in_compiled_code",
        patterns=(
            r"wrap_with_autocast",
            r"unexpected autocast function",
            r"AOTAutograd does not support tracing graphs that mutate the autocast state",
            r"expected backward_pass_autocast to be",
        ),
        meaning="`torch.compile` met a use of autocast that it cannot put into its graph: settings changed "
        "without a `with` block, or arguments that are computed while it runs.",
        cure="Put `with torch.autocast(...)` around the call of the compiled model, with constant arguments.",
        lesson="05",
        source="torch/_functorch/_aot_autograd/collect_metadata_analysis.py",
    ),
    Message(
        name="autocast_in_exported_code",
        patterns=(
            r"expected (enter|exit)_autocast node",
            r"exit_autocast_node\.args",
            r"enter_autocast_node_stack",
            r"autocast must exit",
            r"autocast or set_grad_enabled require monotonically",
            r"Expected 1 arg for _exit_autocast",
        ),
        meaning="Exporting or splitting a graph came upon an autocast region that does not begin and end "
        "in one piece.",
        cure="Export the model without autocast in it: autocast around the call of what was exported, or "
        "the model cast to the dtype it shall run in. A region that stays has to begin and end within one "
        "forward.",
        lesson="05",
        source="torch/_export/passes/replace_autocast_with_hop_pass.py",
    ),
    Message(
        name="autocast_cache_in_a_cuda_graph",
        patterns=(r"make_graphed_callables does not support the autocast caching",),
        meaning="A recorded CUDA graph would read weights from autocast's cache, which is emptied when the "
        "block ends.",
        cure="`with torch.autocast('cuda', cache_enabled=False):` around the recording and the calls.",
        lesson="05",
        source="torch/cuda/graphs.py",
    ),
)
