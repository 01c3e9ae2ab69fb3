"""Proofs of the answers about pretrained models, fine-tuning and inference."""

from __future__ import annotations

import copy
import io
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons import autocast, formats, measure
from amp_lessons.formats import BLOCK_FORMATS, FORMATS
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.material import data, models


def bf16_checkpoint() -> dict[str, object]:
    """Run a feed-forward layer whose activations are normal for bf16 in fp16, and scale its loss."""
    up = nn.Linear(64, 256, bias=False)
    with torch.no_grad():
        up.weight.mul_(60_000)
    inputs = torch.randn(32, 64)
    largest = up(inputs).abs().max().item()
    assert largest > torch.finfo(torch.float16).max
    with torch.autocast("cpu", torch.bfloat16):
        assert up(inputs).isfinite().all()
    with torch.autocast("cpu", torch.float16):
        assert up(inputs).isinf().any()  # whatever the loss is multiplied by later
    return {"largest": f"{torch.finfo(torch.float16).max:.0f}", "bf16": f"{FORMATS['bf16'].max:.0e}"}


def bf16_finetune() -> dict[str, object]:
    """Fine-tune bf16 weights at two learning rates, and count the weights that Adam's steps have moved."""
    weights = torch.randn(10_000) * 0.05

    def moved(rate: float) -> float:
        parameter = nn.Parameter(weights.bfloat16())
        optimizer = torch.optim.AdamW([parameter], lr=rate, weight_decay=0.0)
        parameter.grad = torch.randn(10_000).bfloat16()
        optimizer.step()
        return (parameter != weights.bfloat16()).float().mean().item()

    small, large = moved(2e-5), moved(1e-3)
    assert small < 0.25
    assert large > 0.85

    def left_by_decay(rate: float, dtype: torch.dtype, steps: int) -> float:
        """Return the share of the weights' norm that is left by steps that only decay."""
        parameter = nn.Parameter((weights * torch.logspace(-6, 6, len(weights))).to(dtype))
        optimizer, before = torch.optim.AdamW([parameter], lr=rate, weight_decay=0.1), parameter.norm().item()
        parameter.grad = torch.zeros_like(parameter)
        for _ in range(steps):
            optimizer.step()
        return parameter.norm().item() / before

    decayed = 100
    assert left_by_decay(1e-3, torch.float32, decayed) < 0.995
    assert all(left_by_decay(rate, torch.bfloat16, decayed) == 1 for rate in (2e-5, 1e-3))
    counted = {"few": f"{small:.0%}", "most": f"{large:.0%}", "decayed": decayed}
    return {"small": "2e-5", "large": "1e-3", "size": "0.05", **counted}


def lora() -> dict[str, object]:
    """Train small adapters on a frozen 16-bit layer: in fp16, and in fp32."""

    class Adapted(nn.Module):
        def __init__(self, dtype: torch.dtype) -> None:
            super().__init__()
            self.base = nn.Linear(64, 64).half().requires_grad_(False)
            self.down = nn.Linear(64, 4, bias=False).to(dtype)
            self.up = nn.Linear(4, 64, bias=False).to(dtype)

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x) + self.up(self.down(x))

    def step(dtype: torch.dtype) -> str:
        model = Adapted(dtype)
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer, scaler = torch.optim.AdamW(trained), torch.amp.GradScaler("cpu", init_scale=128.0)
        with torch.autocast("cpu", torch.float16):
            loss = model(torch.randn(8, 64)).float().square().mean()
        scaler.scale(loss).backward()
        try:
            scaler.step(optimizer)
        except ValueError as error:
            return str(error)
        return ""

    assert "Attempting to unscale FP16 gradients" in step(torch.float16)
    assert step(torch.float32) == ""
    model = Adapted(torch.float32)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    share = trained / sum(p.numel() for p in model.parameters())
    state = measure.optimizer_bytes(torch.optim.AdamW, [p for p in model.parameters() if p.requires_grad])
    per_weight = state.state / trained + 4 + 4
    assert per_weight == 16
    return {"base": 2, "adapters": f"{per_weight:g}", "share": f"{share:.0%}"}


def frozen() -> dict[str, object]:
    """Count what autograd saves of a network whose first layers are frozen, and of one whose last are."""

    def saved(freeze: slice) -> int:
        layers = [layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.ReLU())]
        for layer in layers[freeze]:
            layer.requires_grad_(False)
        model = nn.Sequential(*layers, nn.Linear(256, 10))
        inputs = torch.randn(512, 256)
        return sum(measure.saved_activation_bytes(model, inputs, dtype=torch.bfloat16).values())

    everything, backbone, front = saved(slice(0, 0)), saved(slice(0, 8)), saved(slice(6, 8))
    assert backbone < 0.2 * everything
    assert front > 0.5 * everything  # gradients still pass through what is frozen
    return {"backbone": f"{backbone / everything:.0%}", "front": f"{front / everything:.0%}"}


def inference_half() -> dict[str, object]:
    """Run a model in 16 bits in three ways; compare its weights' bytes and its outputs with fp32."""
    model, inputs = models.transformer_block(32).eval(), torch.randn(4, 16, 32)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    with torch.inference_mode():
        exact = model(inputs)
        with torch.autocast("cpu", torch.bfloat16):
            mixed = formats.relative_error(model(inputs).float(), exact)
        lower, half = copy.deepcopy(model).bfloat16(), copy.deepcopy(model).half()
        bf16 = formats.relative_error(lower(inputs.bfloat16()).float(), exact)
        fp16 = formats.relative_error(half(inputs.half()).float(), exact)
    assert fp16 < bf16 < 0.02
    assert mixed < 0.02
    halved = sum(p.numel() * p.element_size() for p in lower.parameters())
    assert halved == size / 2
    return {"ratio": f"{halved / size:.0%}", "bf16": f"{bf16:.1%}", "fp16": f"{fp16:.2%}"}


def save_half() -> dict[str, object]:
    """Save a model in 16 bits in two ways, and look at the model that goes on training."""
    model = nn.Linear(64, 64)
    state = model.half().state_dict()  # in place: this is the model that trains
    assert model.weight.dtype == torch.float16
    assert state["weight"].dtype == torch.float16
    model(torch.randn(4, 64).half()).sum().backward()
    scaler, optimizer = torch.amp.GradScaler("cpu"), torch.optim.SGD(model.parameters(), lr=1e-7)
    scaler.scale(torch.ones(()))
    refused = ""
    try:
        scaler.unscale_(optimizer)
    except ValueError as error:
        refused = str(error)
    assert "FP16 gradients" in refused
    before = model.weight.clone()
    optimizer.step()
    assert (model.weight == before).float().mean() > 0.9  # without it most small updates are lost

    model = nn.Linear(64, 64)
    copies = {name: value.half() for name, value in model.state_dict().items()}
    assert model.weight.dtype == torch.float32

    def size(saved: dict[str, Tensor]) -> int:
        file = io.BytesIO()
        torch.save(saved, file)
        return file.getbuffer().nbytes

    assert size(copies) < 0.6 * size(model.state_dict())
    changed = formats.relative_error(copies["weight"].float(), model.weight)
    assert 0 < changed < 2**-11
    return {"dtype": "fp16", "error": f"{changed:.2%}"}


def outliers() -> dict[str, object]:
    """Give activations an outlier channel, and quantise them with one scale and with one per block."""
    activations = torch.randn(64, 512)
    activations[:, 7] *= 100
    ordinary = torch.ones(512, dtype=torch.bool)
    ordinary[7] = False

    def lost(name: str) -> float:
        back = BLOCK_FORMATS[name].quantize(activations).dequantize()
        return ((back == 0) & (activations != 0))[:, ordinary].float().mean().item()

    four_bits = formats.per_tensor(FORMATS["fp4_e2m1"]).quantize(activations).dequantize()
    tensor = (four_bits == 0)[:, ordinary].float().mean().item()
    blocks = lost("nvfp4")
    eight_bits = formats.per_tensor(FORMATS["fp8_e4m3"]).quantize(activations).dequantize()
    error = formats.relative_error(eight_bits[:, ordinary], activations[:, ordinary])
    assert tensor > 0.9
    assert blocks < 0.25
    assert error < 0.05
    return {
        "times": 100,
        "tensor": f"{tensor:.0%}",
        "blocks": f"{blocks:.0%}",
        "eight": f"{error:.1%}",
    }


def logits() -> dict[str, object]:
    """Count the bytes of the logits of a language model, in the format of the output and in the loss's."""
    tokens, vocabulary = 8 * 2048, 128_000
    with autocast.fake_tensors():
        head, hidden = nn.Linear(256, vocabulary, bias=False), torch.empty(tokens, 256)
        labels = torch.empty(tokens, dtype=torch.long)
    found = measure.predict_memory(
        head, hidden, precision_name="bf16", loss_fn=lambda out: F.cross_entropy(out, labels), optimizer=None
    )
    in_bf16, in_fp32 = tokens * vocabulary * 2, tokens * vocabulary * 4
    assert found.peak_bytes > 2 * in_bf16 + in_fp32
    with autocast.cuda_rules(), torch.autocast("cpu", dtype=torch.bfloat16):
        few = nn.Linear(4, 8)(torch.ones(1, 4))
        loss = F.cross_entropy(few, torch.zeros(1, dtype=torch.long))
    read_by_the_loss: Any = loss.grad_fn
    log_softmax = read_by_the_loss.next_functions[0][0].next_functions[0][0]._saved_result  # behind the cast
    assert few.dtype == log_softmax.dtype == torch.bfloat16
    assert loss.dtype == torch.float32
    return {
        "tokens": tokens,
        "vocabulary": vocabulary,
        "bf16": f"{in_bf16 / 1e9:.1f}",
        "fp32": f"{in_fp32 / 1e9:.1f}",
        "peak": f"{found.peak_bytes / 1e9:.0f}",
        "log_softmax": dtype_name(log_softmax.dtype),
    }


def true_or_mixed() -> dict[str, object]:
    """Train a classifier under bf16 autocast and with bf16 weights, from the same start."""
    train = data.digits().train
    images, labels = train.images[:64], train.labels[:64]

    def after(true: bool, rate: float = 2e-5) -> tuple[float, set[torch.dtype]]:
        model = models.digits_classifier(32)
        model = model.bfloat16() if true else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
        for _ in range(30):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=not true):
                out = model(images.bfloat16() if true else images)
                loss = F.cross_entropy(out.float(), labels)
            loss.backward()
            optimizer.step()
        weight = next(model.parameters())
        assert weight.grad is not None
        dtypes = {weight.dtype, weight.grad.dtype, optimizer.state[weight]["exp_avg"].dtype}
        return F.cross_entropy(model.float()(images), labels).item(), dtypes

    (mixed, dtypes), (true, true_dtypes) = after(False), after(True)
    assert (dtypes, true_dtypes) == ({torch.float32}, {torch.bfloat16})
    start = F.cross_entropy(models.digits_classifier(32)(images), labels).item()
    assert start - true < 0.7 * (start - mixed)
    (mixed_fast, _), (true_fast, _) = after(False, rate=1e-2), after(True, rate=1e-2)
    assert start - true_fast > 0.9 * (start - mixed_fast)  # at a large rate they look alike
    return {"steps": 30, "share": f"{max(0.0, (start - true) / (start - mixed)):.0%}", "rate": "2e-5"}


def to_numpy() -> dict[str, object]:
    """Hand 16-bit tensors to NumPy."""
    assert torch.ones(2).half().numpy().dtype.name == "float16"
    try:
        torch.ones(2).bfloat16().numpy()
    except TypeError as error:
        message = str(error)
    assert "BFloat16" in message
    kept = torch.tensor([1.0, 3.14159]).bfloat16()
    assert torch.equal(torch.from_numpy(kept.float().numpy()).bfloat16(), kept)  # fp32 holds every bf16
    return {"error": "TypeError"}
