"""Proofs of the answers about training loops."""

from __future__ import annotations

import copy
import math
import warnings
import weakref
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from amp_lessons import audit, formats
from amp_lessons.course import training
from amp_lessons.course.material import data, models


def _scaler(**settings: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", **settings)


def _step(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Make one step as PyTorch's documentation does; a loss of inf poisons it."""
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def loop() -> dict[str, object]:
    """Train on digits in fp32 and in fp16 from the same start, and watch the loop for mistakes."""
    model, optimizer_of = models.digits_classifier(32), lambda model: torch.optim.SGD(model.parameters(), 0.1)
    images, labels = (tensor[:128] for tensor in (data.digits().train.images, data.digits().train.labels))
    plain, mixed = copy.deepcopy(model), copy.deepcopy(model)
    fp32, amp, scaler = optimizer_of(plain), optimizer_of(mixed), _scaler(init_scale=2.0**10)
    for _ in range(4):
        fp32.zero_grad()
        F.cross_entropy(plain(images), labels).backward()
        fp32.step()
    with audit.watch(mixed, every=1) as seen:
        for _ in range(4):
            amp.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = F.cross_entropy(mixed(images), labels)
            scaler.scale(loss).backward()
            scaled_norm = nn.utils.get_total_norm([p.grad for p in mixed.parameters()])  # type: ignore[misc]
            scaler.unscale_(amp)
            true_norm = nn.utils.clip_grad_norm_(mixed.parameters(), 100.0)
            assert math.isclose(scaled_norm, true_norm * scaler.get_scale(), rel_tol=1e-4)
            scaler.step(amp)
            scaler.update()
    assert seen.report.passed
    assert {p.dtype for p in mixed.parameters()} == {torch.float32}

    def moved(model: nn.Module) -> Tensor:
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    difference = formats.relative_error(moved(mixed) - moved(model), moved(plain) - moved(model))
    assert difference < 0.01
    return {}


def half_weights() -> dict[str, object]:
    """Give GradScaler fp16 weights, trainable and frozen, and make small updates of such without it."""

    def refusal(model: nn.Module, fused: bool = False, unscale: bool = False) -> str:
        """Make a step under autocast; return what GradScaler says against it."""
        trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer, scaler = torch.optim.SGD(trainable, lr=0.1, fused=fused), _scaler(init_scale=1024.0)
        with torch.autocast("cpu", torch.float16):
            scaler.scale(model(torch.ones(2, 4)).float().mean()).backward()
        try:
            if unscale:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
        except ValueError as error:
            return str(error)
        return ""

    message = refusal(nn.Linear(4, 1).half())
    assert "Attempting to unscale FP16 gradients" in message
    assert refusal(nn.Linear(4, 1)) == ""
    in_half = nn.Linear(4, 1).half()
    before = in_half.weight.clone()
    assert refusal(in_half, fused=True) == ""
    assert (in_half.weight != before).all()  # it has trained, in fp16
    assert refusal(nn.Linear(4, 1).half(), fused=True, unscale=True) == message
    frozen = nn.Linear(4, 4).half().requires_grad_(False)
    assert refusal(nn.Sequential(frozen, nn.Linear(4, 1))) == ""

    scale = _scaler().get_scale()
    scaled = torch.tensor(1e-8 * scale).half()
    assert scaled > 0
    assert scaled / scale == 0  # divided in fp16 it is lost again
    assert scaled.float() / scale > 0
    weight = torch.ones((), dtype=torch.float16)
    for _ in range(100):
        weight -= 1e-4
    assert weight == 1  # a hundred updates, and not one has arrived
    return {
        "update": "1e-4",
        "steps": 100,
    }


def scheduler() -> dict[str, object]:
    """Let the first steps be skipped while a warm-up counts them, and while it waits for them."""

    def warm_up(
        bears: float = math.inf, poisoned: int = -1, wait: bool = False
    ) -> tuple[int, list[float], bool]:
        """Train for ten steps; return how many were skipped, the others' rates, and whether it warned."""
        weight, skipped, rates = nn.Parameter(torch.ones(())), 0, []
        optimizer, scaler = torch.optim.SGD([weight], lr=0.1), _scaler()
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=8)
        optimizer.register_step_post_hook(lambda *_: rates.append(optimizer.param_groups[0]["lr"]))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            for step in range(10):
                before = scaler.get_scale()
                optimizer.zero_grad()
                finite = before <= bears and step != poisoned
                scaler.scale(weight * (1.0 if finite else math.inf)).backward()
                scaler.step(optimizer)
                scaler.update()
                skipped += scaler.get_scale() < before
                if not wait or scaler.get_scale() >= before:
                    schedule.step()
        return skipped, rates, any("before `optimizer.step()`" in str(each.message) for each in warned)

    planned = warm_up()[1]
    skipped, rates, warned = warm_up(bears=2.0**10)
    assert skipped == 6
    assert rates[0] == planned[6] > 7 * planned[0]
    assert warned
    assert not warm_up(poisoned=1)[2]  # a later skip, and no warning
    waited, right, _ = warm_up(bears=2.0**10, wait=True)
    assert waited == skipped
    assert right == planned[: len(right)]
    return {
        "skipped": skipped,
        "of": 8,
    }


def accumulation() -> dict[str, object]:
    """Accumulate four micro-batches under a scaler, rightly and with an update after each of them."""

    def moved(update_each: bool, divide: bool = True) -> float:
        weight = nn.Parameter(torch.zeros(()))
        optimizer, scaler = torch.optim.SGD([weight], lr=1.0), _scaler(init_scale=4.0, growth_interval=1)
        for _ in range(4):
            scaler.scale(weight / (4 if divide else 1)).backward()
            if update_each:
                scaler.unscale_(optimizer)
                scaler.update()  # allowed: it has seen an inf check
        scaler.step(optimizer)
        scaler.update()
        return -weight.item()

    right, undivided = moved(False), moved(False, divide=False)
    assert right == 1
    assert undivided == 4
    kept, scale = 0.0, 4.0
    for _ in range(4):  # each of them divides again what the others had left, and adds its own quarter
        kept, scale = kept / scale + 1 / 4, 2 * scale
    assert math.isclose(moved(True), kept / scale, rel_tol=1e-3)  # and so does the step
    return {
        "micro": 4,
    }


def accumulation_not_batch() -> dict[str, object]:
    """Average over micro-batches of unequal token counts; and what else is not as in the large batch."""
    losses = [torch.full((tokens,), value, requires_grad=True) for tokens, value in ((100, 1.0), (10, 3.0))]
    small, window = losses[1], torch.cat(losses)
    mean_of_means, mean_of_tokens = torch.stack([loss.mean() for loss in losses]).mean(), window.mean()
    assert mean_of_means > 1.5 * mean_of_tokens
    by_sums = sum(loss.sum() / len(window) for loss in losses)
    assert torch.isclose(torch.as_tensor(by_sums), mean_of_tokens)
    counted, due = (
        torch.autograd.grad(mean, small, retain_graph=True)[0] for mean in (mean_of_means, mean_of_tokens)
    )
    weight = (counted / due)[0].item()

    def differs(layer: nn.Module) -> bool:
        """Compare the gradient of a batch of eight with that of two halves, from one seed."""
        gradients: list[Any] = []
        inputs = torch.randn(8, 16)
        for size in (8, 4):
            torch.manual_seed(0)
            leaf = inputs.clone().requires_grad_()
            for part in leaf.split(size):
                (layer(part).square().mean() * size / 8).backward()
            gradients.append(leaf.grad)
        return not torch.allclose(gradients[0], gradients[1], rtol=1e-4)

    assert not differs(nn.Linear(16, 16))  # a plain mean over equal parts
    assert differs(nn.BatchNorm1d(16))
    assert differs(nn.Sequential(nn.Dropout(), nn.Linear(16, 16), nn.Dropout()))
    narrow = nn.Parameter(torch.ones((), dtype=torch.bfloat16))
    for gradient in (1.0, *[1e-3] * 1000):
        (narrow * gradient).backward()
    assert narrow.grad == 1  # a sum in 16 bits: the thousand are lost
    return {
        "few": 10,
        "many": 100,
        "weight": f"{weight:.1f}",
    }


def checkpoint() -> dict[str, object]:
    """Look into a scaler's state, and restart without it a run that bears a scale of 1024."""

    def skipped_from(state: dict[str, Any] | None) -> list[bool]:
        """Return of each step whether it left the weight as it was."""
        weight = nn.Parameter(torch.ones(()))
        optimizer, scaler, stood = torch.optim.SGD([weight], lr=0.1), _scaler(), []
        if state is not None:
            scaler.load_state_dict(state)
        for _ in range(10):
            before = weight.item()
            _step(scaler, optimizer, weight * (1.0 if scaler.get_scale() <= 1024 else math.inf))
            stood.append(weight.item() == before)
        return stood

    weight = nn.Parameter(torch.ones(()))
    saved, optimizer = _scaler(init_scale=1024.0), torch.optim.AdamW([weight])
    for _ in range(5):
        with torch.autocast("cpu", torch.float16):
            loss = (weight * torch.ones(4)).sum()
        _step(saved, optimizer, loss)
    assert (saved.state_dict()["scale"], saved.state_dict()["_growth_tracker"]) == (1024, 5)
    assert not any(skipped_from(saved.state_dict()))
    without = skipped_from(None)
    assert without == [True] * 6 + [False] * 4
    assert {weight.dtype, *(value.dtype for value in optimizer.state[weight].values())} == {torch.float32}
    assert "after :meth:`update`" in (torch.amp.GradScaler.state_dict.__doc__ or "")
    empty, refused = _scaler(enabled=False).state_dict(), ""
    try:
        _scaler().load_state_dict(empty)
    except RuntimeError as error:
        refused = str(error)
    assert empty == {}
    assert "saved from a disabled instance" in refused
    return {"scale": 1024, "without": sum(without), "start": f"{_scaler().get_scale():.0f}"}


def evaluation() -> dict[str, object]:
    """Evaluate a trained classifier in fp32 and under bf16 autocast."""
    digits, model = data.digits(), models.digits_classifier(64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for images, labels in data.batches(digits.train, 128) * 12:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    model.eval()
    with torch.inference_mode():
        plain = model(digits.test.images)
        with torch.autocast("cpu", torch.bfloat16):
            mixed = model(digits.test.images)
    assert mixed.dtype == torch.bfloat16
    changed = plain.argmax(1) != mixed.argmax(1)
    assert changed.sum() <= 5
    first, second = plain.topk(2).values.unbind(1)
    margin = first - second
    assert (margin[changed] <= margin.quantile(0.1)).all()  # nearly ties
    assert (plain.argmax(1) == digits.test.labels).float().mean() > 0.85
    # a total that is kept in 16 bits, though, stops
    correct = torch.zeros((), dtype=torch.bfloat16)
    for _ in range(len(digits.test)):
        correct += 1
    assert correct < len(digits.test)
    return {
        "counted": f"{correct.item():.0f}",
    }


def history() -> dict[str, object]:
    """Keep losses as tensors and as numbers, before and after backward, and see what lives on."""
    weight = torch.randn(8, 8, requires_grad=True)

    def kept_alive(keep: Any, backward: bool, retain: bool = False) -> int:
        """Return how many activations are alive after five steps of which ``keep`` keeps something."""
        activations, kept = [], []
        for _ in range(5):
            hidden = torch.randn(8, 8) @ weight
            loss = hidden.square().mean()
            if backward:
                loss.backward(retain_graph=retain)
            activations.append(weakref.ref(hidden))
            kept.append(keep(loss))
            del hidden, loss
        return sum(each() is not None for each in activations)

    without, after = (kept_alive(lambda loss: loss, backward) for backward in (False, True))
    assert (without, after) == (5, 0)
    assert kept_alive(lambda loss: loss, backward=True, retain=True) == 5
    with torch.no_grad():
        assert kept_alive(lambda loss: loss, backward=False) == 0
    loss = (torch.randn(8, 8) @ weight).square().mean()
    loss.backward()
    assert loss.grad_fn is not None
    assert loss.grad_fn.next_functions
    numbers = kept_alive(lambda loss: loss.item(), backward=False)
    assert numbers == kept_alive(lambda loss: loss.detach(), backward=False) == 0
    assert "unoccupied" in (torch.cuda.empty_cache.__doc__ or "")  # it frees what nobody holds
    return {}


def fused() -> dict[str, object]:
    """Ask at each step which gradients an optimizer sees: an ordinary one, and a fused one."""

    def seen_by(fused: bool, unscale: bool = False) -> tuple[float, int]:
        weight = nn.Parameter(torch.ones(4))
        optimizer, scaler = torch.optim.SGD([weight], lr=0.5, fused=fused), _scaler(init_scale=1024.0)
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
        assert scaler.get_scale() == 512  # which tells of the skip
        return norms[0], len(norms)

    (plain, plain_steps), (fused_norm, fused_steps) = seen_by(False), seen_by(True)
    assert plain == 1
    assert fused_norm == 1024
    assert seen_by(True, unscale=True)[0] == 1
    assert (plain_steps, fused_steps) == (
        1,
        2,
    )  # one step overflowed: only a fused optimizer is called for it

    class Reads(TorchDispatchMode):
        """Counts the numbers that are read on the host."""

        found = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.found += function is torch.ops.aten._local_scalar_dense.default
            return function(*args, **(kwargs or {}))

    def read_by_a_step(fused: bool) -> int:
        weight = nn.Parameter(torch.ones(4))
        optimizer, scaler = torch.optim.SGD([weight], lr=0.5, fused=fused), _scaler(init_scale=1024.0)
        scaler.scale(weight.sum()).backward()
        with Reads() as reads:
            scaler.step(optimizer)
        return reads.found

    assert read_by_a_step(True) == 0 < read_by_a_step(False)
    return {"scale": 1024, "plain": f"{plain:g}", "fused": f"{fused_norm:g}"}


def same_as_fp32() -> dict[str, object]:
    """Train from the same start in fp32 and fp16; and take a step without scaling it right."""
    train = data.digits().train
    batches = data.batches(data.LabelledImages(train.images[:256], train.labels[:256]), 64)
    compared = training.compare(lambda: models.digits_classifier(32), batches, F.cross_entropy, epochs=3)
    assert compared.largest_difference < 0.05

    def trained(optimizer_class: Any, scale: float) -> Tensor:
        model = models.digits_classifier(16)
        optimizer = optimizer_class(model.parameters(), lr=0.01)
        for images, labels in batches * 2:
            optimizer.zero_grad()
            (scale * F.cross_entropy(model(images), labels)).backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    def error(optimizer_class: Any) -> float:
        return formats.relative_error(trained(optimizer_class, 1024), trained(optimizer_class, 1))

    assert error(torch.optim.Adam) < 0.01  # gradients 1024 times too large, and nothing to see
    assert not error(torch.optim.SGD) < 1

    model = models.digits_classifier(16)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), _scaler()
    before, scale = copy.deepcopy(model.state_dict()), scaler.get_scale()
    with torch.autocast("cpu", torch.float16):
        poisoned = math.inf * model(batches[0][0]).sum()
    scaler.scale(poisoned).backward()
    scaler.step(optimizer)
    scaler.update()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert scaler.get_scale() == scale / 2
    tiny = torch.tensor(1e-8, dtype=torch.float16)
    assert tiny == 0  # so a task with such gradients shows a missing scale
    assert torch.tensor(1e-8 * scale, dtype=torch.float16) > 0
    return {}
