"""Proofs of the answers about finding what is wrong."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from amp_lessons import audit, formats, scaling
from amp_lessons.course.material import data, models
from amp_lessons.formats import FORMATS


def _scaler(**settings: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", **settings)


def poison() -> dict[str, object]:
    """Give a right loop and four wrong ones clean batches, and one that overflows between two of them."""

    def trained(step: Any, *factors: float) -> tuple[float, float]:
        """Return the weight and the scale after a step on each factor times the weight."""
        weight = nn.Parameter(torch.ones(()))
        optimizer, scaler = torch.optim.SGD([weight], lr=0.25), _scaler()
        for factor in factors:
            optimizer.zero_grad()
            scaler = step(weight, weight * factor, optimizer, scaler) or scaler
        return weight.item(), scaler.get_scale()

    def right(weight: Any, loss: Tensor, optimizer: Any, scaler: Any) -> None:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    def direct(weight: Any, loss: Tensor, optimizer: Any, scaler: Any) -> None:
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        optimizer.step()
        scaler.update()

    def repaired(weight: Any, loss: Tensor, optimizer: Any, scaler: Any) -> None:
        scaler.scale(loss).backward()
        weight.grad.nan_to_num_(0, 1, -1)
        scaler.step(optimizer)
        scaler.update()

    def without(weight: Any, loss: Tensor, optimizer: Any, scaler: Any) -> None:
        loss.backward()
        optimizer.step()

    def anew(weight: Any, loss: Tensor, optimizer: Any, scaler: Any) -> torch.amp.GradScaler:
        right(weight, loss, optimizer, scaler := _scaler())
        return scaler

    start = _scaler().get_scale()
    loops = (right, direct, repaired, without, anew)
    assert {trained(step, 1.0, 1.0) for step in loops} == {(0.5, start)}  # clean batches show nothing
    assert trained(right, math.inf) == (1, start / 2)
    assert trained(right, math.inf, 1.0) == (0.75, start / 2)  # and training continues
    assert all(math.isinf(trained(step, math.inf)[0]) for step in (direct, without))
    weight, scale = trained(repaired, math.inf)
    assert weight != 1  # a step was made
    assert scale == start  # which knows nothing of it
    assert trained(anew, math.inf, 1.0) == (0.75, start)  # the halving is forgotten
    return {"start": f"{start:.0f}", "half": f"{start / 2:.0f}"}


def first_nan() -> dict[str, object]:
    """Find where the first inf of a forward pass comes from, by an audit and by hooks; then of a backward."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.square, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.square(self.up(x)))

    model, magnitudes = Model(), {}
    with torch.no_grad():
        model.up.weight.fill_(3000)
        model.square.weight.fill_(10)

    def remember(module: nn.Module, args: Any, output: Tensor) -> None:
        magnitudes[module] = output.abs().max().item()

    hooks = [each.register_forward_hook(remember) for each in model.children()]
    with torch.autocast("cpu", torch.float16):
        loss = F.cross_entropy(model(torch.ones(4, 8)), torch.zeros(4, dtype=torch.long))
    assert math.isfinite(magnitudes[model.up])
    assert not any(map(math.isfinite, (magnitudes[model.square], magnitudes[model.head], loss.item())))
    for hook in hooks:
        hook.remove()

    def fails(dtype: torch.dtype) -> bool:
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            return not model(torch.ones(4, 8)).isfinite().all()

    assert all(fails(torch.float16) for _ in range(3))  # as it was, each time: no chance has a part in it
    assert not fails(torch.float32)  # and not in fp32: precision, and a sound GPU

    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), _scaler(init_scale=1.0)
    with audit.watch(model, every=1) as seen:
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(torch.ones(4, 8)), torch.zeros(4, dtype=torch.long))
        scaler.scale(loss).backward()  # by one: the loss scale has no part in it
        scaler.step(optimizer)
        scaler.update()
    found = seen.first_nonfinite
    assert found is not None
    assert (found.module, found.phase) == ("square", "forward")
    before = found.before[-2]
    assert before.module == "up"

    x, gradients = torch.zeros(1, requires_grad=True), list[Tensor]()
    root = x.sqrt()  # finite, with a slope of inf
    root.register_hook(gradients.append)
    try:
        raised = ""
        with torch.autograd.detect_anomaly():
            (root * 0).backward()
    except RuntimeError as error:
        raised = str(error)
    assert "'SqrtBackward0' returned nan" in raised
    assert gradients[0].isfinite()  # so it was the root
    local, rank = torch.randn(8, 16), 5  # gradients of eight ranks
    local[rank, 3] = math.nan
    reduced = local.mean(0).expand(8, 16)  # what every rank holds afterwards
    assert (~reduced.isfinite()).any(1).all()
    bad = [i for i, each in enumerate(local) if not each.isfinite().all()]
    assert bad == [rank]
    return {}


def mask() -> dict[str, object]:
    """Mask attention scores in fp16 with -1e9, in the ways that people write it."""
    scores, hidden = torch.randn(2, 4).half(), torch.tensor([[False, False, True, True], [True] * 4])
    try:
        refused = ""
        scores.masked_fill(hidden, -1e9)
    except RuntimeError as error:
        refused = str(error)
    assert "without overflow" in refused
    added = scores + hidden.half() * -1e9  # a product is not refused
    assert torch.equal(added.isinf(), hidden)
    assert added.softmax(-1)[0].isfinite().all()  # harmless
    assert added.softmax(-1)[1].isnan().all()  # every position hidden
    lowest = torch.finfo(torch.float16).min
    assert lowest == torch.tensor(65504).half().neg()
    assert torch.tensor(-1e9).half() < lowest
    filled = scores.masked_fill(hidden, lowest).softmax(-1)
    assert (filled[1] == 0.25).all()
    assert torch.equal(filled[0], added.softmax(-1)[0])
    assert (torch.tensor(lowest).half() + -10).isfinite()  # the sum is rounded back to the lowest number
    assert (torch.tensor(lowest).half() + -20).isinf()
    query, keys = torch.randn(1, 8).half(), torch.randn(4, 8).half()
    by_boolean = F.scaled_dot_product_attention(query, keys, torch.eye(4).half(), ~hidden[:1])
    by_hand = (query @ keys.t() / 8**0.5).masked_fill(hidden[:1], lowest).softmax(-1)
    assert (by_boolean - by_hand).abs().max() < 1e-3
    assert not by_boolean[hidden[:1]].any()
    # One kernel writes the scores out, another does not; one that is asked for alone refuses what it cannot
    q, k, v = (torch.randn(1, 1, 64, 8, requires_grad=True) for _ in range(3))

    def largest_saved(backend: SDPBackend, dropout: float = 0.0) -> int:
        saved: list[int] = []

        def keep(tensor: Tensor) -> Tensor:
            saved.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda kept: kept), sdpa_kernel(backend):
            F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
        return max(saved)

    assert largest_saved(SDPBackend.MATH) == 64 * 64 > largest_saved(SDPBackend.FLASH_ATTENTION)
    assert largest_saved(SDPBackend.MATH, 0.1) == 64 * 64  # the CPU's fast one takes masks, and no dropout
    with warnings.catch_warnings(record=True):  # where a GPU's says why
        try:
            largest_saved(SDPBackend.FLASH_ATTENTION, 0.1)
            refused = ""
        except RuntimeError as error:
            refused = str(error)
    assert "No available kernel" in refused
    return {
        "mask": "-1e9",
        "lowest": f"{lowest:.0f}",
    }


def average_stuck() -> dict[str, object]:
    """Average weights that are 2, from 1 on, with a decay of 0.9999, in bf16 and fp32."""
    decay, steps = 0.9999, 20_000

    def averaged(dtype: torch.dtype) -> float:
        average = torch.ones((), dtype=dtype)
        weight = torch.full((), 2.0, dtype=dtype)
        for _ in range(steps):
            average.lerp_(weight, 1 - decay)
        return average.item()

    stuck, right = averaged(torch.bfloat16), averaged(torch.float32)
    assert stuck == 1
    assert abs(right - (2 - decay**steps)) < 1e-2
    step = 1 - decay
    half = FORMATS["bf16"].spacing(1.0) / 2
    assert step < half
    moment = torch.linspace(1, 2, 100).bfloat16()
    assert torch.equal(0.999 * moment, moment)  # Adam's second one, with its slow decay, cannot fall
    assert not torch.equal(0.9 * moment, moment)
    return {
        "decay": decay,
        "steps": steps,
        "stuck": f"{stuck:g}",
        "right": f"{right:.2f}",
        "half": f"{half:.4f}",
        "step": f"{step:.4f}",
    }


def identical_epochs() -> dict[str, object]:
    """Make three epochs inside one autocast context: the weights change, the losses do not."""

    def train(outside: Any, inside: Any) -> tuple[nn.Module, list[float]]:
        torch.manual_seed(0)
        layer, inputs = nn.Linear(8, 1), torch.randn(32, 8)
        optimizer, losses = torch.optim.SGD(layer.parameters(), lr=0.1), []
        before = layer.weight.detach().clone()
        with audit.watch(layer, every=1) as seen, outside:
            for _ in range(3):
                with inside():
                    optimizer.zero_grad()
                    loss = F.mse_loss(layer(inputs), inputs[:, :1])
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        assert not torch.equal(before, layer.weight)
        codes = {each.code for each in seen.report.findings if not each.ok}
        assert ("one_big_autocast" in codes) == (len(set(losses)) == 1)
        return layer, losses

    layer, losses = train(torch.autocast("cpu", torch.bfloat16), contextlib.nullcontext)
    assert len(set(losses)) == 1
    assert layer.weight.dtype == torch.float32
    uncached = torch.autocast("cpu", torch.bfloat16, cache_enabled=False)  # so it is the cache
    assert len(set(train(uncached, contextlib.nullcontext)[1])) == 3
    a_step = lambda: torch.autocast("cpu", torch.bfloat16)  # noqa: E731
    assert len(set(train(contextlib.nullcontext(), a_step)[1])) == 3  # the cure
    nested = train(torch.autocast("cpu", torch.bfloat16), a_step)[1]
    assert nested == losses  # only the outermost exit clears it
    return {}


def only_fp16() -> dict[str, object]:
    """Send three kinds of trouble through fp32, bf16 and fp16."""

    def where(shows: Callable[[torch.dtype], Tensor]) -> list[str]:
        """Return the formats in which a trouble shows."""
        return [name for name, dtype in _DTYPES.items() if shows(dtype)]

    assert where(lambda dtype: torch.tensor(1e5).to(dtype).isinf()) == ["fp16"]
    assert where(lambda dtype: torch.tensor(1e-8).to(dtype) == 0) == ["fp16"]  # a gradient that vanishes
    assert where(lambda dtype: torch.ones((), dtype=dtype) + 1e-3 == 1) == ["bf16"]
    assert where(lambda dtype: (torch.zeros((), dtype=dtype) / 0).isnan()) == list(_DTYPES)
    too_fast = torch.tensor(1.0)
    for _ in range(9):
        too_fast = too_fast - 3 * too_fast  # gradient descent with too high a rate
    assert where(lambda dtype: too_fast.to(dtype).abs() > 100) == list(_DTYPES)
    return {"large": "1e5", "update": "1e-3"}


_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def flat() -> dict[str, object]:
    """Discard what `scale` returns: the gradients are divided by a scale that they never had."""

    def moved(scaled: bool, clipped: bool = False) -> float:
        weight = nn.Parameter(torch.zeros(()))
        optimizer, scaler = torch.optim.SGD([weight], lr=1.0), _scaler()
        loss = weight * 1.0
        scaled_loss = scaler.scale(loss)
        (scaled_loss if scaled else loss).backward()
        if clipped:
            nn.utils.clip_grad_norm_([weight], 1.0)  # before it is unscaled
        scaler.step(optimizer)
        scaler.update()
        return -weight.item()

    scale = _scaler().get_scale()
    assert moved(True) == 1
    assert moved(False) == 1 / scale
    assert math.isclose(moved(True, clipped=True), 1 / scale, rel_tol=1e-5)
    assert math.log2(moved(True) / moved(False)).is_integer()  # gives it away

    def share_of_a_step(gradient: float) -> float:
        """Let Adam make one step on a gradient that is too small by the scale."""
        weight = nn.Parameter(torch.zeros(()))
        weight.grad = torch.tensor(gradient / scale)
        torch.optim.Adam([weight], lr=1.0).step()
        return -weight.item()

    small = 1e-4
    assert share_of_a_step(1.0) > 0.99
    left = small / scale / (small / scale + 1e-8)  # its epsilon
    assert math.isclose(share_of_a_step(small), left, rel_tol=1e-4)
    return {
        "factor": f"{scale:.0f}",
    }


def weights_still() -> dict[str, object]:
    """Ask an audit which share of the weights a step leaves as they were, in fp32 and in bf16."""
    images, labels = (tensor[:64] for tensor in (data.digits().train.images, data.digits().train.labels))

    def train(dtype: torch.dtype, rate: float, factor: float = 1.0, steps: int = 2) -> tuple[float, float]:
        """Return the share in the worst layer, and by how much the loss, times ``factor``, has fallen."""
        model = models.digits_classifier(32).to(dtype)
        optimizer, losses = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0), []
        with audit.watch(model, every=1) as seen:
            for _ in range(steps):
                optimizer.zero_grad()
                loss = factor * F.cross_entropy(model(images.to(dtype)).float(), labels)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        shares = [layer.lost_update_fraction for layer in seen.layers.values()]
        return max(share for share in shares if share is not None), losses[0] - losses[-1]

    (fp32, right_fall), (bf16, fall) = (
        train(dtype, 1e-5, steps=8) for dtype in (torch.float32, torch.bfloat16)
    )
    assert fp32 < 0.02
    assert bf16 > 0.5
    assert 0 < fall < 0.5 * right_fall  # it falls, and more slowly
    first_steps, _ = train(torch.bfloat16, 1e-5)
    assert abs(first_steps - bf16) < 0.01
    assert abs(train(torch.bfloat16, 1e-5, factor=64.0)[0] - first_steps) < 0.01  # whatever the loss is
    assert train(torch.bfloat16, 1e-3)[0] < 0.5 * bf16

    def moves(size: float, rate: float) -> bool:
        weight = nn.Parameter(torch.tensor(size).bfloat16())
        weight.grad = torch.ones_like(weight)
        torch.optim.AdamW([weight], lr=rate, weight_decay=0.0).step()
        return bool(weight != torch.tensor(size).bfloat16())

    assert [moves(size, 1e-3) for size in (1.0, 0.1, 0.01)] == [
        False,
        True,
        True,
    ]  # a gain of one stops first
    assert [moves(size, 1e-5) for size in (1.0, 0.1, 0.001)] == [False, False, True]
    return {}


def jumping_norm() -> dict[str, object]:
    """Log the norm of gradients before and after they are unscaled, while the scale grows and backs off."""
    weight = nn.Parameter(torch.ones(()))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.0), _scaler(init_scale=1024.0, growth_interval=2)
    before, after, clipped, scales = [], [], [], []
    for factor in (3, 3, 3, math.inf, 3):
        optimizer.zero_grad()
        scaler.scale(factor * weight).backward()
        assert weight.grad is not None
        scales.append(scaler.get_scale())
        before.append(weight.grad.norm().item())
        scaler.unscale_(optimizer)
        after.append(weight.grad.norm().item())
        clipped.append(nn.utils.clip_grad_norm_([weight], 1.0).item())
        scaler.step(optimizer)
        scaler.update()
    assert after == clipped == [3, 3, 3, math.inf, 3]
    assert before == [3072, 3072, 6144, math.inf, 3072]
    assert scales == [1024, 1024, 2048, 2048, 1024]
    return {
        "scale": f"{scales[0]:g}",
        "true": f"{after[0]:g}",
        "first": f"{before[0]:g}",
        "second": f"{before[2]:g}",
    }


def anomaly() -> dict[str, object]:
    """Run an overflow that the scaler would skip, under anomaly detection."""

    def outcome(detect: bool, scale: float) -> tuple[str, float, float]:
        """Return what was raised, and weight and scale after a step; some activations are multiplied by 0."""
        weight = nn.Parameter(torch.zeros(()))
        optimizer, scaler = torch.optim.SGD([weight], lr=1.0), _scaler(init_scale=scale)
        with torch.autograd.set_detect_anomaly(detect), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            hidden = weight.half() * torch.tensor([0.0, 1.0]).half()
            try:
                raised = ""
                scaler.scale(100 * hidden.float().sum()).backward()  # overflows in fp16, then inf * 0
            except RuntimeError as error:
                raised = str(error)
                assert any("Traceback of forward call" in str(each.message) for each in warned)
                weight.grad = torch.full((), math.nan)
        scaler.step(optimizer)
        scaler.update()
        return raised, weight.item(), scaler.get_scale()

    high, low = 2.0**16, 2.0**8
    assert outcome(False, high) == ("", 0, high / 2)  # the scaler skips this step
    raised = outcome(True, high)[0]
    assert "'MulBackward0' returned nan values" in raised  # and the detection ends the run
    assert outcome(True, low) == ("", -100, low)

    weight = torch.ones((), requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        (weight * math.inf).backward()  # a gradient of inf passes: it looks for NaN
    assert weight.grad is not None
    assert weight.grad.isinf()
    assert "slow down your program" in (torch.autograd.detect_anomaly.__doc__ or "")
    return {"looks": "nan"}


def silent_cpu() -> dict[str, object]:
    """Ask for CUDA's scaler and autocast where there is no CUDA, or is none to be seen."""
    weight = torch.ones((), requires_grad=True)
    ones = torch.ones(2, 2)
    with (
        mock.patch("torch.cuda.is_available", return_value=False),
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        scaler = torch.amp.GradScaler("cuda")
        with torch.autocast("cuda", torch.float16):
            assert (ones @ ones).dtype == torch.float32
    assert len(warned) >= 2  # and no error
    assert not scaler.is_enabled()
    assert scaler.scale(weight) is weight  # a pass-through
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(()))], lr=0.1)
    scaler.update()  # before there was a step
    for _ in range(2):
        scaler.unscale_(optimizer)  # twice
    scaler.step(optimizer)  # and without an update

    on = torch.amp.GradScaler("cpu")
    assert on.is_enabled()
    refused = []
    for forbidden in (lambda: on.update(), lambda: on.step(optimizer)):  # nothing was scaled
        try:
            forbidden()
        except AssertionError as error:
            refused.append(str(error))
    assert len(refused) == 2
    with torch.autocast("cpu", torch.float16):
        assert (ones @ ones).dtype == torch.float16
    return {"scale": f"{scaler.get_scale():g}"}


def recreated() -> dict[str, object]:
    """Make the scaler anew in every step, where most batches bear a scale of 2^14 and each fifth any."""
    bears, steps = 2.0**14, 15

    def skipped(anew: bool) -> tuple[int, float, set[float]]:
        """Return how many steps were skipped, how far the weight came, and the scales after a skip."""
        weight, scales = nn.Parameter(torch.zeros(())), []
        optimizer, scaler, count = torch.optim.SGD([weight], lr=1.0), _scaler(), 0
        for step in range(steps):
            scaler = _scaler() if anew else scaler
            before = scaler.get_scale()
            scales += [before] if count else []
            optimizer.zero_grad()
            scaler.scale(weight * (1.0 if before <= bears or step % 5 == 4 else math.inf)).backward()
            scaler.step(optimizer)
            scaler.update()
            count += scaler.get_scale() < before
        return count, -weight.item(), set(scales[2:])

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no skip warns
        (once, far, settled), (anew, near, again) = skipped(False), skipped(True)
    start = _scaler().get_scale()
    assert settled == {bears}
    assert again == {start}
    assert (far, near) == (13, 3)  # as if the learning rate were small
    assert (once, anew) == (2, 12)
    return {
        "bears": f"{bears:.0f}",
        "start": f"{start:.0f}",
        "once": once,
    }


def all_ignored() -> dict[str, object]:
    """Take the loss of a batch whose every label is ignored, by PyTorch and by hand, and its gradients."""
    labels = torch.full((4,), -100)
    counted = labels != -100

    def masked_mean(logits: Tensor) -> Tensor:
        each = F.cross_entropy(logits, labels.clamp(min=0), reduction="none")
        return (each * counted).sum() / counted.sum()

    def safe_mean(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels, reduction="sum") / counted.sum().clamp(min=1)

    def linear_loss(chunks: Any, logits: Tensor) -> Tensor:
        head = torch.ones(5, 10, dtype=logits.dtype)
        return F.linear_cross_entropy(logits, head, labels, options=chunks)

    def loss_and_gradient(loss_of: Callable[[Tensor], Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        logits = torch.randn(4, 10, dtype=dtype, requires_grad=True)
        loss = loss_of(logits)
        loss.backward()
        assert logits.grad is not None
        return loss, logits.grad

    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        loss, gradient = loss_and_gradient(lambda logits: F.cross_entropy(logits, labels), dtype)
        assert loss.isnan()
        assert (gradient == 0).all()  # so no scaler skips, and no weight becomes NaN
        if hasattr(F, "linear_cross_entropy"):  # PyTorch 2.13; whole its gradients are zero, in chunks NaN
            for chunks in (None, nn.LinearCrossEntropyOptions()):
                _, each = loss_and_gradient(partial(linear_loss, chunks), dtype)
                assert (each.isnan() if chunks else each == 0).all()
        by_hand, its_gradient = loss_and_gradient(masked_mean, dtype)
        assert by_hand.isnan()
        assert its_gradient.isnan().all()
    safe, gradient = loss_and_gradient(safe_mean, torch.float32)
    assert safe == 0
    assert (gradient == 0).all()
    return {
        "label": "-100",
        "loss": f"{loss.item():g}",
        "gradient": "zero",
    }


def count_and_effect() -> dict[str, object]:
    """Count how many gradients vanish in fp16, and what share of their norm that was."""
    layers = [torch.randn(9000) * 1e-9, torch.randn(1000) * 1e-3]
    gradients = torch.cat(layers)
    seen = scaling.census([gradients], torch.float16, 1.0)
    vanished, left = gradients[gradients.half() == 0], gradients[gradients.half() != 0]
    assert seen.underflowed == len(vanished)
    assert vanished.abs().max() < left.abs().min()
    share, norm = len(vanished) / len(gradients), (vanished.norm() / gradients.norm()).item()
    assert share > 0.85
    assert norm < 1e-4
    assert formats.relative_error(gradients.half().float(), gradients) < 1e-3
    assert [layer.half().count_nonzero() == 0 for layer in layers] == [True, False]  # one loses everything
    scaled = (gradients * 2**16).half()
    assert scaled.isfinite().all()  # there is room
    assert (scaled == 0).float().mean() < 0.01
    few_bits = torch.full((10,), 1.5 * 2.0**-24).half()
    assert (few_bits == 2.0**-23).all()  # no underflow, and a third off
    return {}


def where_hides() -> dict[str, object]:
    """Send a gradient through a ``torch.where`` around a log at zero, and through one more inside."""

    def guarded(p: Tensor) -> Tensor:
        return torch.where(p > 0, p.log(), 0.0)

    def guarded_twice(p: Tensor) -> Tensor:
        return torch.where(p > 0, torch.where(p > 0, p, 1.0).log(), 0.0)

    def gradient(of: Callable[[Tensor], Tensor], number: float, dtype: torch.dtype, scale: float) -> float:
        p = torch.tensor([number], dtype=dtype, requires_grad=True)
        value = of(p)
        assert value.isfinite().all()
        (value * scale).sum().backward()
        assert p.grad is not None
        return p.grad.item()

    low, high, tiny = 2.0**-10, 2.0**10, 1e-8
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        assert all(math.isnan(gradient(guarded, 0.0, dtype, scale)) for scale in (low, 1.0, high))
        assert gradient(guarded_twice, 0.0, dtype, 1.0) == 0
        assert gradient(guarded_twice, 0.5, dtype, 1.0) == 2  # where the branch is taken nothing changes
    assert math.isfinite(gradient(guarded, tiny, torch.float32, 1.0))
    assert math.isnan(gradient(guarded, tiny, torch.float16, 1.0))  # it is zero there

    def at_zero(of: Callable[[Tensor], Tensor]) -> bool:
        """Return whether the gradient is NaN, of a vector of zeros that a ``torch.where`` guards."""
        x = torch.zeros(2, requires_grad=True)
        torch.where(x.square().sum() > 0, of(x), 0.0).sum().backward()
        assert x.grad is not None
        return bool(x.grad.isnan().all())

    assert at_zero(torch.sqrt)
    assert at_zero(lambda x: x.square().sum().sqrt())  # a norm written by hand
    assert not at_zero(torch.linalg.vector_norm)  # PyTorch's own takes a slope of zero there
    eps = 1e-6
    assert not at_zero(lambda x: (x + eps).sqrt())
    assert 0 < math.sqrt(0.5 + eps) - math.sqrt(0.5) < eps  # and changes the value a little
    return {
        "gradient": "nan",
        "tiny": f"{tiny:g}",
    }


def lost_statistics() -> dict[str, object]:
    """Skip the step of a batch that overflows in front of a BatchNorm, train on, and evaluate."""
    torch.manual_seed(0)
    first, norm = nn.Linear(8, 16), nn.BatchNorm1d(16, momentum=0.1)
    model = nn.Sequential(first, norm, nn.ReLU(), nn.Linear(16, 4))
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), _scaler()
    statistics = dict(norm.named_buffers())

    def train(factor: float, lower: bool = True) -> float:
        inputs = torch.randn(16, 8)
        inputs[0] *= factor
        with torch.autocast("cpu", torch.float16, enabled=lower):
            loss = F.cross_entropy(model(inputs), torch.arange(16) % 4)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    kept, weights = {name: each.clone() for name, each in statistics.items()}, first.weight.clone()
    assert math.isnan(train(1e6))
    assert torch.equal(first.weight, weights)  # skipped
    batches = 100
    assert all(math.isfinite(train(1.0)) for _ in range(batches))
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    left = statistics["running_var"].mean().item()
    assert math.isnan(left)
    assert not statistics["running_mean"].isfinite().all()
    assert model.eval()(torch.randn(4, 8)).isnan().all()
    for name, each in statistics.items():  # put back
        each.copy_(kept[name])
    assert model(torch.randn(4, 8)).isfinite().all()
    model.train()
    assert math.isfinite(train(1e6, lower=False))  # in fp32 the same batch does no harm
    assert norm.running_var is not None
    assert norm.running_var.isfinite().all()
    norm.reset_running_stats()  # estimated anew
    model.train()
    with torch.no_grad():
        model(torch.randn(16, 8))
    assert model.eval()(torch.randn(4, 8)).isfinite().all()
    return {
        "kept": f"{1 - (norm.momentum or 0):.0%}",
    }


def loss_spikes() -> dict[str, object]:
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

    jumps = {beta2: jump(beta2, 1.0) for beta2 in (slow, fast)}
    for beta2, each in jumps.items():
        most = (1 - beta1) / (1 - beta2) ** 0.5
        assert f"{each:.1f}" == f"{most:.1f}"
    assert jumps[slow] > 1 > jumps[fast]  # larger than the learning rate, and not
    clipped = jump(slow, 2e-3)
    assert clipped < 0.5
    assert torch.isfinite(torch.tensor(1e30).bfloat16())  # a jump is no overflow in bf16
    scaler = torch.amp.GradScaler("cpu", enabled=False)  # as bf16 runs have it
    loss = torch.tensor(1e30)
    assert scaler.scale(loss) is loss  # nothing is skipped
    scores = torch.tensor([100.0, 100.2])
    assert scores.bfloat16()[0] == scores.bfloat16()[1]  # grown scores lose their differences
    assert scores[0] != scores[1]
    return {
        "slow": slow,
        "fast": fast,
        "slow_jump": f"{jumps[slow]:.1f}",
        "fast_jump": f"{jumps[fast]:.1f}",
    }
