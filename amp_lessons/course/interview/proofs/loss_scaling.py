"""Proofs of the answers about loss scaling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def _scaler(**settings: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", **settings)


def _step(optimizer: Any, loss: Tensor, scaler: torch.amp.GradScaler | None = None) -> None:
    """Make one step, with a scaler as PyTorch's documentation does; a loss of inf poisons it."""
    scaler = scaler or _scaler(enabled=False)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def _skipped(optimizer: Any, weight: Tensor, scaler: torch.amp.GradScaler, bears: float) -> bool:
    """Make a step that overflows at a scale above ``bears``; return whether it was skipped."""
    before = scaler.get_scale()
    _step(optimizer, weight * (1.0 if before <= bears else math.inf), scaler)
    return scaler.get_scale() < before


def why() -> None:
    """Show that small gradients vanish in fp16, and that a scale brings them back."""
    gradient, scale = torch.tensor(1e-8), _scaler().get_scale()
    floor = 2.0**-25  # half of fp16's smallest subnormal: a tie, which goes to the even neighbour, 0
    assert torch.tensor(floor).half() == gradient.half() == 0 < torch.tensor(floor * 1.01).half()

    def loss_left(enabled: bool) -> float:
        """Fit a line whose gradients lie below the floor; return the share of the loss that is left."""
        inputs = 1e-4 * torch.randn(64, 4)
        weight = nn.Parameter(torch.zeros(4, 1))
        optimizer, scaler = torch.optim.SGD([weight], lr=5e6), _scaler(enabled=enabled)
        losses = []
        for _ in range(20):
            with torch.autocast("cpu", torch.float16):
                output = inputs @ weight
            losses.append((output.float() - inputs.sum(1, keepdim=True)).square().mean())
            _step(optimizer, losses[-1], scaler)
        return (losses[-1] / losses[0]).item()

    assert loss_left(enabled=False) == 1
    assert loss_left(enabled=True) < 0.1
    back = (gradient * scale).half().float() / scale


def bf16() -> None:
    """Show that bf16 begins where fp32 does, and that a power of two changes none of its bits."""
    fp16, bf16 = torch.finfo(torch.float16), torch.finfo(torch.bfloat16)
    assert bf16.tiny == torch.finfo(torch.float32).tiny
    size = 1e-10
    gradients = size * torch.randn(10_000)
    assert torch.equal((gradients * 2**16).bfloat16().float() / 2**16, gradients.bfloat16().float())
    assert gradients.bfloat16().count_nonzero() == 10_000
    assert gradients.half().count_nonzero() == 0
    orders = math.log10(fp16.tiny / bf16.tiny)


def walk_through() -> None:
    """Drive a scaler through a step, an overflow, a NaN, and a growth."""
    weight = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = _scaler()
    start = scaler.get_scale()
    scaler.scale(3 * weight).backward()
    assert weight.grad == 3 * start
    scaler.step(optimizer)
    assert weight.grad == 3  # divided in place
    scaler.update()

    before = weight.item()
    _step(optimizer, weight * math.inf, scaler)
    backed_off = scaler.get_scale()
    _step(optimizer, weight * math.nan, scaler)
    assert scaler.get_scale() == backed_off / 2 == start / 4
    assert weight == before  # both steps were skipped

    small = _scaler(growth_interval=3)
    for _ in range(3):
        assert small.get_scale() == start  # nothing grows before its time
        _step(optimizer, weight * 1, small)
    assert small.get_scale() == 2 * start
    interval = scaler.get_growth_interval()


def powers_of_two() -> None:
    """Send gradients through a scale that is a power of two, and through others."""
    gradients = torch.randn(10_000)

    def changed(scale: float) -> float:
        """Return the share that comes back different from a plain cast."""
        through = (gradients * scale).half().float() / scale
        return (through != gradients.half().float()).double().mean().item()

    even, uneven, grown = 1024, 1000, 1024 * 1.5
    assert changed(even) == 0
    assert min(changed(uneven), changed(grown)) > 0.5


def skip_rate() -> None:
    """Let a scaler look for the largest scale that a problem bears, and count how often it is too high."""
    weight = nn.Parameter(torch.ones(()))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.0), _scaler(growth_interval=50)
    bears, skips = 2.0**14, []
    for step in range(550):
        if _skipped(optimizer, weight, scaler, bears) and step >= 50:
            skips.append(step)
    assert {later - earlier for earlier, later in itertools.pairwise(skips)} == {51}  # one of 50 + 1
    default = _scaler().get_growth_interval()
    rate = 1 / (default + 1)


def clip_order() -> None:
    """Clip a gradient of norm 10 to 1, before and after it was unscaled."""
    scale = 1024

    def moved(unscale_first: bool) -> float:
        weight, scaler = nn.Parameter(torch.zeros(())), _scaler(init_scale=float(scale))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        scaler.scale(10 * weight).backward()
        if unscale_first:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_([weight], max_norm=1.0)
        scaler.step(optimizer)
        return -weight.item()

    wrong = moved(unscale_first=False)
    assert math.isclose(moved(unscale_first=True), 1, rel_tol=1e-4)
    assert math.isclose(wrong, 1 / scale, rel_tol=1e-4)


def forgotten_unscale() -> None:
    """Step on gradients that are 1024 times too large, with Adam, with SGD, and with SGD behind a clip."""

    def moved(optimizer_class: Any, scale: float, clip: bool = False) -> Tensor:
        weight = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
        optimizer = optimizer_class([weight], lr=0.01)
        for _ in range(20):
            optimizer.zero_grad()
            (scale * 5 * (weight - 10).square().sum()).backward()
            if clip:
                nn.utils.clip_grad_norm_([weight], max_norm=1.0)
            optimizer.step()
        return weight.detach()

    def differ(optimizer_class: Any, clip: bool = False) -> Tensor:
        return (moved(optimizer_class, 1024, clip) - moved(optimizer_class, 1, clip)).abs().max()

    assert differ(torch.optim.Adam) < 1e-5  # nothing to see
    assert differ(torch.optim.SGD, clip=True) < 1e-5  # the clip makes the norm 1 again, whatever the scale
    assert not (moved(torch.optim.SGD, 1024).abs() < 1e30).any()  # this one blows up


def below_one() -> None:
    """Let a scale fall below one: without end if the model makes an inf or NaN, not for large gradients."""
    weight, start, skips = nn.Parameter(torch.ones(())), 4, 6

    def fallen_to(loss_of: Callable[[], Tensor], steps: int = 20) -> float:
        """Return the scale after a number of steps."""
        scaler, optimizer = _scaler(init_scale=float(start)), torch.optim.SGD([weight], lr=1e-9)
        for _ in range(steps):
            _step(optimizer, loss_of(), scaler)
        return scaler.get_scale()

    assert fallen_to(lambda: (weight * 70_000).half().float().square()) == start / 2**20  # forward overflows
    assert fallen_to(lambda: (0 * weight).sqrt()) == start / 2**20  # backward makes a NaN of its own
    fallen = fallen_to(lambda: weight * math.inf, skips)
    assert weight == 1  # not one step was made
    settled = fallen_to(lambda: weight.half().float() * 1e6)  # true gradients above what fp16 holds
    assert settled == start / 2**6  # the first at which they fit, and it has stayed there for 14 steps
    assert weight < 1


def fp16_loss() -> None:
    """Scale a loss that is fp16 itself: its gradient is the scale, in fp16."""
    start, largest = _scaler().get_scale(), torch.finfo(torch.float16).max
    assert start > largest

    def made_at(loss_of: Callable[[Tensor], Tensor]) -> list[float]:
        """Return the scales at which steps were made, of a scaler that grows after each of them."""
        weight, scaler, scales = nn.Parameter(torch.ones(())), _scaler(growth_interval=1), []
        optimizer = torch.optim.SGD([weight], lr=1e-6)
        optimizer.register_step_post_hook(lambda *_: scales.append(scaler.get_scale()))
        for _ in range(10):
            _step(optimizer, loss_of(weight.half() * torch.full((100,), 1e-3).half()), scaler)
        return scales

    (works,) = set(made_at(lambda output: output.mean()))  # for a loss of a thousandth
    assert works == start / 2
    assert max(made_at(lambda output: output.float().mean())) > start


def not_lr() -> None:
    """Make the same step with three loss scales, and with another learning rate."""

    def update(scale: float, lr: float) -> float:
        weight = nn.Parameter(torch.ones(()))
        _step(torch.optim.SGD([weight], lr=lr), 3 * weight, _scaler(init_scale=scale))
        return 1 - weight.item()

    least, middle, most = 1.0, 2.0**10, 2.0**16
    assert {2 * update(scale, 0.125) for scale in (least, middle, most)} == {update(1.0, 0.25)}


def detect_skip() -> None:
    """Skip a step, and look at everything that could tell."""

    def skip_and_step(fused: bool) -> tuple[list[Any], list[int], list[float]]:
        """Skip a step and make one; return what ``step`` returned, how often a hook had fired, the scales."""
        weight, scaler = nn.Parameter(torch.ones(())), _scaler()
        optimizer = torch.optim.SGD([weight], lr=0.1, fused=fused)
        calls: list[None] = []
        returned, fired, scales = [], [], [scaler.get_scale()]
        optimizer.register_step_post_hook(lambda *_: calls.append(None))
        for factor in (2.0, 0.5):
            optimizer.zero_grad()
            scaler.scale(weight.half().float() * factor).backward()  # twice the scale is too much for fp16
            returned.append(scaler.step(optimizer))
            scaler.update()
            fired.append(len(calls))
            scales.append(scaler.get_scale())
        return returned, fired, scales

    returned, fired, (before, after, last) = skip_and_step(fused=False)
    assert returned == [None, None]
    assert fired == [0, 1]
    assert before > after == last
    assert skip_and_step(fused=True)[1] == [1, 2]


def two_optimizers() -> None:
    """Update between two optimizers whose gradients carry the same scale; share a weight between them."""

    def updates(in_between: bool) -> tuple[float, float]:
        """Return how far two weights move, with a scale that grows at each update."""
        weights = [nn.Parameter(torch.ones(())) for _ in range(2)]
        scaler = _scaler(init_scale=8.0, growth_interval=1)
        scaler.scale(weights[0] + weights[1]).backward()
        for optimizer in [torch.optim.SGD([weight], lr=1.0) for weight in weights]:
            scaler.step(optimizer)
            if in_between:
                scaler.update()
        return 1 - weights[0].item(), 1 - weights[1].item()

    assert updates(in_between=False) == (1, 1)
    right, wrong = updates(in_between=True)  # divided by a scale that had grown since
    assert right == 1

    bad, good = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(()))
    scaler = _scaler()
    scaler.scale(bad * math.inf + good).backward()
    for optimizer in [torch.optim.SGD([weight], lr=1.0) for weight in (bad, good)]:
        scaler.step(optimizer)
    assert (bad.item(), good.item()) == (1.0, 0.0)  # each optimizer is skipped for itself

    shared, scaler = nn.Parameter(torch.ones(())), _scaler(init_scale=8.0)
    scaler.scale(shared * 3).backward()
    for owner in [torch.optim.SGD([shared], lr=1.0) for _ in range(2)]:
        scaler.unscale_(owner)
    assert shared.grad == 3 / 8  # each owner divides


def hidden_overflow() -> None:
    """Replace inf among scaled gradients before the scaler looks: it takes the step and never backs off."""

    def after(mend: Any) -> tuple[float, float]:
        """Return a weight whose gradients are not inf, beside one whose are, and the scale."""
        bad, good = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(()))
        scaler = _scaler()
        scaler.scale(bad * math.inf + good).backward()
        mend([bad, good])
        scaler.step(torch.optim.SGD([bad, good], lr=1.0))
        scaler.update()
        return good.item(), scaler.get_scale()

    start = _scaler().get_scale()
    zeroed = after(lambda weights: [each.grad.nan_to_num_(0, 0, 0) for each in weights])
    assert zeroed == (0, start)  # it has seen no inf, and steps on the rest of the batch
    assert after(lambda weights: nn.utils.clip_grad_value_(weights, 1.0)) == (1 - 1 / start, start)
    assert after(lambda weights: nn.utils.clip_grad_norm_(weights, 1.0)) == (1, start / 2)  # inf / inf


def bf16_with_scaler() -> None:
    """Train under bf16 autocast with a scaler and without: every weight is the same to the last bit."""

    def trained(enabled: bool) -> Tensor:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
        optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=0.01), _scaler(enabled=enabled)
        inputs, targets = torch.randn(64, 16), torch.randint(4, (64,))
        for _ in range(20):
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(inputs), targets)
            _step(optimizer, loss, scaler)
        return nn.utils.parameters_to_vector(model.parameters())

    assert torch.equal(trained(True), trained(False))


def gradient_penalty() -> None:
    """Take a gradient penalty from scaled gradients, and from unscaled ones; make a step with it."""

    def norm(scale: float, at: float = 3.0) -> float:
        inputs = torch.tensor([at, 4.0], requires_grad=True)
        scaler = _scaler(init_scale=scale)
        (scaled,) = torch.autograd.grad(scaler.scale(inputs.sum()), inputs, create_graph=True)
        return (scaled / scaler.get_scale()).norm().item()

    right, terms, scales = norm(1.0), 2, 4
    assert {norm(32.0**power, at) for power in range(scales) for at in (3.0, -7.0)} == {right}

    def stepped(scaler: torch.amp.GradScaler, unscale: bool, mixed: bool = True) -> Tensor:
        """Make one step on a loss with a penalty on the gradient by the input."""
        weight = nn.Parameter(torch.tensor([[0.5, 2.0]]))
        inputs = torch.tensor([[3.0], [4.0]], requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        with torch.autocast("cpu", torch.float16, enabled=mixed):
            loss = (weight @ inputs).float().square().sum()
        (gradients,) = torch.autograd.grad(scaler.scale(loss), inputs, create_graph=True)
        gradients = gradients / scaler.get_scale() if unscale else gradients
        with torch.autocast("cpu", torch.float16, enabled=mixed):
            loss = loss + 0.01 * gradients.norm()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        return weight.detach()

    in_fp32 = stepped(_scaler(enabled=False), True, mixed=False)
    assert torch.allclose(stepped(_scaler(init_scale=64.0), True), in_fp32, rtol=1e-3)
    assert not torch.allclose(stepped(_scaler(init_scale=64.0), False), in_fp32, rtol=0.01)
