"""Proofs of the answers about training loops."""

from __future__ import annotations

import math
import weakref
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from amp_lessons import audit
from amp_lessons.course import training
from amp_lessons.course.interview.proofs.autocast import _refusal
from amp_lessons.course.interview.proofs.loss_scaling import _scaler, _skipped, _step, forgotten_unscale
from amp_lessons.course.material import data, models


def loop() -> None:
    """Train on digits in fp16, clip in the right place, and watch the loop for mistakes."""
    model, scaler = models.digits_classifier(32), _scaler(init_scale=2.0**10)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train = data.digits().train
    with audit.watch(model, every=1) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = F.cross_entropy(model(train.images[:128]), train.labels[:128])
            scaler.scale(loss).backward()
            scaled_norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])  # type: ignore[misc]
            scaler.unscale_(optimizer)
            true_norm = nn.utils.clip_grad_norm_(model.parameters(), 100.0)
            assert math.isclose(scaled_norm, true_norm * scaler.get_scale(), rel_tol=1e-4)
            scaler.step(optimizer)
            scaler.update()
    assert seen.report.passed
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def half_weights() -> None:
    """Give GradScaler fp16 weights, and make small updates of such without it."""
    layer, scaler = nn.Linear(4, 1).half(), _scaler(init_scale=1024.0)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler.scale(layer(torch.ones(2, 4).half()).float().mean()).backward()
    assert "Attempting to unscale FP16 gradients" in _refusal(lambda: scaler.step(optimizer))
    scaled = torch.tensor(1e-8 * 2**16).half()
    assert scaled / 2**16 == 0 < scaled  # divided in fp16 it is lost again
    weight, update, steps = torch.ones((), dtype=torch.float16), 1e-4, 100
    for _ in range(steps):
        weight -= update
    assert weight == 1  # not one has arrived


def scheduler() -> None:
    """Let the first steps be skipped while a warm-up counts them, and while it waits for them."""
    total_iters = 8

    def warm_up(bears: float = math.inf, wait: bool = False) -> tuple[int, list[float]]:
        """Train for ten steps; return how many were skipped, and the others' rates."""
        weight, skipped, rates = nn.Parameter(torch.ones(())), 0, []
        optimizer, scaler = torch.optim.SGD([weight], lr=0.1), _scaler()
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=total_iters)
        optimizer.register_step_post_hook(lambda *_: rates.append(optimizer.param_groups[0]["lr"]))
        for _ in range(10):
            skips = _skipped(optimizer, weight, scaler, bears)
            skipped += skips
            if not (wait and skips):
                schedule.step()
        return skipped, rates

    planned, bears = warm_up()[1], 2**10
    skipped, rates = warm_up(bears)
    assert rates[0] == planned[skipped] > 7 * planned[0]
    waited, right = warm_up(bears, wait=True)
    assert waited == skipped
    assert right == planned[: len(right)]
    start = _scaler().get_scale()


def accumulation() -> None:
    """Accumulate four micro-batches under a scaler, rightly and with an update after each of them."""
    micro = 4

    def moved(update_each: bool) -> float:
        weight = nn.Parameter(torch.zeros(()))
        optimizer, scaler = torch.optim.SGD([weight], lr=1.0), _scaler(init_scale=4.0, growth_interval=1)
        for _ in range(micro):
            scaler.scale(weight / micro).backward()
            if update_each:
                scaler.unscale_(optimizer)
                scaler.update()  # allowed: it has seen an inf check
        scaler.step(optimizer)
        scaler.update()
        return -weight.item()

    assert moved(False) == 1 > 10 * moved(True)


def accumulation_not_batch() -> None:
    """Average over micro-batches of unequal token counts, and over the tokens of both."""
    many, few = 100, 10
    losses = [torch.full((tokens,), value, requires_grad=True) for tokens, value in ((many, 1.0), (few, 3.0))]
    window = torch.cat(losses)
    mean_of_means = torch.stack([loss.mean() for loss in losses]).mean()
    assert torch.isclose(torch.stack([loss.sum() / len(window) for loss in losses]).sum(), window.mean())
    counted, due = (
        torch.autograd.grad(mean, losses[1], retain_graph=True)[0] for mean in (mean_of_means, window.mean())
    )
    inputs, norm = torch.randn(8, 16), nn.BatchNorm1d(16)
    assert not torch.allclose(norm(inputs), torch.cat([norm(part) for part in inputs.split(4)]), rtol=1e-2)
    weight = (counted / due)[0]


def checkpoint() -> None:
    """Restart a run that bears a scale of 1024 with its scaler's state and without it."""
    scale = 1024

    def skipped_from(state: dict[str, Any] | None) -> int:
        """Return how many of ten steps were skipped."""
        weight, skipped = nn.Parameter(torch.ones(())), 0
        optimizer, scaler = torch.optim.SGD([weight], lr=0.1), _scaler()
        if state is not None:
            scaler.load_state_dict(state)
        for _ in range(10):
            skipped += _skipped(optimizer, weight, scaler, scale)
        return skipped

    saved = _scaler(init_scale=float(scale))
    assert {"scale", "_growth_tracker"} <= set(saved.state_dict())
    assert skipped_from(saved.state_dict()) == 0
    without = skipped_from(None)
    start = _scaler().get_scale()


def evaluation() -> None:
    """Evaluate a trained classifier in fp32 and under bf16 autocast."""
    digits, model = data.digits(), models.digits_classifier(64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for images, labels in data.batches(digits.train, 128) * 12:
        _step(optimizer, F.cross_entropy(model(images), labels))
    model.eval()
    with torch.inference_mode():
        plain = model(digits.test.images)
        with torch.autocast("cpu", torch.bfloat16):
            mixed = model(digits.test.images)
    assert mixed.dtype == torch.bfloat16
    changed = plain.argmax(1) != mixed.argmax(1)
    first, second = plain.topk(2).values.unbind(1)
    margin = first - second
    assert (margin[changed] <= margin.quantile(0.1)).all()  # nearly ties
    # a total that is kept in 16 bits, though, stops
    correct = torch.zeros((), dtype=torch.bfloat16)
    for _ in range(len(digits.test)):
        correct += 1
    assert correct < len(digits.test)


def history() -> None:
    """Keep losses as tensors and as numbers, before and after backward, and see what lives on."""
    weight = torch.randn(8, 8, requires_grad=True)

    def kept_alive(keep: Any, backward: bool) -> int:
        """Return how many activations are alive after five steps of which ``keep`` keeps something."""
        activations, kept = [], []
        for _ in range(5):
            hidden = torch.randn(8, 8) @ weight
            loss = hidden.square().mean()
            if backward:
                loss.backward()
            activations.append(weakref.ref(hidden))
            kept.append(keep(loss))
            del hidden, loss
        return sum(each() is not None for each in activations)

    assert kept_alive(lambda loss: loss, backward=False) == 5
    assert kept_alive(lambda loss: loss, backward=True) == 0
    assert kept_alive(lambda loss: loss.detach(), backward=False) == 0


def fused() -> None:
    """Ask at each step which gradients an optimizer sees: an ordinary one, and a fused one."""
    scale = 1024

    def seen_by(fused: bool, unscale: bool = False) -> list[float]:
        """Return the norm that a hook sees before each step; of two, the second has an inf."""
        weight = nn.Parameter(torch.ones(4))
        optimizer, scaler = torch.optim.SGD([weight], lr=0.5, fused=fused), _scaler(init_scale=scale)
        norms: list[float] = []
        optimizer.register_step_pre_hook(lambda *_: norms.append(weight.grad.norm().item()))  # type: ignore[union-attr]
        for factor in (0.5, math.inf):
            optimizer.zero_grad()
            scaler.scale((weight * factor).sum()).backward()
            if unscale:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        assert weight.tolist() == [0.75] * 4  # one right step, and of the other nothing is written
        return norms

    plain, in_kernel = seen_by(False), seen_by(True)
    assert (len(plain), len(in_kernel)) == (1, 2)  # only a fused optimizer is called for the inf
    assert seen_by(True, unscale=True)[0] == plain[0]


def same_as_fp32() -> None:
    """Train from the same start in fp32 and fp16; and take steps without scaling them right."""
    train = data.digits().train
    batches = data.batches(data.LabelledImages(train.images[:256], train.labels[:256]), 64)
    compared = training.compare(lambda: models.digits_classifier(32), batches, F.cross_entropy, epochs=3)
    assert compared.largest_difference < 0.05
    forgotten_unscale()  # gradients 1024 times too large: with Adam there is nothing to see, SGD blows up
