"""Proofs of the answers about loss scaling."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable
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
    }


def bf16() -> dict[str, object]:
    """Show that bf16 begins where fp32 does, and that a power of two changes none of its bits."""
    fp16, bf16, fp32 = (torch.finfo(dtype) for dtype in (torch.float16, torch.bfloat16, torch.float32))
    assert bf16.tiny == fp32.tiny
    assert bf16.eps > fp16.eps  # range, not precision

    def through(scale: float, gradients: Tensor) -> Tensor:
        return (gradients * scale).bfloat16().float() / scale

    gradients = torch.randn(10_000) * 1e-10
    assert torch.equal(through(2**16, gradients), gradients.bfloat16().float())
    edges = torch.tensor([1e38, 1.1 * 2.0**-133])  # one that overflows when scaled, and a subnormal one
    assert (through(2**16, edges) != edges.bfloat16().float()).all()
    assert gradients.bfloat16().count_nonzero() == 10_000
    assert gradients.half().count_nonzero() == 0
    loss = torch.tensor(3.0)
    assert _scaler(enabled=False).scale(loss) is loss
    orders = math.log10(fp16.tiny / bf16.tiny)
    return {"tiny": f"{bf16.tiny:.1e}", "orders": f"{orders:.0f}", "gradients": "1e-10"}


def walk_through() -> dict[str, object]:
    """Drive a scaler through a step, an overflow, a NaN, and a growth."""
    weight = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = _scaler()
    start, growth = scaler.get_scale(), scaler.get_growth_interval()
    loss = 3 * weight
    assert scaler.scale(loss) == start * loss
    scaler.scale(loss).backward()
    assert weight.grad == 3 * start
    scaler.step(optimizer)
    assert weight.grad == 3  # divided in place
    scaler.update()

    before = weight.item()
    _step(scaler, optimizer, weight * math.inf)
    backed_off = scaler.get_scale()
    assert backed_off == start / 2
    _step(scaler, optimizer, weight * math.nan)
    assert scaler.get_scale() == backed_off / 2
    assert weight == before  # both steps were skipped
    _step(scaler, optimizer, weight + math.inf)  # a loss of inf, whose gradient is 1
    assert weight < before  # it looks at gradients alone
    assert scaler.get_scale() == backed_off / 2

    small = _scaler(growth_interval=3)
    for _ in range(2):
        _step(small, optimizer, weight * 1)
    assert small.get_scale() == start  # nothing grows before its time
    _step(small, optimizer, weight * 1)
    assert small.get_scale() == 2 * start

    for factor in (1, 1, math.inf, 1, 1):  # the skip halves the scale, and two clean steps are none of three
        _step(small, optimizer, weight * factor)
    assert small.get_scale() == start
    return {"start": f"{start:.0f}", "backed_off": f"{backed_off:.0f}", "interval": growth}


def powers_of_two() -> dict[str, object]:
    """Send gradients through scales that are powers of two, and through others."""
    gradients = torch.randn(10_000)
    cast = gradients.half().float()

    def through(scale: float) -> Tensor:
        return (gradients * scale).half().float() / scale

    assert torch.equal((gradients * 1024).frexp().mantissa, gradients.frexp().mantissa)
    for scale in (1.0, 16.0, 1024.0):
        assert torch.equal(through(scale), cast)  # the cast rounds; the scale adds nothing
    uneven, grown = 1000.0, 1024 * 1.5
    changed, grown_changed = ((through(scale) != cast).float().mean() for scale in (uneven, grown))
    assert min(changed, grown_changed) > 0.5
    for scale in (uneven, grown):
        assert torch.allclose(through(scale), gradients, rtol=2**-10)  # small, as those of any cast

    def settled(growth: float) -> tuple[float, float]:
        """Return how far below its ceiling the scale is (log2, on average), and how often it is above."""
        below, above = [], 0
        for ceiling in torch.linspace(10, 11, 50).tolist():
            scale = 10.0
            for _ in range(200):  # growth intervals
                above += scale > ceiling
                if scale > ceiling:
                    scale -= 1
                below.append(ceiling - scale)
                scale += math.log2(growth)
        return sum(below) / len(below), above / len(below)

    (by_two, too_high_by_two), (by_less, too_high_by_less) = settled(2), settled(1.5)
    assert abs(by_two - by_less) < 0.02  # no closer,
    assert too_high_by_less < 0.6 * too_high_by_two  # but too high less often
    return {
        "even": 1024,
        "uneven": f"{uneven:.0f}",
        "grown": f"{grown:g}",
    }


def skip_rate() -> dict[str, object]:
    """Let a scaler look for the largest scale that a problem bears, and count how often it is too high."""
    weight = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler = _scaler(growth_interval=50)
    bears, skips = 2.0**14, []
    for step in range(550):
        before = scaler.get_scale()
        _step(scaler, optimizer, weight * (1.0 if before <= bears else math.inf))
        if step >= 50 and scaler.get_scale() < before:
            skips.append(step)
    assert len(skips) == round(500 / 51)  # each clean interval ends in a growth, and that in a skip
    assert {later - earlier for earlier, later in itertools.pairwise(skips)} == {51}  # never two in a row
    default = _scaler().get_growth_interval()
    return {
        "interval": default,
        "rate": f"{1 / (default + 1):.2%}",
    }


def clip_order() -> dict[str, object]:
    """Clip a gradient of norm 10 to 1, before and after it was unscaled."""

    def run(unscale_first: bool, optimizer_class: Any, lr: float, steps: int) -> tuple[float, float, float]:
        """Return the norm that the clip sees, the one that the optimizer sees, and the weight at the end."""
        weight = nn.Parameter(torch.zeros(()))
        optimizer, scaler = optimizer_class([weight], lr=lr), _scaler(init_scale=1024.0)
        norms: list[float] = []
        optimizer.register_step_pre_hook(lambda *_: norms.append(weight.grad.norm().item()))  # type: ignore[union-attr]
        for _ in range(steps):
            optimizer.zero_grad()
            scaler.scale(10 * weight).backward()
            if unscale_first:
                scaler.unscale_(optimizer)
            clipped = nn.utils.clip_grad_norm_([weight], max_norm=1.0).item()
            scaler.step(optimizer)
            scaler.update()
        return clipped, norms[0], -weight.item()

    SGD, Adam = torch.optim.SGD, torch.optim.Adam
    norm, at_the_limit, right = run(True, SGD, 1.0, 1)
    scaled_norm, below_it, wrong = run(False, SGD, 1.0, 1)
    assert (norm, scaled_norm) == (10, 10 * 1024)
    assert math.isclose(right, 1, rel_tol=1e-4)
    assert math.isclose(wrong, 1 / 1024, rel_tol=1e-4)
    assert math.isclose(at_the_limit, 1, rel_tol=1e-4)  # the hook tells them apart
    assert below_it < 0.01
    assert run(False, SGD, 0.1, 20)[2] < 0.01 * run(True, SGD, 0.1, 20)[2]  # it hardly moves
    assert math.isclose(run(False, Adam, 0.1, 20)[2], run(True, Adam, 0.1, 20)[2], rel_tol=1e-4)
    steps = []  # of one weight, where so many share a norm of 1 / 65,536
    for count in (10**4, 10**9):
        weight = nn.Parameter(torch.zeros((), dtype=torch.float64))
        weight.grad = torch.full_like(weight, 2.0**-16 / count**0.5)
        Adam([weight], lr=1.0).step()
        steps.append(-weight.item())
    assert steps[0] > 0.9
    assert steps[1] < 0.06
    return {"scale": 1024, "wrong": f"{wrong:.5f}"}


def forgotten_unscale() -> dict[str, object]:
    """Step on gradients that are 1024 times too large, with Adam, with SGD, and with SGD behind a clip."""
    Adam, AdamW, SGD = torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD

    def moved(optimizer_class: Any, scale: float, clip: bool = False, **options: float) -> Tensor:
        weight = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
        optimizer = optimizer_class([weight], lr=0.01, **options)
        for _ in range(20):
            optimizer.zero_grad()
            (scale * 5 * (weight - 10).square().sum()).backward()
            if clip:
                nn.utils.clip_grad_norm_([weight], max_norm=1.0)
            optimizer.step()
        return weight.detach()

    def differ(optimizer_class: Any, **options: Any) -> Tensor:
        return (moved(optimizer_class, 1024, **options) - moved(optimizer_class, 1, **options)).abs().max()

    little = 1e-5
    assert differ(Adam) < little  # nothing to see
    assert differ(SGD, clip=True) < little  # the clip makes the norm 1 again, whatever the scale
    assert not (moved(SGD, 1024).abs() < 1e30).any()  # this one blows up
    assert differ(Adam, weight_decay=100.0) > 1e-3  # beside scaled gradients an L2 term is too small
    assert differ(AdamW, weight_decay=1.0) < little  # AdamW decays weights by themselves

    weight = nn.Parameter(torch.ones(3))
    (1024 * math.inf * weight.sum()).backward()
    Adam([weight]).step()
    assert weight.isnan().all()  # the first overflow is not skipped
    return {}


def below_one() -> dict[str, object]:
    """Let a scale fall below one: without end if the model makes an inf or NaN, not for large gradients."""
    weight = nn.Parameter(torch.ones(()))

    def fallen_to(loss_of: Callable[[], Tensor], steps: int = 20) -> float:
        """Return the scale after a number of steps that began at 4."""
        scaler, optimizer = _scaler(init_scale=4.0), torch.optim.SGD([weight], lr=1e-9)
        for _ in range(steps):
            _step(scaler, optimizer, loss_of())
        return scaler.get_scale()

    fallen = fallen_to(lambda: weight * math.inf, steps=6)
    assert fallen == 4.0 / 2**6
    assert fallen_to(lambda: (weight * 70_000).half().float().square()) == 4.0 / 2**20  # forward overflows
    root = (0 * weight).sqrt()
    assert root.isfinite()
    assert fallen_to(lambda: (0 * weight).sqrt()) == 4.0 / 2**20  # backward makes a NaN of its own
    assert weight == 1  # not one step was made

    large = 1e6  # true gradients above what fp16 holds
    settled = fallen_to(lambda: weight.half().float() * large)
    assert settled == 4.0 / 2**6  # the first at which they fit, and it has stayed there for 14 steps
    assert weight < 1
    return {
        "start": 4,
        "skips": 6,
        "scale": fallen,
        "large": "a million",
        "largest": f"{torch.finfo(torch.float16).max:.0f}",
    }


def fp16_loss() -> dict[str, object]:
    """Scale a loss that is fp16 itself: its gradient is the scale, in fp16."""
    start, largest = _scaler().get_scale(), torch.finfo(torch.float16).max
    assert start > largest

    def made_at(loss_of: Callable[[Tensor], Tensor], steps: int = 10) -> list[float]:
        """Return the scales at which steps were made, of a scaler that grows after each of them."""
        weight, scaler, scales = nn.Parameter(torch.ones(())), _scaler(growth_interval=1), []
        optimizer = torch.optim.SGD([weight], lr=1e-6)
        optimizer.register_step_post_hook(lambda *_: scales.append(scaler.get_scale()))
        for _ in range(steps):
            _step(scaler, optimizer, loss_of(weight.half() * torch.full((100,), 1e-3).half()))
        return scales

    in_fp16 = made_at(lambda output: output.mean())  # a loss of a thousandth
    assert set(in_fp16) == {start / 2}  # never at the default, and every other step is lost
    assert len(in_fp16) == 5
    assert made_at(lambda output: output.float().mean())[0] == start
    assert max(made_at(lambda output: output.float().mean())) > start  # a higher ceiling
    with torch.autocast("cpu", torch.float16):
        output = torch.ones(4).half()
        assert nn.functional.mse_loss(output, output).dtype == torch.float32
    assert torch.full((1000,), 100.0).half().sum().isinf()
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
    return {
        "least": 1,
        "most": f"{2**16}",
    }


def detect_skip() -> dict[str, object]:
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
            loss = weight.half().float() * factor  # twice the scale is too much for fp16
            assert loss.isfinite()
            scaler.scale(loss).backward()
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
    assert "sync" in (torch.amp.GradScaler.get_scale.__doc__ or "")  # PyTorch says that reading it waits
    return {"returned": returned[0], "before": f"{before:.0f}", "after": f"{after:.0f}"}


def two_optimizers() -> dict[str, object]:
    """Update between two optimizers whose gradients carry the same scale, and after both."""

    def updates(*order: str) -> tuple[float, float]:
        """Return how far two weights move in calls of this order, with a scale that grows at each update."""
        first, second = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(()))
        one, two = torch.optim.SGD([first], lr=1.0), torch.optim.SGD([second], lr=1.0)
        scaler = _scaler(init_scale=8.0, growth_interval=1)
        calls = {
            "backward 1": lambda: scaler.scale(first * 1).backward(),
            "backward 2": lambda: scaler.scale(second * 1).backward(),
            "step 1": lambda: scaler.step(one),
            "step 2": lambda: scaler.step(two),
            "update": scaler.update,
        }
        for name in order:
            calls[name]()
        return 1 - first.item(), 1 - second.item()

    both = ("backward 1", "backward 2", "step 1")
    assert updates(*both, "step 2", "update") == (1, 1)
    right, wrong = updates(*both, "update", "step 2")
    assert (right, wrong) == (1, 0.5)  # divided by a scale that had grown since
    one_by_one = ("backward 1", "step 1", "update", "backward 2", "step 2", "update")
    assert updates(*one_by_one) == (1, 1)

    bad, good = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(()))
    optimizers = [torch.optim.SGD([parameter], lr=1.0) for parameter in (bad, good)]
    scaler = _scaler()
    scaler.scale(bad * math.inf + good).backward()
    for optimizer in optimizers:
        scaler.step(optimizer)
    assert (bad.item(), good.item()) == (1.0, 0.0)  # each optimizer is skipped for itself

    for scaler in (_scaler(init_scale=8.0), _scaler(init_scale=2.0)):  # one each, for separate losses
        own = nn.Parameter(torch.ones(()))
        _step(scaler, torch.optim.SGD([own], lr=1.0), own * 1)
        assert own == 0

    shared = nn.Parameter(torch.ones(()))
    scaler, squared = _scaler(init_scale=8.0), shared.square()  # a graph of which both losses are made
    scaler.scale(squared / 2).backward(retain_graph=True)
    scaler.scale(squared).backward()
    owners = [torch.optim.SGD([shared], lr=1.0) for _ in range(2)]
    scaler.unscale_(owners[0])
    assert shared.grad is not None
    whole = shared.grad.item()
    assert whole == 1 + 2
    scaler.unscale_(owners[1])
    assert shared.grad.item() == whole / 8
    try:
        squared.backward()
        freed = False
    except RuntimeError:
        freed = True
    assert freed  # without retain_graph=True the second backward fails
    return {
        "wrong": wrong,
    }


def hidden_overflow() -> dict[str, object]:
    """Replace inf among scaled gradients before the scaler looks: it takes the step and never backs off."""

    def after(mend: Any) -> tuple[float, float, float]:
        """Return a weight whose gradients are inf, one whose are not, and the scale, after three batches."""
        bad, good = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(()))
        optimizer, scaler = torch.optim.SGD([bad, good], lr=1.0), _scaler()
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale(bad * math.inf + good).backward()
            mend([bad, good])
            scaler.step(optimizer)
            scaler.update()
        return bad.item(), good.item(), scaler.get_scale()

    def by_zero(weights: list[nn.Parameter]) -> None:
        for weight in weights:
            assert weight.grad is not None
            weight.grad.nan_to_num_(0, 0, 0)

    start = _scaler().get_scale()
    assert after(by_zero) == (1, -2, start)  # it has seen no inf, and steps on the rest of each batch
    one = 3 / start  # three steps on a gradient of one, scaled, that nobody has computed
    assert after(lambda weights: nn.utils.clip_grad_value_(weights, 1.0)) == (1 - one, 1 - one, start)
    assert after(lambda weights: nn.utils.clip_grad_norm_(weights, 1.0)) == (1, 1, start / 2**3)  # inf / inf
    return {}


def bf16_with_scaler() -> dict[str, object]:
    """Train under bf16 autocast with a scaler and without: every weight is the same to the last bit."""

    def trained(enabled: bool, poison: float = 1.0) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        scaler = _scaler(enabled=enabled)
        inputs, targets = torch.randn(64, 16), torch.randint(4, (64,))
        for step in range(20):
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(inputs), targets)
            _step(scaler, optimizer, loss * (poison if step == 10 else 1))
        return [parameter.detach() for parameter in model.parameters()]

    pairs = list(zip(trained(True), trained(False), strict=True))
    assert all(torch.equal(with_scaler, without) for with_scaler, without in pairs)
    assert all(weights.isfinite().all() for weights in trained(True, poison=math.inf))
    assert not any(weights.isfinite().any() for weights in trained(False, poison=math.inf))
    unscales, waits = (
        inspect.getsource(method)
        for method in (torch.amp.GradScaler._unscale_grads_, torch.amp.GradScaler._maybe_opt_step)
    )
    assert "_amp_foreach_non_finite_check_and_unscale_" in unscales  # a pass over the gradients, and a check
    assert ".item()" in waits
    return {}


def gradient_penalty() -> dict[str, object]:
    """Take a gradient penalty from scaled gradients, and from unscaled ones."""

    def penalty(unscale: bool, scale: float = 1024.0, at: float = 3.0) -> float:
        inputs = torch.tensor([at, 4.0], requires_grad=True)
        scaler = _scaler(init_scale=scale)
        (scaled,) = torch.autograd.grad(scaler.scale(inputs.sum()), inputs, create_graph=True)
        gradients = scaled / scaler.get_scale() if unscale else scaled
        return gradients.norm().item()

    right, wrong = penalty(True), penalty(False)
    assert math.isclose(right, math.sqrt(2), rel_tol=1e-6)
    assert right == penalty(True, at=-7.0)  # wherever the inputs are
    assert wrong == 1024 * right

    scales = [2.0**power for power in (0, 5, 10, 15)]
    assert {penalty(True, scale) for scale in scales} == {right}
    assert len({penalty(False, scale) for scale in scales}) == len(scales)

    small = torch.ones((), requires_grad=True)
    loss = small.half().float() * 1e-8  # in fp16, its gradient is below what there is
    assert torch.autograd.grad(loss, small, retain_graph=True)[0] == 0
    assert torch.autograd.grad(loss * 2**16, small)[0] > 0

    def stepped(scaler: torch.amp.GradScaler, unscale: bool, mixed: bool = True) -> Tensor:
        """Make one step on a loss with a penalty on the gradient by the input."""
        weight = nn.Parameter(torch.tensor([[0.5, 2.0]]))
        inputs = torch.tensor([[3.0], [4.0]], requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        with torch.autocast("cpu", torch.float16, enabled=mixed):
            loss = (weight @ inputs).float().square().sum()
        (gradients,) = torch.autograd.grad(scaler.scale(loss), inputs, create_graph=True)
        assert weight.grad is None  # so there is nothing that unscale_ could divide
        gradients = gradients / scaler.get_scale() if unscale else gradients
        with torch.autocast("cpu", torch.float16, enabled=mixed):
            loss = loss + 0.01 * gradients.norm()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        return weight.detach()

    in_fp32 = stepped(_scaler(enabled=False), True, mixed=False)
    assert torch.allclose(stepped(_scaler(init_scale=64.0), True), in_fp32, rtol=1e-3)
    assert not torch.allclose(stepped(_scaler(init_scale=64.0), False), in_fp32, rtol=0.01)
    return {
        "right": f"{right:.2f}",
        "scale": 1024,
        "terms": 2,
        "scales": len(scales),
    }
