"""Proofs of the answers about pretrained models, fine-tuning and inference."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from amp_lessons import autocast, formats, fp8, measure
from amp_lessons.course.material import data, models
from amp_lessons.formats import BLOCK_FORMATS, FORMATS
from amp_lessons.formats.dtypes import dtype_name


def _scaler(**settings: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", **settings)


def bf16_checkpoint() -> dict[str, object]:
    """Run a feed-forward layer whose activations are normal for bf16 in fp16, and train it with a scaler."""
    up, down = nn.Linear(64, 256, bias=False), nn.Linear(256, 1, bias=False)
    with torch.no_grad():
        up.weight.mul_(60_000)
    inputs = torch.randn(32, 64)
    largest = up(inputs).abs().max().item()
    assert largest > torch.finfo(torch.float16).max
    with torch.autocast("cpu", torch.bfloat16):
        assert up(inputs).isfinite().all()

    optimizer, scaler = torch.optim.SGD([*up.parameters(), *down.parameters()], lr=0.1), _scaler()
    before = up.weight.detach().clone()
    for _ in range(20):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = down(up(inputs)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert not loss.isfinite()  # whatever it is multiplied by
    assert scaler.get_scale() < 1
    assert torch.equal(up.weight, before)  # every step was skipped

    with torch.autocast("cpu", torch.float16):
        with torch.autocast("cpu", enabled=False):
            hidden = up(inputs)
        assert hidden.isfinite().all()  # an island
        first = nn.Linear(64, 64, bias=False)(inputs)  # what stays in fp16, as a UNet before its VAE
        assert first.dtype == torch.float16
        assert (first.isfinite().all(), up(first).isfinite().all()) == (True, False)
        with torch.autocast("cpu", enabled=False):
            assert up(first.float()).isfinite().all()
        smaller, larger = up.weight / 1024, down.weight * 1024  # of powers of two
        rescaled = F.linear(F.linear(inputs, smaller).relu(), larger)
        assert rescaled.isfinite().all()
        assert formats.relative_error(rescaled.float(), down(hidden.relu() / 1024).float() * 1024) < 0.01
        clamped = down(hidden.relu().clamp(max=6e4))
        assert formats.relative_error(clamped.float(), down(hidden.relu() / 1024).float() * 1024) > 0.1
    codes = torch.arange(2**16).to(torch.uint16).view(torch.float16)
    codes = codes[codes.isfinite()]
    there = codes.bfloat16()
    assert there.isfinite().all()
    assert torch.equal(there == 0, codes == 0)  # neither end of the range is lost
    assert (there.float() != codes.float()).any()  # and precision is
    normal, least = torch.finfo(torch.float16).tiny, 2.0**-25  # half of the smallest subnormal number
    tiny = torch.tensor([least, 1.01 * least, 0.9 * normal]).bfloat16()
    exported = tiny.half()
    assert (exported == 0).tolist() == [True, False, False]
    assert exported[1] != tiny[1].float()  # a subnormal has fewer bits
    return {
        "largest": f"{torch.finfo(torch.float16).max:.0f}",
        "bf16": f"{FORMATS['bf16'].max:.0e}",
    }


def bf16_finetune() -> dict[str, object]:
    """Fine-tune bf16 weights at two learning rates, and count the weights that Adam's steps have moved."""
    weights = torch.randn(10_000) * 0.05

    def moved(rate: float, dtype: torch.dtype = torch.bfloat16, gradient: float = 1.0) -> Tensor:
        parameter = nn.Parameter(weights.to(dtype, copy=True))
        optimizer = torch.optim.AdamW([parameter], lr=rate, weight_decay=0.0)
        parameter.grad = (gradient * torch.randn(10_000)).to(dtype)
        optimizer.step()
        return (parameter.detach().float() - weights.to(dtype).float()).abs()

    few, many = moved(2e-5), moved(1e-3)
    small, large = ((each > 0).float().mean().item() for each in (few, many))
    assert small < 0.25
    assert large > 0.85
    spacing = torch.exp2(weights.abs().log2().floor() - 7)  # seven bits of mantissa
    assert (few > 0)[spacing < 2e-5].all()
    assert not few[spacing > 1e-4].any()  # at a power of two the lower neighbour is at half of that
    assert weights.abs()[few > 0].max() < 0.01
    for gradient in (1e-3, 1.0, 1e3):
        steps = moved(2e-5, torch.float32, gradient)
        assert (steps > 0).all()  # the cure
        assert (steps / 2e-5 - 1).abs().median() < 0.01  # the step is the rate

    def stepped(decay: float, fused: bool) -> Tensor:
        """Return the weights after a step at the large rate."""
        parameter = nn.Parameter(weights.bfloat16())
        parameter.grad = torch.ones_like(parameter)
        torch.optim.AdamW([parameter], lr=1e-3, weight_decay=decay, fused=fused).step()
        return parameter.detach()

    assert torch.equal(stepped(0.1, fused=False), stepped(0.0, fused=False))
    assert not torch.equal(stepped(0.1, fused=True), stepped(0.0, fused=True))

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
    counted = {"few": f"{small:.0%}", "most": f"{large:.0%}"}
    return {"small": "2e-5", "large": "1e-3", "size": "0.05", **counted}


def lora() -> dict[str, object]:
    """Train small adapters on a frozen 16-bit layer: in fp16, and in fp32."""

    class Adapted(nn.Module):
        def __init__(self, dtype: torch.dtype, width: int = 64, rank: int = 4) -> None:
            super().__init__()
            self.base = nn.Linear(width, width).half().requires_grad_(False)
            self.down = nn.Linear(width, rank, bias=False).to(dtype)
            self.up = nn.Linear(rank, width, bias=False).to(dtype)

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x) + self.up(self.down(x))

        def share_trained(self) -> float:
            trained = sum(p.numel() for p in self.parameters() if p.requires_grad)
            return trained / sum(p.numel() for p in self.parameters())

    def step(dtype: torch.dtype, enabled: bool = True) -> str:
        """Return what is raised by a step, also without autocast."""
        model = Adapted(dtype)
        trained, base = [p for p in model.parameters() if p.requires_grad], model.base.weight.clone()
        optimizer, scaler = torch.optim.AdamW(trained), _scaler(init_scale=128.0)
        try:
            with torch.autocast("cpu", torch.float16, enabled=enabled):
                output = model(torch.randn(8, 64))
            scaler.scale(output.float().square().mean()).backward()
            scaler.step(optimizer)
        except (ValueError, RuntimeError) as error:
            return str(error)
        assert torch.equal(model.base.weight, base)  # never updated
        return ""

    assert "Attempting to unscale FP16 gradients" in step(torch.float16)
    assert step(torch.float32) == ""
    assert "same dtype" in step(torch.float32, enabled=False)  # it is autocast that joins the two
    model = Adapted(torch.float32)
    with torch.device("meta"):
        assert Adapted(torch.float32, 4096, 16).share_trained() < 0.2 * model.share_trained()  # a real layer
    trained = [p for p in model.parameters() if p.requires_grad]
    state = measure.optimizer_bytes(torch.optim.AdamW, trained)
    per_weight = state.state / sum(p.numel() for p in trained) + 4 + 4
    assert per_weight == 16
    return {
        "base": model.base.weight.element_size(),
        "adapters": f"{per_weight:g}",
    }


def frozen() -> dict[str, object]:
    """Count what autograd saves of networks whose first layers are frozen, and of others whose last are."""

    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(256, 256).requires_grad_(False)
            self.adapter = nn.Sequential(nn.Linear(256, 4, bias=False), nn.Linear(4, 256, bias=False))

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x) + self.adapter(x)

    class Block(nn.Sequential):
        """The feed-forward half of a block."""

        def __init__(self, nonlinear: type[nn.Module], width: int = 64) -> None:
            up, down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            super().__init__(nn.LayerNorm(width), up, nonlinear(), down)

        def forward(self, x: Tensor) -> Tensor:
            return x + super().forward(x)

    def left(nonlinear: type[nn.Module], blocks: int = 8) -> float:
        """Return the share of the saved bytes that is left if the first block alone is trained."""

        def all_saved(freeze: slice) -> int:
            model = nn.Sequential(*(Block(nonlinear) for _ in range(blocks))).bfloat16()
            for block in list(model)[freeze]:
                block.requires_grad_(False)
            return sum(measure.saved_activation_bytes(model, torch.randn(64, 64).bfloat16()).values())

        return all_saved(slice(1, None)) / all_saved(slice(0, 0))

    product, norm = nn.Linear(8, 8).requires_grad_(False), nn.LayerNorm(8).requires_grad_(False)
    arriving = torch.randn(4, 8, requires_grad=True)
    through = [sum(measure.saved_activation_bytes(each, arriving).values()) for each in (product, norm)]
    assert through[0] == 0 < through[1]  # a frozen product saves nothing
    gelu, relu = left(nn.GELU), left(nn.ReLU)
    assert 0.5 < gelu < 0.6 < 0.8 < relu < 0.9

    def saved(freeze: slice, adapted: bool = False) -> int:
        linear = Adapted if adapted else partial(nn.Linear, 256, 256)
        layers = [layer for _ in range(4) for layer in (linear(), nn.ReLU())]
        for layer in layers[freeze]:
            layer.requires_grad_(False)
        model, inputs = nn.Sequential(*layers, nn.Linear(256, 10)), torch.randn(512, 256)
        model(inputs).sum().backward()
        trained = {p for p in model.parameters() if p.requires_grad}
        optimizer = torch.optim.AdamW(model.parameters())
        optimizer.step()
        assert {p for p in model.parameters() if p.grad is not None} == trained == set(optimizer.state)
        return sum(measure.saved_activation_bytes(model, inputs, dtype=torch.bfloat16).values())

    everything, backbone, front = saved(slice(0, 0)), saved(slice(0, 8)), saved(slice(6, 8))
    assert backbone < 0.2 * everything
    assert front == everything  # each ReLU keeps what the frozen product above it would
    assert saved(slice(0, 0), adapted=True) > 0.9 * everything  # LoRA on every layer
    return {}


def inference_half() -> dict[str, object]:
    """Run a model in 16 bits in three ways; compare bytes of weights, casts, and outputs with fp32."""
    model, inputs = models.transformer_block(32).eval(), torch.randn(4, 16, 32)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    lower, half = copy.deepcopy(model).bfloat16(), copy.deepcopy(model).half()
    with torch.inference_mode():
        exact = model(inputs)
        with torch.autocast("cpu", torch.bfloat16):
            mixed = formats.relative_error(model(inputs).float(), exact)
        bf16 = formats.relative_error(lower(inputs.bfloat16()).float(), exact)
        fp16 = formats.relative_error(half(inputs.half()).float(), exact)
    assert fp16 < bf16 < 0.02
    assert mixed < 0.02
    halved = sum(p.numel() * p.element_size() for p in lower.parameters())
    assert halved == size / 2
    assert {p.dtype for p in model.parameters()} == {torch.float32}  # what autocast keeps

    def casts(model: nn.Module, inputs: Tensor) -> int:
        """Return how many tensors change their dtype in a call, by autograd's graph of it."""
        found, waiting = set(), [model(inputs).grad_fn]
        while waiting:
            node = waiting.pop()
            if node is not None and node not in found:
                found.add(node)
                waiting += [each for each, _ in node.next_functions]
        return sum("ToCopy" in node.name() for node in found)

    assert casts(lower, inputs.bfloat16()) == 0
    with torch.autocast("cpu", torch.bfloat16):
        weights = sum(isinstance(each, nn.Linear) for each in model.modules())
        assert casts(model, inputs) >= weights
    return {
        "ratio": f"{halved / size:.0%}",
    }


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
    return {
        "dtype": "fp16",
    }


def outliers() -> dict[str, object]:
    """Give activations an outlier channel, and quantise them with one scale and with one per block."""
    plain, outlier = torch.randn(64, 512), 7
    activations = plain.clone()
    activations[:, outlier] *= 100
    ordinary = torch.arange(512) != outlier
    own = (torch.arange(512) < 16) & ordinary  # the block of the outlier

    def zeros(x: Tensor, quantise: Any, where: Tensor) -> float:
        return (quantise.quantize(x).dequantize() == 0)[:, where].float().mean().item()

    def error(back: Tensor, x: Tensor) -> float:
        return formats.relative_error(back[:, ordinary], x[:, ordinary])

    one, short = formats.per_tensor(FORMATS["fp4_e2m1"]), BLOCK_FORMATS["nvfp4"]
    tensor, blocks = zeros(activations, one, ordinary), zeros(activations, short, own)
    elsewhere, without = (zeros(x, short, ordinary & ~own) for x in (activations, plain))
    assert tensor > 0.9
    assert blocks > 0.5
    assert abs(elsewhere - without) < 0.01

    eight_bits = formats.per_tensor(FORMATS["fp8_e4m3"])
    error8, error8_plain = (error(eight_bits.quantize(x).dequantize(), x) for x in (activations, plain))
    assert abs(error8 / error8_plain - 1) < 0.1  # hardly minds
    step = activations.abs().max() / 127
    assert error((activations / step).round() * step, activations) > 10 * error8  # integers do
    # A head that has nothing to say: its softmax adds up to one, unless there is a sink or a gate
    scores, values = torch.full((4, 16), -20.0), 1 + torch.rand(16, 8)
    assert (scores.softmax(-1) @ values >= 1).all()
    sink = torch.cat([torch.zeros(4, 1), scores], 1).softmax(-1)[:, 1:]
    for quiet in (sink @ values, torch.sigmoid(torch.tensor(-20.0)) * (scores.softmax(-1) @ values)):
        assert quiet.max() < 1e-6
    half = torch.equal(activations.half()[:, ordinary], plain.half()[:, ordinary])
    assert half  # no shared scale at all
    rotation = fp8.hadamard(512)
    rotated = one.quantize(activations @ rotation).dequantize() @ rotation.t()
    assert error(rotated, activations) < 0.7 * error(one.quantize(activations).dequantize(), activations)
    return {
        "times": 100,
        "tensor": f"{tensor:.0%}",
    }


def logits() -> dict[str, object]:
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
    in_bf16, in_fp32 = tokens * vocabulary * 2, tokens * vocabulary * 4
    assert in_bf16 > 10 * found.parameter_bytes  # it is not the head's weights
    assert found.peak_bytes > 2 * in_bf16 + in_fp32
    assert footprint(partial(Loss, 16), loss_fn=lambda loss: loss).peak_bytes < 0.1 * found.peak_bytes
    with autocast.cuda_rules(), torch.autocast("cpu", dtype=torch.bfloat16):
        few = nn.Linear(4, 8)(torch.ones(1, 4))
        loss = F.cross_entropy(few, torch.zeros(1, dtype=torch.long))
    read_by_the_loss: Any = loss.grad_fn
    log_softmax = read_by_the_loss.next_functions[0][0].next_functions[0][0]._saved_result  # behind the cast
    assert few.dtype == log_softmax.dtype == torch.bfloat16
    assert loss.dtype == torch.float32
    # The head's gradient made in the forward pass, chunk by chunk, and added up in either dtype
    chunks = 64
    hidden, head = torch.randn(1024, 64).bfloat16(), (torch.randn(256, 64) / 8).bfloat16()
    labels = torch.randint(256, (1024,))
    wanted = head.double().requires_grad_()
    F.cross_entropy(hidden.double() @ wanted.T, labels, reduction="sum").backward()
    added = {dtype: torch.zeros(256, 64, dtype=dtype) for dtype in (torch.float32, torch.bfloat16)}
    for some, right in zip(hidden.chunk(chunks), labels.chunk(chunks), strict=True):
        of_logits = (some.float() @ head.float().T).softmax(1) - F.one_hot(right, 256)  # then they may go
        for dtype, total in added.items():
            added[dtype] = (total.float() + of_logits.bfloat16().float().T @ some.float()).to(dtype)
    assert wanted.grad is not None
    once, each_time = (
        ((added[dtype].bfloat16() - wanted.grad).norm() / wanted.grad.norm()).item()
        for dtype in (torch.float32, torch.bfloat16)
    )
    assert 2 * once < each_time
    return {
        "tokens": tokens,
        "vocabulary": vocabulary,
        "bf16": f"{in_bf16 / 1e9:.1f}",
        "fp32": f"{in_fp32 / 1e9:.1f}",
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
    return {
        "rate": "2e-5",
    }


def to_numpy() -> dict[str, object]:
    """Hand 16-bit tensors to NumPy."""
    assert torch.ones(2).half().numpy().dtype.name == "float16"
    try:
        torch.ones(2).bfloat16().numpy()
    except TypeError as error:
        message = str(error)
    assert "BFloat16" in message
    codes = torch.arange(2**16).to(torch.uint16)  # of every bf16
    back = torch.from_numpy(codes.view(torch.bfloat16).float().numpy()).bfloat16()
    numbers = ~codes.view(torch.bfloat16).isnan()
    assert torch.equal(back.view(torch.int16)[numbers], codes.view(torch.int16)[numbers])  # the same bits
    assert torch.tensor(1e5).bfloat16().half().isinf()
    return {"error": "TypeError"}
