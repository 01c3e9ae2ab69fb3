"""Proofs of the answers about loss scaling."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn


def _scaler(**settings: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", **settings)


def _step(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Make one step as PyTorch's documentation does; a loss of inf poisons it."""
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def why() -> dict[str, object]:
    """Show that small gradients vanish in fp16, and that a scale brings them back."""
    gradient = torch.tensor(1e-8)
    floor = 2.0**-25  # half of fp16's smallest subnormal: a tie, which goes to the even neighbour, 0
    assert torch.tensor(floor).half() == 0
    assert torch.tensor(floor * 1.01).half() > 0
    assert gradient.half() == 0

    scale = _scaler().get_scale()
    back = (gradient * scale).half().float() / scale
    assert abs(back / gradient - 1) < 2**-10

    def loss_left(enabled: bool, steps: int) -> float:
        """Fit a line whose gradients lie below the floor; return the share of the loss that is left."""
        inputs = 1e-4 * torch.randn(64, 4)
        weight = nn.Parameter(torch.zeros(4, 1))
        optimizer, scaler = torch.optim.SGD([weight], lr=5e6), _scaler(enabled=enabled)
        losses = []
        for _ in range(steps):
            with torch.autocast("cpu", torch.float16):
                output = inputs @ weight
            losses.append((output.float() - inputs.sum(1, keepdim=True)).square().mean())
            _step(scaler, optimizer, losses[-1])
        return (losses[-1] / losses[0]).item()

    unscaled, scaled = loss_left(False, steps=20), loss_left(True, steps=20)
    assert unscaled == 1
    assert scaled < 0.1

    factors = torch.tensor([1.0, 1e-8])  # one gradient is large, the other one lies below the floor
    weight = nn.Parameter(torch.ones(2))
    _step(_scaler(enabled=False), torch.optim.SGD([weight], lr=0.1), (weight.half() * factors.half()).sum())
    assert (weight != 1).tolist() == [True, False]  # the loss falls, and this layer stands still
    return {
        "floor": f"{floor:.1e}",
        "gradient": "1e-8",
        "scale": f"{scale:.0f}",
        "back": f"{back:.3g}",
        "unscaled": f"{unscaled:.0%}",
        "scaled": f"{scaled:.0%}",
        "steps": 20,
    }


def bf16() -> dict[str, object]:
    """Show that bf16 begins where fp32 does, and that a power of two changes none of its bits."""
    assert torch.finfo(torch.bfloat16).tiny == torch.finfo(torch.float32).tiny
    ratio = torch.finfo(torch.float16).tiny / torch.finfo(torch.bfloat16).tiny
    gradients = torch.randn(10_000) * 1e-10
    scaled = (gradients * 2**16).bfloat16().float() / 2**16
    assert torch.equal(scaled, gradients.bfloat16().float())
    assert gradients.bfloat16().count_nonzero() == 10_000
    assert gradients.half().count_nonzero() == 0
    tiny = torch.finfo(torch.bfloat16).tiny
    return {"tiny": f"{tiny:.1e}", "orders": f"{math.log10(ratio):.0f}", "gradients": "1e-10"}


def walk_through() -> dict[str, object]:
    """Drive a scaler through an overflow and through a growth."""
    weight = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = _scaler()
    start, growth = scaler.get_scale(), scaler.get_growth_interval()

    _step(scaler, optimizer, weight * math.inf)
    assert weight == 1  # the step was skipped
    backed_off = scaler.get_scale()
    assert backed_off == start / 2

    small = _scaler(growth_interval=3)
    for _ in range(2):
        _step(small, optimizer, weight * 1)
    assert small.get_scale() == start  # nothing grows before its time
    _step(small, optimizer, weight * 1)
    assert small.get_scale() == 2 * start

    for loss in (1, 1, math.inf, 1, 1):  # the skip halves the scale, and two clean steps are none of three
        _step(small, optimizer, weight * loss)
    assert small.get_scale() == start
    return {"start": f"{start:.0f}", "backed_off": f"{backed_off:.0f}", "interval": growth}


def powers_of_two() -> dict[str, object]:
    """Round a gradient trip through a scale of 1024 and one of 1000."""
    gradients = torch.randn(10_000)
    exact = (gradients * 1024).half().float() / 1024
    uneven = (gradients * 1000).half().float() / 1000
    assert torch.equal(exact, gradients.half().float())  # the cast rounds; the scale adds nothing
    changed = (uneven != gradients.half().float()).float().mean()
    assert changed > 0.5
    grown = 1024 * 1.5
    through = (gradients * grown).half().float() / grown
    grown_changed = (through != gradients.half().float()).float().mean()
    assert grown_changed > 0.5
    assert torch.allclose(through, gradients, rtol=2**-10)  # as near to the true ones as any cast
    return {
        "even": 1024,
        "uneven": 1000,
        "changed": f"{changed:.0%}",
        "grown": f"{grown:g}",
        "grown_changed": f"{grown_changed:.0%}",
    }


def skip_rate() -> dict[str, object]:
    """Let a scaler look for the largest scale that a problem bears, and count how often it is too high."""
    weight = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler = _scaler(growth_interval=50)
    bears, skipped = 2.0**14, 0
    for step in range(550):
        before = scaler.get_scale()
        _step(scaler, optimizer, weight * (1.0 if before <= bears else math.inf))
        skipped += step >= 50 and scaler.get_scale() < before
    assert skipped == round(500 / 51)  # each clean interval ends in a growth, and that in a skip
    default = _scaler().get_growth_interval()
    return {"interval": default, "rate": f"{1 / (default + 1):.2%}", "seen": skipped, "steps": 500}


def clip_order() -> dict[str, object]:
    """Clip a gradient of norm 10 to 1, before and after it was unscaled."""

    def update(unscale_first: bool) -> float:
        weight = nn.Parameter(torch.zeros(()))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        scaler = _scaler(init_scale=1024.0)
        scaler.scale(10 * weight).backward()
        if unscale_first:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_([weight], max_norm=1.0)
        scaler.step(optimizer)
        return -weight.item()

    right, wrong = update(True), update(False)
    assert math.isclose(right, 1, rel_tol=1e-4)
    assert math.isclose(wrong, 1 / 1024, rel_tol=1e-4)
    return {"scale": 1024, "right": f"{right:.3f}", "wrong": f"{wrong:.5f}"}


def forgotten_unscale() -> dict[str, object]:
    """Step on gradients that are 1024 times too large, with Adam, with SGD, and with SGD behind a clip."""

    def moved(optimizer_class: type[Any], scale: float, clip: bool) -> Tensor:
        weight = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
        optimizer = optimizer_class([weight], lr=0.01)
        for _ in range(20):
            optimizer.zero_grad()
            (scale * 5 * weight.square().sum()).backward()
            if clip:
                nn.utils.clip_grad_norm_([weight], max_norm=1.0)
            optimizer.step()
        return weight.detach()

    little = 1e-5
    adam = moved(torch.optim.Adam, 1024, False) - moved(torch.optim.Adam, 1, False)
    assert adam.abs().max() < little  # nothing to see
    clipped = moved(torch.optim.SGD, 1024, True) - moved(torch.optim.SGD, 1, True)
    assert clipped.abs().max() < little  # the clip makes the norm 1 again, whatever the scale
    plain = moved(torch.optim.SGD, 1024, False)
    assert not (plain.abs() < 1e30).any()  # this one blows up
    return {"factor": 1024, "little": f"{little:.0e}", "steps": 20}


def below_one() -> dict[str, object]:
    """Let a scale fall below one: without end if the forward pass overflows, not for large gradients."""
    weight = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = _scaler(init_scale=4.0)
    for _ in range(6):
        _step(scaler, optimizer, weight * math.inf)
    assert scaler.get_scale() == 4.0 / 2**6
    assert weight == 1  # not one step was made

    fallen = scaler.get_scale()

    activation = torch.tensor(70_000.0)  # forward, before any loss is scaled
    assert activation.half().isinf()

    large, settling = 1e6, _scaler(init_scale=4.0)  # true gradients above what fp16 holds
    optimizer = torch.optim.SGD([weight], lr=1e-9)
    for _ in range(20):
        optimizer.zero_grad()
        _step(settling, optimizer, weight.half().float() * large)
    settled = settling.get_scale()
    assert settled == 4.0 / 2**6  # the first at which they fit, and it has stayed there for 14 steps
    assert weight < 1
    return {
        "start": 4,
        "skips": 6,
        "scale": fallen,
        "large": "a million",
        "settled": settled,
        "largest": f"{torch.finfo(torch.float16).max:.0f}",
    }


def fp16_loss() -> dict[str, object]:
    """Scale a loss that is fp16 itself: its gradient is the scale, in fp16."""

    def gradient(scale: float) -> Tensor:
        weight = torch.ones((), dtype=torch.float16, requires_grad=True)
        _scaler(init_scale=scale).scale(weight * 1e-3).backward()
        assert weight.grad is not None
        return weight.grad

    start = _scaler().get_scale()
    largest = torch.finfo(torch.float16).max
    assert start > largest
    assert gradient(start).isinf()
    assert gradient(start / 2).isfinite()
    return {"start": f"{start:.0f}", "largest": f"{largest:.0f}", "works": f"{start / 2:.0f}"}


def not_lr() -> dict[str, object]:
    """Make the same step with four loss scales, and with another learning rate."""

    def update(scale: float, lr: float) -> float:
        weight = nn.Parameter(torch.ones(()))
        scaler = _scaler(init_scale=scale)
        _step(scaler, torch.optim.SGD([weight], lr=lr), 3 * weight)
        return 1 - weight.item()

    def adams_step(scale: float, lr: float) -> float:
        """Return how far Adam moves one weight by a gradient that is left scaled."""
        weight = nn.Parameter(torch.ones(()))
        (scale * 3 * weight).backward()
        torch.optim.Adam([weight], lr=lr).step()
        return 1 - weight.item()

    assert math.isclose(adams_step(1024, 0.125), adams_step(1, 0.125), rel_tol=1e-5)
    assert math.isclose(adams_step(1, 0.25), 2 * adams_step(1, 0.125), rel_tol=1e-5)
    updates = {update(scale, 0.125) for scale in (1.0, 2.0**4, 2.0**10, 2.0**16)}
    assert len(updates) == 1
    (same,) = updates
    assert update(1.0, 0.25) == 2 * same
    return {"scales": 4, "least": 1, "most": f"{2**16}", "update": same}


def detect_skip() -> dict[str, object]:
    """Skip a step, and look at everything that could tell."""
    weight = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = _scaler()
    fired: list[str] = []
    optimizer.register_step_post_hook(lambda *_: fired.append("stepped"))
    optimizer.zero_grad()
    scaler.scale(weight * math.inf).backward()
    before = scaler.get_scale()
    returned = scaler.step(optimizer)
    scaler.update()
    assert returned is None  # as it is for SGD's good steps
    assert not fired
    assert scaler.get_scale() < before
    _step(scaler, optimizer, weight * 1)
    assert fired == ["stepped"]
    return {"returned": returned, "before": f"{before:.0f}", "after": f"{before / 2:.0f}"}


def two_optimizers() -> dict[str, object]:
    """Update between two optimizers whose gradients carry the same scale, and after both."""

    def second_update(in_between: bool) -> float:
        first, second = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(()))
        one, two = torch.optim.SGD([first], lr=1.0), torch.optim.SGD([second], lr=1.0)
        scaler = _scaler(init_scale=8.0, growth_interval=1)
        scaler.scale(first + second).backward()
        scaler.step(one)
        if in_between:
            scaler.update()
        scaler.step(two)
        return 1 - second.item()

    right, wrong = second_update(False), second_update(True)
    assert right == 1
    assert wrong == 0.5  # divided by a scale that had grown since

    bad, good = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(()))
    optimizers = [torch.optim.SGD([parameter], lr=1.0) for parameter in (bad, good)]
    scaler = _scaler()
    scaler.scale(bad * math.inf + good).backward()
    for optimizer in optimizers:
        scaler.step(optimizer)
    assert (bad.item(), good.item()) == (1.0, 0.0)  # each optimizer is skipped for itself

    shared = nn.Parameter(torch.ones(()))
    scaler = _scaler(init_scale=8.0)
    for loss in (shared, 2 * shared):  # two losses, whose gradients are 1 and 2
        scaler.scale(loss).backward()
    owners = [torch.optim.SGD([shared], lr=1.0) for _ in range(2)]
    scaler.unscale_(owners[0])
    assert shared.grad is not None
    whole = shared.grad.item()
    assert whole == 1 + 2
    scaler.unscale_(owners[1])
    assert shared.grad.item() == whole / 8
    return {"wrong": wrong, "shared_scale": 8, "whole": f"{whole:g}", "twice": f"{shared.grad:g}"}


def hidden_overflow() -> dict[str, object]:
    """Replace inf among scaled gradients before the scaler looks: it takes the step and never backs off."""

    def after(mend: Any) -> tuple[float, float]:
        weight = nn.Parameter(torch.ones(()))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        scaler = _scaler()
        scaler.scale(weight * math.inf).backward()
        mend(weight)
        scaler.step(optimizer)
        scaler.update()
        return weight.item(), scaler.get_scale()

    start = _scaler().get_scale()
    by_value = after(lambda weight: nn.utils.clip_grad_value_([weight], 1.0))
    by_zero = after(lambda weight: weight.grad.nan_to_num_(0, 0, 0))
    by_norm = after(lambda weight: nn.utils.clip_grad_norm_([weight], 1.0))
    assert by_value[1] == by_zero[1] == start  # it has seen no inf
    assert by_value[0] != 1  # a step on a made-up gradient
    assert by_norm == (1, start / 2)  # inf / inf is NaN, which is seen
    return {"start": f"{start:.0f}", "after": f"{start / 2:.0f}"}


def bf16_with_scaler() -> dict[str, object]:
    """Train under bf16 autocast with a scaler and without: every weight is the same to the last bit."""

    def trained(enabled: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        scaler = _scaler(enabled=enabled)
        inputs, targets = torch.randn(64, 16), torch.randint(4, (64,))
        for _ in range(20):
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(inputs), targets)
            _step(scaler, optimizer, loss)
        assert scaler.get_scale() == (2**16 if enabled else 1)
        return [parameter.detach() for parameter in model.parameters()]

    pairs = list(zip(trained(True), trained(False), strict=True))
    assert all(torch.equal(with_scaler, without) for with_scaler, without in pairs)
    return {"steps": 20, "tensors": len(pairs)}


def gradient_penalty() -> dict[str, object]:
    """Take a gradient penalty from scaled gradients, and from unscaled ones."""

    def penalty(unscale: bool, scale: float = 1024.0) -> float:
        inputs = torch.tensor([3.0, 4.0], requires_grad=True)
        scaler = _scaler(init_scale=scale)
        (scaled,) = torch.autograd.grad(scaler.scale(inputs.sum()), inputs, create_graph=True)
        gradients = scaled / scaler.get_scale() if unscale else scaled
        return gradients.norm().item()

    right, wrong = penalty(True), penalty(False)
    assert math.isclose(right, math.sqrt(2), rel_tol=1e-6)
    assert wrong == 1024 * right

    scales = [2.0**power for power in (0, 5, 10, 15)]
    assert {penalty(True, scale) for scale in scales} == {right}
    assert len({penalty(False, scale) for scale in scales}) == len(scales)

    def stepped(scaler: torch.amp.GradScaler, unscale: bool) -> Tensor:
        """Make one step on a loss with a penalty on the gradient by the input."""
        weight, inputs = nn.Parameter(torch.tensor([0.5, 2.0])), torch.tensor([3.0, 4.0], requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        loss = (weight * inputs).sum().square()
        (gradients,) = torch.autograd.grad(scaler.scale(loss), inputs, create_graph=True)
        gradients = gradients / scaler.get_scale() if unscale else gradients
        scaler.scale(loss + 0.01 * gradients.norm()).backward()
        scaler.step(optimizer)
        return weight.detach()

    in_fp32 = stepped(_scaler(enabled=False), True)
    assert torch.allclose(stepped(_scaler(init_scale=1024.0), True), in_fp32)
    assert not torch.allclose(stepped(_scaler(init_scale=1024.0), False), in_fp32)
    return {
        "right": f"{right:.2f}",
        "wrong": f"{wrong:.0f}",
        "scale": 1024,
        "terms": 2,
        "scales": len(scales),
    }
