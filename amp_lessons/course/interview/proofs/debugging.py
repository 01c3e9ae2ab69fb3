"""Proofs of the answers about finding what is wrong."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from amp_lessons import audit
from amp_lessons.course.interview.proofs.autocast import _losses, _refusal
from amp_lessons.course.interview.proofs.loss_scaling import _scaler, _skipped, _step
from amp_lessons.course.material import data, models
from amp_lessons.formats import FORMATS


def poison() -> None:
    """Give a right loop and three wrong ones a clean batch, and one that overflows."""

    def trained(loop: str, *factors: float) -> tuple[float, float]:
        """Return the weight and the scale after a step on each factor times the weight."""
        weight = nn.Parameter(torch.ones(()))
        optimizer, scaler = torch.optim.SGD([weight], lr=0.25), _scaler()
        for factor in factors:
            optimizer.zero_grad()
            loss = weight * factor
            (loss if loop == "without" else scaler.scale(loss)).backward()
            if loop == "repaired" and weight.grad is not None:
                weight.grad.nan_to_num_(0, 1, -1)
            if loop == "direct":
                scaler.unscale_(optimizer)
            optimizer.step() if loop in ("without", "direct") else scaler.step(optimizer)
            if loop != "without":
                scaler.update()
        return weight.item(), scaler.get_scale()

    start = _scaler().get_scale()
    half = start / 2
    assert {trained(loop, 1.0)[0] for loop in ("right", "direct", "repaired", "without")} == {0.75}
    assert trained("right", math.inf, 1.0) == (0.75, half)
    assert all(math.isinf(trained(loop, math.inf)[0]) for loop in ("direct", "without"))
    weight, scale = trained("repaired", math.inf)
    assert weight != 1  # a step was made
    assert scale == start


def first_nan() -> None:
    """Find where the first inf of a forward pass comes from, by hooks, and repeat that in fp32."""
    up, square, magnitudes = nn.Linear(8, 8), nn.Linear(8, 8), list[float]()
    model = nn.Sequential(up, square, nn.Linear(8, 2))
    with torch.no_grad():
        up.weight.fill_(3000)
        square.weight.fill_(10)
    for each in model:
        each.register_forward_hook(lambda module, args, output: magnitudes.append(output.abs().max().item()))

    def finite(dtype: torch.dtype) -> list[bool]:
        magnitudes.clear()
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            model(torch.ones(4, 8))
        return list(map(math.isfinite, magnitudes))

    assert finite(torch.float16) == [True, False, False]
    assert magnitudes[0] > 1e4  # grown before
    assert all(finite(torch.float32))


def mask() -> None:
    """Mask attention scores in fp16 with -1e9, in the ways that people write it."""
    scores, hidden = torch.randn(2, 4).half(), torch.tensor([[False, False, True, True], [True] * 4])
    masked = -1e9
    assert "without overflow" in _refusal(lambda: scores.masked_fill(hidden, masked))
    added = scores + hidden.half() * masked  # a product is not refused
    assert added.softmax(-1)[0].isfinite().all()  # harmless
    assert added.softmax(-1)[1].isnan().all()  # every position hidden
    lowest = torch.finfo(torch.float16).min
    assert (scores.masked_fill(hidden, lowest).softmax(-1)[1] == 0.25).all()
    assert (torch.tensor(lowest).half() + -20).isinf()  # so it is not added
    # One kernel writes the scores out, another does not
    q, k, v = (torch.randn(1, 1, 64, 8, requires_grad=True) for _ in range(3))

    def largest_saved(backend: SDPBackend) -> int:
        saved: list[int] = []

        def keep(tensor: Tensor) -> Tensor:
            saved.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda kept: kept), sdpa_kernel(backend):
            F.scaled_dot_product_attention(q, k, v)
        return max(saved)

    assert largest_saved(SDPBackend.MATH) == 64 * 64 > largest_saved(SDPBackend.FLASH_ATTENTION)


def average_stuck() -> None:
    """Average weights that are 2, from 1 on, with a decay of 0.9999, in bf16 and fp32."""
    decay, steps = 0.9999, 20_000

    def averaged(dtype: torch.dtype) -> float:
        average, weight = torch.ones((), dtype=dtype), torch.full((), 2.0, dtype=dtype)
        for _ in range(steps):
            average.lerp_(weight, 1 - decay)
        return average.item()

    stuck, right = averaged(torch.bfloat16), averaged(torch.float32)
    step, half = 1 - decay, FORMATS["bf16"].spacing(1.0) / 2
    assert step < half


def identical_epochs() -> None:
    """Make three epochs inside one autocast context: the weights change, the losses do not."""
    assert len(set(_losses(3, one_context=True))) == 1  # only the outermost exit clears it
    assert len(set(_losses(3, one_context=False))) == 3


def only_fp16() -> None:
    """Send trouble of range and of precision through fp32, bf16 and fp16."""
    large, update = 1e5, 1e-3
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    assert [name for name, dtype in dtypes.items() if torch.tensor(large).to(dtype).isinf()] == ["fp16"]
    assert [name for name, dtype in dtypes.items() if torch.ones((), dtype=dtype) + update == 1] == ["bf16"]


def flat() -> None:
    """Discard what `scale` returns, or clip before unscaling: the update is too small by the scale."""

    def moved(scaled: bool, clipped: bool = False, norm: float = 1.0) -> float:
        weight = nn.Parameter(torch.zeros(()))
        optimizer, scaler = torch.optim.SGD([weight], lr=1.0), _scaler()
        loss = weight * norm
        scaled_loss = scaler.scale(loss)
        (scaled_loss if scaled else loss).backward()
        if clipped:
            nn.utils.clip_grad_norm_([weight], 1.0)  # before it is unscaled
        scaler.step(optimizer)
        return -weight.item()

    scale = _scaler().get_scale()
    assert (moved(True), moved(False)) == (1, 1 / scale)
    assert math.isclose(moved(True, clipped=True), 1 / scale, rel_tol=1e-5)
    # no power of two tells them apart: right clipping moves by 1 where the norm is at least max_norm
    assert math.isclose(moved(True, clipped=True, norm=3.0), 1 / scale, rel_tol=1e-5)
    assert moved(False, norm=3.0) == 3 / scale
    assert moved(True, norm=3.0) == 3  # without clipping only the discarded scale is left


def weights_still() -> None:
    """Ask an audit which share of the weights a step leaves as they were, in fp32 and in bf16."""
    images, labels = (tensor[:64] for tensor in (data.digits().train.images, data.digits().train.labels))

    def lost(dtype: torch.dtype, rate: float, factor: float = 1.0) -> float:
        """Return the share in the worst layer after two steps on a loss times ``factor``."""
        model = models.digits_classifier(32).to(dtype)
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
        with audit.watch(model, every=1) as seen:
            for _ in range(2):
                _step(optimizer, factor * F.cross_entropy(model(images.to(dtype)).float(), labels))
        return max(layer.lost_update_fraction or 0 for layer in seen.layers.values())

    bf16 = lost(torch.bfloat16, 1e-5)
    assert bf16 > 0.5 > 0.02 > lost(torch.float32, 1e-5)
    assert abs(lost(torch.bfloat16, 1e-5, factor=64.0) - bf16) < 0.01  # whatever the loss is
    assert lost(torch.bfloat16, 1e-3) < 0.5 * bf16


def jumping_norm() -> None:
    """Log the norm of gradients before and after they are unscaled, while the scale grows."""
    weight = nn.Parameter(torch.ones(()))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.0), _scaler(init_scale=1024.0, growth_interval=2)
    before, after, scale = [], [], scaler.get_scale()
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale(3 * weight).backward()
        assert weight.grad is not None
        before.append(weight.grad.norm().item())
        scaler.unscale_(optimizer)
        after.append(weight.grad.norm().item())
        scaler.step(optimizer)
        scaler.update()
    assert after == [3, 3, 3]


def anomaly() -> None:
    """Run an overflow that the scaler would skip, under anomaly detection; then one that stays inf."""
    weight = nn.Parameter(torch.zeros(()))
    scaler = _scaler()

    def backward(detect: bool) -> str:
        """Go back through a product of fp16 numbers, one of them 0; return what was raised."""
        with torch.autograd.set_detect_anomaly(detect):
            hidden = weight.half() * torch.tensor([0.0, 1.0]).half()
            return _refusal(scaler.scale(100 * hidden.float().sum()).backward)  # overflows, then inf * 0

    assert "'MulBackward0' returned nan values" in backward(True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    assert backward(False) == ""
    scaler.step(optimizer)  # where the scaler skips
    assert weight == 0
    with torch.autograd.set_detect_anomaly(True):
        (weight * math.inf).backward()  # a gradient of inf passes: it looks for NaN


def silent_cpu() -> None:
    """Ask for CUDA's scaler and autocast where there is no CUDA, or is none to be seen."""
    loss, ones = torch.ones((), requires_grad=True), torch.ones(2, 2)
    with (
        mock.patch("torch.cuda.is_available", return_value=False),
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        scaler = torch.amp.GradScaler("cuda")
        with torch.autocast("cuda", torch.float16):
            assert (ones @ ones).dtype == torch.float32
    assert len(warned) >= 2  # and no error
    assert scaler.scale(loss) is loss
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(()))], lr=0.1)
    scaler.update()  # before there was a step
    scaler.step(optimizer)  # and without an update
    assert torch.amp.GradScaler("cpu").is_enabled()
    scale = scaler.get_scale()


def recreated() -> None:
    """Make the scaler anew in every step, where batches bear a scale of 2^14."""
    bears, steps = 2.0**14, 15

    def skipped(anew: bool) -> int:
        weight = nn.Parameter(torch.zeros(()))
        optimizer, scaler, count = torch.optim.SGD([weight], lr=1.0), _scaler(), 0
        for _ in range(steps):
            scaler = _scaler() if anew else scaler
            count += _skipped(optimizer, weight, scaler, bears)
        return count

    assert skipped(anew=True) == steps
    start, once = _scaler().get_scale(), skipped(anew=False)


def all_ignored() -> None:
    """Take the loss of a batch whose every label is ignored, by PyTorch and by hand, and its gradients."""
    label, labels = -100, torch.full((4,), -100)
    counted = labels != label
    logits = torch.randn(4, 10, requires_grad=True)
    each = F.cross_entropy(logits, labels.clamp(min=0), reduction="none")
    whole, by_hand = F.cross_entropy(logits, labels), (each * counted).sum() / counted.sum()
    safe = F.cross_entropy(logits, labels, reduction="sum") / counted.sum().clamp(min=1)
    assert (torch.autograd.grad(whole, logits)[0] == 0).all()
    assert torch.autograd.grad(by_hand, logits)[0].isnan().all()
    assert safe == 0


def count_and_effect() -> None:
    """Count how many gradients vanish in fp16, and what share of their norm that was."""
    layers = [torch.randn(9000) * 1e-9, torch.randn(1000) * 1e-3]
    gradients = torch.cat(layers)
    vanished = gradients[gradients.half() == 0]
    assert len(vanished) > 0.85 * len(gradients)
    assert vanished.norm() < 1e-4 * gradients.norm()
    assert [layer.half().count_nonzero() == 0 for layer in layers] == [True, False]  # one loses everything


def where_hides() -> None:
    """Send a gradient through a ``torch.where`` around a log at zero, and through one more inside."""

    def guarded(p: Tensor) -> Tensor:
        return torch.where(p > 0, p.log(), 0.0)

    def guarded_twice(p: Tensor) -> Tensor:
        return torch.where(p > 0, torch.where(p > 0, p, 1.0).log(), 0.0)

    def gradient(of: Callable[[Tensor], Tensor], number: float, dtype: torch.dtype, scale: float) -> float:
        p = torch.tensor([number], dtype=dtype, requires_grad=True)
        return torch.autograd.grad((of(p) * scale).sum(), p)[0].item()

    tiny = 1e-8
    for dtype in (torch.float32, torch.float16):
        assert all(math.isnan(gradient(guarded, 0.0, dtype, scale)) for scale in (2.0**-10, 1.0, 2.0**10))
        assert gradient(guarded_twice, 0.0, dtype, 1.0) == 0
    assert math.isfinite(gradient(guarded, tiny, torch.float32, 1.0))
    assert math.isnan(gradient(guarded, tiny, torch.float16, 1.0))  # it is zero there


def lost_statistics() -> None:
    """Skip the step of a batch that overflows in front of a BatchNorm, train on, and evaluate."""
    first, norm = nn.Linear(8, 16), nn.BatchNorm1d(16, momentum=0.1)
    model = nn.Sequential(first, norm, nn.ReLU(), nn.Linear(16, 4))
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), _scaler()

    def train(factor: float) -> float:
        inputs = torch.randn(16, 8)
        inputs[0] *= factor
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(inputs), torch.arange(16) % 4)
        _step(optimizer, loss, scaler)
        return loss.item()

    weights = first.weight.clone()
    assert math.isnan(train(1e6))
    assert torch.equal(first.weight, weights)  # skipped
    assert all(math.isfinite(train(1.0)) for _ in range(20))
    assert model.eval()(torch.randn(4, 8)).isnan().all()
    kept = 1 - (norm.momentum or 0)


def loss_spikes() -> None:
    """Give Adam one large gradient after a calm stretch, with two betas, clipped and not."""
    beta1, slow, fast = 0.9, 0.999, 0.95

    def jump(beta2: float, last: float) -> float:
        """Return how far a weight moves at the last of many gradients, in learning rates."""
        weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        optimizer = torch.optim.Adam([weight], lr=1.0, betas=(beta1, beta2))
        for i in range(10_000):  # so long that bias correction is over
            weight.grad = torch.full_like(weight, -1e-3 if i % 2 else 1e-3)
            optimizer.step()
        before = weight.item()
        weight.grad = torch.full_like(weight, last)
        optimizer.step()
        return abs(weight.item() - before)

    slow_jump, fast_jump = (jump(beta2, 1.0) for beta2 in (slow, fast))
    for beta2, each in ((slow, slow_jump), (fast, fast_jump)):
        assert math.isclose(each, (1 - beta1) / (1 - beta2) ** 0.5, rel_tol=0.01)
    assert jump(slow, 2e-3) < 0.5  # clipped
