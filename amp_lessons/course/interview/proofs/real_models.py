"""Proofs of the answers about pretrained models, fine-tuning and inference."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from amp_lessons import autocast, formats, measure
from amp_lessons.course.interview.proofs.autocast import _refusal
from amp_lessons.course.interview.proofs.loss_scaling import _scaler, _step
from amp_lessons.course.material import data, models
from amp_lessons.formats import BLOCK_FORMATS, FORMATS


def bf16_checkpoint() -> None:
    """Run a layer whose activations are normal for bf16 in fp16: with a scaler, as an island, rescaled."""
    up, down = nn.Linear(64, 256, bias=False), nn.Linear(256, 1, bias=False)
    with torch.no_grad():
        up.weight.mul_(60_000)
    inputs, before = torch.randn(32, 64), up.weight.detach().clone()
    with torch.autocast("cpu", torch.bfloat16):
        assert up(inputs).isfinite().all()
    optimizer, scaler = torch.optim.SGD([*up.parameters(), *down.parameters()], lr=0.1), _scaler()
    for _ in range(20):
        with torch.autocast("cpu", torch.float16):
            loss = down(up(inputs)).square().mean()
        _step(optimizer, loss, scaler)
    assert scaler.get_scale() < 1
    assert torch.equal(up.weight, before)  # every step was skipped
    with torch.autocast("cpu", torch.float16):
        with torch.autocast("cpu", enabled=False):
            hidden = up(inputs)
        assert hidden.isfinite().all()  # an island
        smaller, larger = up.weight / 1024, down.weight * 1024  # of powers of two
        rescaled = F.linear(F.linear(inputs, smaller).relu(), larger)
    exact = F.linear(hidden.relu(), down.weight)
    assert formats.relative_error(rescaled.float(), exact) < 0.01
    largest, of_bf16 = (torch.finfo(dtype).max for dtype in (torch.float16, torch.bfloat16))


def bf16_finetune() -> None:
    """Fine-tune bf16 weights at two learning rates, and count the weights that Adam's steps have moved."""
    size, low, high = 0.05, 2e-5, 1e-3
    weights = size * torch.randn(10_000)

    def moved(rate: float, dtype: torch.dtype = torch.bfloat16, gradient: float = 1.0) -> Tensor:
        parameter = nn.Parameter(weights.to(dtype, copy=True))
        optimizer = torch.optim.AdamW([parameter], lr=rate, weight_decay=0.0)
        parameter.grad = (gradient * torch.randn(10_000)).to(dtype)
        optimizer.step()
        return (parameter.detach().float() - weights.to(dtype).float()).abs()

    small, large = ((moved(rate) > 0).float().mean().item() for rate in (low, high))
    assert small < 0.25
    assert large > 0.85
    for gradient in (1e-3, 1e3):
        steps = moved(low, torch.float32, gradient)
        assert (steps > 0).all()  # the cure
        assert (steps / low - 1).abs().median() < 0.01  # the step is the rate


def lora() -> None:
    """Train small adapters on a frozen 16-bit layer: in fp16, and in fp32."""

    class Adapted(nn.Module):
        def __init__(self, dtype: torch.dtype) -> None:
            super().__init__()
            self.base = nn.Linear(64, 64).half().requires_grad_(False)
            self.down = nn.Linear(64, 4, bias=False).to(dtype)
            self.up = nn.Linear(4, 64, bias=False).to(dtype)

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x) + self.up(self.down(x))

    def step(dtype: torch.dtype, enabled: bool = True) -> str:
        """Return what is raised by a step, also without autocast."""
        model = Adapted(dtype)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
        scaler = _scaler(init_scale=128.0)
        try:
            with torch.autocast("cpu", torch.float16, enabled=enabled):
                output = model(torch.randn(8, 64))
            scaler.scale(output.float().square().mean()).backward()
            scaler.step(optimizer)
        except (ValueError, RuntimeError) as error:
            return str(error)
        return ""

    assert "Attempting to unscale FP16 gradients" in step(torch.float16)
    assert step(torch.float32) == ""
    assert "same dtype" in step(torch.float32, enabled=False)  # it is autocast that joins the two
    trained = [torch.empty(1000, requires_grad=True)]
    per_weight = 4 + 4 + measure.optimizer_bytes(torch.optim.AdamW, trained).state / 1000


def frozen() -> None:
    """Count what autograd saves of networks whose first layers are frozen, and of others whose last are."""
    product, norm = nn.Linear(8, 8).requires_grad_(False), nn.LayerNorm(8).requires_grad_(False)
    arriving = torch.randn(4, 8, requires_grad=True)
    through = [sum(measure.saved_activation_bytes(each, arriving).values()) for each in (product, norm)]
    assert through[0] == 0 < through[1]  # a frozen product saves nothing, a norm its input

    def saved(freeze: slice) -> int:
        layers = [layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.ReLU())]
        for layer in layers[freeze]:
            layer.requires_grad_(False)
        model, inputs = nn.Sequential(*layers, nn.Linear(256, 10)), torch.randn(512, 256)
        return sum(measure.saved_activation_bytes(model, inputs, dtype=torch.bfloat16).values())

    everything = saved(slice(0, 0))
    assert saved(slice(0, 8)) < 0.2 * everything  # all below the head
    assert saved(slice(6, 8)) == everything  # each ReLU keeps what the frozen product above it would


def inference_half() -> None:
    """Run a model in 16 bits in two formats; compare bytes of weights, and outputs with fp32."""
    model, inputs = models.transformer_block(32).eval(), torch.randn(4, 16, 32)
    lower, half = copy.deepcopy(model).bfloat16(), copy.deepcopy(model).half()
    with torch.inference_mode():
        exact = model(inputs)
        bf16 = formats.relative_error(lower(inputs.bfloat16()).float(), exact)
        fp16 = formats.relative_error(half(inputs.half()).float(), exact)
    assert fp16 < bf16 < 0.02
    size, halved = (sum(p.nbytes for p in each.parameters()) for each in (model, lower))
    ratio = halved / size


def save_half() -> None:
    """Save a model in 16 bits in two ways, and look at the model that goes on training."""
    model = nn.Linear(64, 64)
    adam = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 64)).sum().backward()
    adam.step()
    adam.zero_grad()
    state = model.half().state_dict()  # in place: this is the model that trains
    assert model.weight.dtype == state["weight"].dtype == torch.float16
    before = model.weight.clone()
    model(torch.randn(4, 64).half()).sum().backward()
    assert "Half" in _refusal(adam.step)  # its moments are still fp32
    torch.optim.SGD(model.parameters(), lr=1e-7).step()
    assert (model.weight == before).float().mean() > 0.9  # most small updates are lost
    model = nn.Linear(64, 64)
    copies = {name: value.half() for name, value in model.state_dict().items()}
    assert model.weight.dtype == torch.float32
    assert sum(each.nbytes for each in copies.values()) == sum(p.nbytes for p in model.parameters()) / 2


def outliers() -> None:
    """Give activations an outlier channel, and quantise them with one scale and with one per block."""
    plain, outlier, times = torch.randn(64, 512), 7, 100
    activations = plain.clone()
    activations[:, outlier] *= times
    ordinary = torch.arange(512) != outlier
    elsewhere = torch.arange(512) >= 16  # not in the block of the outlier

    def zeros(x: Tensor, quantise: Any, where: Tensor) -> float:
        return (quantise.quantize(x).dequantize() == 0)[:, where].float().mean().item()

    def error(back: Tensor, x: Tensor) -> float:
        return formats.relative_error(back[:, ordinary], x[:, ordinary])

    tensor = zeros(activations, formats.per_tensor(FORMATS["fp4_e2m1"]), ordinary)
    short = BLOCK_FORMATS["nvfp4"]
    assert zeros(activations, short, ordinary & ~elsewhere) > 0.5
    assert abs(zeros(activations, short, elsewhere) - zeros(plain, short, elsewhere)) < 0.01
    eight_bits = formats.per_tensor(FORMATS["fp8_e4m3"])
    error8, error8_plain = (error(eight_bits.quantize(x).dequantize(), x) for x in (activations, plain))
    assert abs(error8 / error8_plain - 1) < 0.1  # hardly minds
    step = activations.abs().max() / 127
    assert error((activations / step).round() * step, activations) > 10 * error8  # integers do


def logits() -> None:
    """Count the bytes of a language model's logits and of what its loss adds; then take it in chunks."""
    tokens, vocabulary = 8 * 2048, 128_000

    class Loss(nn.Module):
        def __init__(self, chunks: int) -> None:
            super().__init__()
            self.head, self.labels = nn.Linear(256, vocabulary, bias=False), torch.empty(tokens).long()
            self.chunks = chunks

        def of(self, hidden: Tensor, labels: Tensor) -> Tensor:
            return F.cross_entropy(self.head(hidden), labels, reduction="sum")

        def forward(self, hidden: Tensor) -> Tensor:
            parts = zip(hidden.chunk(self.chunks), self.labels.chunk(self.chunks), strict=True)
            losses = [checkpoint(self.of, *part, use_reentrant=False) for part in parts]
            return torch.stack(losses).sum() / tokens

    def footprint(make: Callable[[], nn.Module], **loss: Any) -> measure.Footprint:
        with autocast.fake_tensors():
            model, hidden = make(), torch.empty(tokens, 256)
        return measure.predict_memory(model, hidden, precision_name="bf16", optimizer=None, **loss)

    def whole(out: Tensor) -> Tensor:
        return F.cross_entropy(out, torch.zeros(tokens, dtype=torch.long))

    found = footprint(partial(nn.Linear, 256, vocabulary, bias=False), loss_fn=whole)
    bf16, fp32 = (tokens * vocabulary * dtype.itemsize / 1e9 for dtype in (torch.bfloat16, torch.float32))
    assert found.peak_bytes / 1e9 > 2 * bf16 + fp32
    assert footprint(partial(Loss, 16), loss_fn=lambda loss: loss).peak_bytes < 0.1 * found.peak_bytes
    # The head's gradient made in the forward pass, chunk by chunk, and added up in either dtype
    hidden, head = torch.randn(1024, 64).bfloat16(), (torch.randn(256, 64) / 8).bfloat16()
    labels = torch.randint(256, (1024,))
    wanted = torch.zeros(256, 64, dtype=torch.float64)
    added = {dtype: torch.zeros(256, 64, dtype=dtype) for dtype in (torch.float32, torch.bfloat16)}
    for some, right in zip(hidden.float().chunk(64), labels.chunk(64), strict=True):
        part = ((some @ head.float().T).softmax(1) - F.one_hot(right, 256)).T @ some  # logits may go now
        wanted += part
        added = {dtype: (total.float() + part).to(dtype) for dtype, total in added.items()}
    once, each_time = (formats.relative_error(each.bfloat16(), wanted) for each in added.values())
    assert 2 * once < each_time


def true_or_mixed() -> None:
    """Train a classifier under bf16 autocast and with bf16 weights, from the same start."""
    train = data.digits().train
    images, labels = train.images[:64], train.labels[:64]

    def gained(true: bool, rate: float) -> float:
        """Return by how much the loss falls in thirty steps."""
        model = models.digits_classifier(32)
        start = F.cross_entropy(model(images), labels).item()
        model = model.bfloat16() if true else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
        for _ in range(30):
            with torch.autocast("cpu", torch.bfloat16, enabled=not true):
                out = model(images.bfloat16() if true else images)
                loss = F.cross_entropy(out.float(), labels)
            _step(optimizer, loss)
        weight = next(model.parameters())
        assert (
            weight.dtype == optimizer.state[weight]["exp_avg"].dtype == (torch.float32, torch.bfloat16)[true]
        )
        return start - F.cross_entropy(model.float()(images), labels).item()

    rate = 2e-5
    assert gained(True, rate) < 0.7 * gained(False, rate)
    assert gained(True, 1e-2) > 0.9 * gained(False, 1e-2)  # at a large rate they look alike


def to_numpy() -> None:
    """Hand 16-bit tensors to NumPy."""
    assert "BFloat16" in _refusal(torch.ones(2).bfloat16().numpy)
    codes = torch.arange(2**16).to(torch.uint16)  # of every bf16
    back = torch.from_numpy(codes.view(torch.bfloat16).float().numpy()).bfloat16()
    numbers = ~codes.view(torch.bfloat16).isnan()
    assert torch.equal(back.view(torch.int16)[numbers], codes.view(torch.int16)[numbers])  # the same bits
