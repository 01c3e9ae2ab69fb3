"""Proofs of the answers about finding what is wrong."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons import audit, formats, scaling
from amp_lessons.formats import FORMATS
from amp_lessons.material import data, models


def _scaler(**settings: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", **settings)


def poison() -> dict[str, object]:
    """Give a right loop and three wrong ones a batch that overflows."""

    def after(step: Any) -> tuple[bool, float]:
        weight = nn.Parameter(torch.ones(()))
        optimizer, scaler = torch.optim.SGD([weight], lr=1.0), _scaler()
        scaler.scale(weight * math.inf).backward()
        step(weight, optimizer, scaler)
        return weight.item() == 1, scaler.get_scale()

    def right(weight: Tensor, optimizer: Any, scaler: Any) -> None:
        scaler.step(optimizer)
        scaler.update()

    def direct(weight: Tensor, optimizer: Any, scaler: Any) -> None:
        scaler.unscale_(optimizer)
        optimizer.step()
        scaler.update()

    def repaired(weight: Any, optimizer: Any, scaler: Any) -> None:
        weight.grad.nan_to_num_(0, 1, -1)
        scaler.step(optimizer)
        scaler.update()

    start = _scaler().get_scale()
    assert after(right) == (True, start / 2)
    assert after(direct) == (False, start / 2)  # inf has reached the weight
    assert after(repaired) == (False, start)  # a step was made, and the scale knows nothing
    return {"start": f"{start:.0f}", "half": f"{start / 2:.0f}"}


def first_nan() -> dict[str, object]:
    """Let an audit find where the first inf of a forward pass comes from, and how it grew."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.square, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.square(self.up(x) * 300))

    model = Model()
    with torch.no_grad():
        model.up.weight.fill_(10)
        model.square.weight.fill_(10)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), _scaler()
    with audit.watch(model, every=1) as seen:
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(torch.ones(4, 8)), torch.zeros(4, dtype=torch.long))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    found = seen.first_nonfinite
    assert found is not None
    assert (found.module, found.phase) == ("square", "forward")
    before = found.before[-2]
    assert before.module == "up"
    return {"module": found.module, "before": before.module, "largest": f"{before.largest:.0f}"}


def mask() -> dict[str, object]:
    """Mask attention scores in fp16 with -1e9, in the three ways that people write it."""
    scores, hidden = torch.randn(2, 4).half(), torch.tensor([[False] * 4, [True] * 4])
    try:
        refused = ""
        scores.masked_fill(hidden, -1e9)
    except RuntimeError as error:
        refused = str(error)
    assert "without overflow" in refused
    added = scores + hidden.half() * -6e4 * 2  # what a large negative number becomes: -inf
    assert added[1].isinf().all()
    assert added.softmax(-1)[1].isnan().all()  # every position hidden
    lowest = torch.finfo(torch.float16).min
    assert scores.masked_fill(hidden, lowest).softmax(-1).isfinite().all()
    assert (torch.tensor(lowest).half() + -10).isfinite()  # the sum is rounded back to the lowest number
    assert (torch.tensor(lowest).half() + -20).isinf()
    return {"mask": "-1e9", "lowest": f"{lowest:.0f}", "added": "-20"}


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
    torch.manual_seed(0)
    layer, inputs = nn.Linear(8, 1), torch.randn(32, 8)
    optimizer, losses = torch.optim.SGD(layer.parameters(), lr=0.1), []
    before = layer.weight.detach().clone()
    with audit.watch(layer, every=1) as seen, torch.autocast("cpu", torch.bfloat16):
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.mse_loss(layer(inputs), inputs[:, :1])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert len(set(losses)) == 1
    assert not torch.equal(before, layer.weight)
    assert "one_big_autocast" in {each.code for each in seen.report.findings if not each.ok}
    return {"epochs": 3, "loss": f"{losses[0]:.4f}"}


def only_fp16() -> dict[str, object]:
    """Send three kinds of trouble through fp32, bf16 and fp16."""

    def finite(x: Tensor) -> dict[str, bool]:
        return {name: bool(x.to(dtype).isfinite().all()) for name, dtype in _DTYPES.items()}

    large = finite(torch.tensor(1e5))
    bug = finite(torch.tensor(0.0) / 0)
    assert large == {"fp32": True, "bf16": True, "fp16": False}
    assert bug == {"fp32": False, "bf16": False, "fp16": False}
    # and what is finite everywhere, but stands still in bf16
    assert torch.tensor(1.0).bfloat16() + 1e-3 == 1
    assert torch.tensor(1.0).half() + 1e-3 != 1
    return {"large": "1e5", "update": "1e-3"}


_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def flat() -> dict[str, object]:
    """Discard what `scale` returns: the gradients are divided by a scale that they never had."""

    def moved(scaled: bool) -> float:
        weight = nn.Parameter(torch.zeros(()))
        optimizer, scaler = torch.optim.SGD([weight], lr=1.0), _scaler()
        loss = weight * 1.0
        scaled_loss = scaler.scale(loss)
        (scaled_loss if scaled else loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return -weight.item()

    scale = _scaler().get_scale()
    assert moved(True) == 1
    assert moved(False) == 1 / scale

    def share_of_a_step(gradient: float) -> float:
        """Let Adam make one step on a gradient that is too small by the scale."""
        weight = nn.Parameter(torch.zeros(()))
        weight.grad = torch.tensor(gradient / scale)
        torch.optim.Adam([weight], lr=1.0).step()
        return -weight.item()

    small = 1e-4
    assert share_of_a_step(1.0) > 0.99
    assert share_of_a_step(small) < 0.2
    return {"factor": f"{scale:.0f}", "small": f"{small:g}", "left": f"{share_of_a_step(small):.0%}"}


def weights_still() -> dict[str, object]:
    """Ask an audit which share of the weights a step leaves as they were, in fp32 and in bf16."""
    images, labels = (tensor[:64] for tensor in (data.digits().train.images, data.digits().train.labels))

    def lost(dtype: torch.dtype) -> float:
        model = models.digits_classifier(32).to(dtype)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0)
        with audit.watch(model, every=1) as seen:
            for _ in range(2):
                optimizer.zero_grad()
                F.cross_entropy(model(images.to(dtype)), labels).backward()
                optimizer.step()
        shares = [layer.lost_update_fraction for layer in seen.layers.values()]
        return max(share for share in shares if share is not None)

    fp32, bf16 = lost(torch.float32), lost(torch.bfloat16)
    assert fp32 < 0.02
    assert bf16 > 0.5
    return {"rate": "1e-5", "bf16": f"{bf16:.0%}", "fp32": "2 %"}


def jumping_norm() -> dict[str, object]:
    """Log the norm of gradients before and after they are unscaled, across a growth of the scale."""
    weight = nn.Parameter(torch.ones(()))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.0), _scaler(init_scale=1024.0, growth_interval=2)
    before, after = [], []
    for _ in range(4):
        optimizer.zero_grad()
        scaler.scale(3 * weight).backward()
        assert weight.grad is not None
        before.append(weight.grad.norm().item())
        scaler.unscale_(optimizer)
        after.append(weight.grad.norm().item())
        scaler.step(optimizer)
        scaler.update()
    assert after == [3, 3, 3, 3]
    assert before == [3072, 3072, 6144, 6144]
    return {"true": f"{after[0]:g}", "first": f"{before[0]:g}", "second": f"{before[-1]:g}"}


def anomaly() -> dict[str, object]:
    """Run an overflow that the scaler would skip, under anomaly detection."""

    def outcome(detect: bool) -> str:
        weight = torch.ones((), requires_grad=True)
        with torch.autograd.set_detect_anomaly(detect):
            try:
                ((weight * 1000).exp() * 0).backward()  # inf * 0 on the way back
            except RuntimeError as error:
                return str(error).split(".")[0]
        assert weight.grad is not None
        return "finite" if weight.grad.isfinite() else "nan"

    raised = outcome(True)
    assert "returned nan values" in raised
    assert outcome(False) == "nan"

    weight = torch.ones((), requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        (weight * math.inf).backward()  # a gradient of inf passes: it looks for NaN
    assert weight.grad is not None
    assert weight.grad.isinf()
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
    """Make the scaler anew in every step, for a problem that bears a scale of 2^14."""

    def skipped(anew: bool) -> int:
        weight = nn.Parameter(torch.ones(()))
        optimizer, scaler, count = torch.optim.SGD([weight], lr=0.1), _scaler(), 0
        for _ in range(15):
            scaler = _scaler() if anew else scaler
            before = scaler.get_scale()
            optimizer.zero_grad()
            scaler.scale(weight * (1.0 if before <= 2**14 else math.inf)).backward()
            scaler.step(optimizer)
            scaler.update()
            count += scaler.get_scale() < before
        return count

    once, anew = skipped(False), skipped(True)
    assert (once, anew) == (2, 15)
    return {"bears": 2**14, "start": f"{_scaler().get_scale():.0f}", "once": once, "anew": anew, "of": 15}


def all_ignored() -> dict[str, object]:
    """Take the loss of a batch whose every label is ignored, by PyTorch and by hand, and its gradients."""
    labels = torch.full((4,), -100)
    counted = labels != -100

    def masked_mean(logits: Tensor) -> Tensor:
        each = F.cross_entropy(logits, labels.clamp(min=0), reduction="none")
        return (each * counted).sum() / counted.sum()

    def safe_mean(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels, reduction="sum") / counted.sum().clamp(min=1)

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
        by_hand, its_gradient = loss_and_gradient(masked_mean, dtype)
        assert by_hand.isnan()
        assert its_gradient.isnan().all()
    safe, gradient = loss_and_gradient(safe_mean, torch.float32)
    assert safe == 0
    assert (gradient == 0).all()
    return {"label": "-100", "loss": f"{loss.item():g}", "gradient": "zero", "safe": f"{safe.item():g}"}


def count_and_effect() -> dict[str, object]:
    """Count how many gradients vanish in fp16, and what share of their norm that was."""
    gradients = torch.cat([torch.randn(9000) * 1e-9, torch.randn(1000) * 1e-3])
    seen = scaling.census([gradients], torch.float16, 1.0)
    vanished = gradients[gradients.half() == 0]
    assert seen.underflowed == len(vanished)
    share, norm = len(vanished) / len(gradients), (vanished.norm() / gradients.norm()).item()
    assert share > 0.85
    assert norm < 1e-4
    assert formats.relative_error(gradients.half().float(), gradients) < 1e-3
    return {"share": f"{share:.0%}", "norm": f"{norm:.0e}"}


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
    root = torch.zeros(1, requires_grad=True)
    torch.where(root > 0, (root + 1e-12).sqrt(), 0.0).sum().backward()  # an eps inside
    assert root.grad is not None
    assert root.grad.isfinite()
    return {"gradient": "nan", "low": f"{low:.1g}", "high": f"{high:.0f}", "tiny": f"{tiny:g}"}


def lost_statistics() -> dict[str, object]:
    """Skip the step of a batch that overflows in front of a BatchNorm, train on, and evaluate."""
    torch.manual_seed(0)
    first, norm = nn.Linear(8, 16), nn.BatchNorm1d(16, momentum=0.1)
    model = nn.Sequential(first, norm, nn.ReLU(), nn.Linear(16, 4))
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), _scaler()
    statistics = dict(norm.named_buffers())

    def train(factor: float) -> float:
        inputs = torch.randn(16, 8)
        inputs[0] *= factor
        with torch.autocast("cpu", dtype=torch.float16):
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
    assert model.eval()(torch.randn(4, 8)).isnan().all()
    for name, each in statistics.items():  # put back
        each.copy_(kept[name])
    assert model(torch.randn(4, 8)).isfinite().all()
    norm.reset_running_stats()  # estimated anew
    model.train()
    with torch.no_grad():
        model(torch.randn(16, 8))
    assert model.eval()(torch.randn(4, 8)).isfinite().all()
    return {"kept": f"{1 - (norm.momentum or 0):.0%}", "batches": batches, "left": f"{left:g}"}
