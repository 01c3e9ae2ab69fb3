"""Apple's GPU (MPS): formats that it has not, and the scaler's kernels."""

from __future__ import annotations

from amp_lessons.audit.explaining.message import Message

APPLE = (
    Message(
        name="no_scaler_on_this_device",
        patterns=(
            r"operator 'aten::_amp_(foreach_non_finite_check_and_unscale_|update_scale_)' is not currently "
            r"(implemented|supported) (for|on) the \w+",
        ),
        meaning="`scaler.step` looks through the gradients with a kernel of its own, and this version of "
        "PyTorch has none for the device. MPS has it in PyTorch 2.13, and had it not in 2.7.",
        cure="Update PyTorch, or train in bf16 without a scaler (on MPS from macOS 14).",
        lesson="03",
        source="C++",
        seen_at="https://github.com/pytorch/pytorch/issues/141287",
    ),
    Message(
        name="no_autocast_on_mps",
        patterns=(r"User specified an unsupported autocast device_type 'mps'",),
        meaning="This PyTorch has no autocast on Apple's GPU: it came with 2.5, in fp16, and in 2.6 "
        "for bf16 too.",
        cure="Update PyTorch. Else leave autocast out on MPS, with `contextlib.nullcontext()` in its place.",
        lesson="02",
        source="torch/amp/autocast_mode.py",
        seen_at="https://github.com/huggingface/transformers/pull/29439",
    ),
    Message(
        name="no_fp64_on_mps",
        patterns=(
            r"Cannot convert a (MPS Tensor to float64 dtype|float64 Tensor to MPS) as the MPS framework",
        ),
        meaning="Apple's GPU has no fp64 at all. The tensor is often a NumPy array (which is fp64 unless "
        "told otherwise), a Python number made a tensor, or a loss summed in fp64.",
        cure="Cast before it is moved, `torch.from_numpy(array).float().to('mps')`, or make the array with "
        "`dtype=np.float32`. What must be summed in fp64 goes to the CPU: `x.cpu().double().sum()`.",
        lesson="01",
        source="C++",
        unless=(r"grad_scaler\.py",),
    ),
    Message(
        name="no_bf16_on_mps",
        patterns=(
            r"Trying to convert BFloat16 to the MPS backend",
            r"MPS (BFloat16 is only|bfloat16 type is) supported on MacOS",
            r"[Bb][Ff]loat16 is not supported on MPS",
        ),
        meaning="This version of macOS, or of PyTorch, has no bf16 on Apple's GPU (it came with macOS 14), "
        "or a training script has refused it there since that time.",
        cure="Update macOS and PyTorch, or take fp16: `torch.autocast('mps', dtype=torch.float16)` with "
        "`GradScaler('mps')` to train. Weights saved in bf16 are cast before they are moved, "
        "`model.float()`.",
        lesson="01",
        source="C++",
    ),
    Message(
        name="no_fp8_on_mps",
        patterns=(r"Trying to convert Float8_\w+ to the MPS backend",),
        meaning="Apple's GPU has no FP8, not even to store it: the weights of this checkpoint are in FP8.",
        cure="Load the checkpoint that is in 16 bits. From an FP8 one, expand on the CPU before moving, "
        "`(weight.to(torch.bfloat16) * scale).to('mps')`, for a weight without a scale without it.",
        lesson="09",
        source="C++",
        seen_at="https://github.com/pytorch/pytorch/issues/148420",
    ),
)
