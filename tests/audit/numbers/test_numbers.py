"""The numbers of an audit, against loops that compute the same by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons import audit
from amp_lessons.audit.numbers.layers import _AT_MOST
from amp_lessons.course.clinic import loss_curves
from amp_lessons.scaling import census


@pytest.fixture(autouse=True)
def quietly():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))


def batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(6, 8, generator=generator) * (1e6 if step == 2 else 1.0)
    return inputs, torch.randint(0, 4, (6,), generator=generator)


def trained(
    model: nn.Module,
    loss_of: Callable[[int], Tensor],
    steps: int = 1,
    *,
    dtype: torch.dtype | None = torch.float16,
    scale: float | None = 2.0**10,
    every: int = 1,
    lr: float = 0.1,
) -> audit.Seen:
    """Watch a training by the losses of its steps, under autocast and with a scaler, or without."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None)
    with audit.watch(model, every=every) as seen:
        for step in range(steps):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
                loss = loss_of(step)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    return seen


def mistakes(seen: audit.Seen) -> list[audit.Sighting]:
    return [each for each in seen.report.findings if not each.ok]


def test_a_name_is_left_as_it_is_but_for_whole_parts_of_it_that_a_wrapper_adds():
    model = nn.Sequential()
    model.add_module("trained_module", network())
    model.add_module("other", nn.Sequential())
    model.other.add_module("module", nn.Linear(4, 2))
    seen = trained(model, lambda step: model(torch.randn(4, 8)).square().mean())
    assert set(seen.layers) == {"trained_module.0", "trained_module.2", "other"}


def unscaled(model: nn.Module, scale: float) -> dict[str, list[Tensor]]:
    """Return copies of the gradients of each layer, divided by the scale."""
    return {
        name: [p.grad.float().clone() / scale for p in layer.parameters()]
        for name, layer in model.named_children()
        if list(layer.parameters())
    }


@pytest.mark.parametrize(
    "options", [{}, {"foreach": True}, {"fused": True}], ids=["loop", "foreach", "fused"]
)
@pytest.mark.parametrize("unscale", [True, False], ids=["unscaled first", "unscaled inside"])
def test_steps_and_layers_are_those_of_a_loop_that_computes_them(options, unscale):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    by_hand: list[Any] = []
    with audit.watch(model, every=1) as seen:
        for step in range(5):
            with torch.autocast("cpu", dtype=torch.float16):
                inputs, targets = batch(step)
                loss = F.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scale = scaler.get_scale()
            gradients = unscaled(model, scale)
            before = [p.detach().clone() for p in model.parameters()]
            if unscale:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            moved = any(not torch.equal(b, p) for b, p in zip(before, model.parameters(), strict=True))
            by_hand.append((moved, scale, loss.item(), gradients))
    assert [step.happened for step in seen.steps] == [moved for moved, *_ in by_hand]
    assert [step.scale for step in seen.steps] == [scale for _, scale, *_ in by_hand]
    for step, (_, _, loss_value, gradients) in zip(seen.steps, by_hand, strict=True):
        assert step.loss == loss_value or (math.isnan(step.loss) and math.isnan(loss_value))
        if step.happened:
            flat = torch.cat([g.flatten() for layer in gradients.values() for g in layer])
            assert step.gradient_norm == pytest.approx(float(flat.double().norm()), rel=1e-5)
    for name, layer in seen.layers.items():
        for at_step, (_, scale, _, gradients) in zip(layer.history, by_hand, strict=True):
            assert at_step.census == census(gradients[name], torch.float16, scale)
            assert at_step.counterfactual["fp8_e5m2"] == census(gradients[name], torch.float8_e5m2)
            assert at_step.counterfactual["bf16"] == census(gradients[name], torch.bfloat16)
    assert seen.layers.keys() == {"0", "2"}
    assert seen.layers["0"].parameters == 8 * 16 + 16
    assert seen.layers["0"].dtypes["weight"] == torch.float32
    assert seen.layers["0"].dtypes["optimizer.exp_avg"] == torch.float32


@pytest.mark.parametrize("closure", [False, True], ids=["loop", "closure"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("rate", [1e-3, 1e-5, 1e-7])
def test_lost_updates_are_those_of_all_weights_compared(dtype, rate, closure):
    model = nn.Linear(200, 100).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)

    def backward() -> None:
        F.mse_loss(model(torch.randn(16, 200, dtype=dtype)), torch.zeros(16, 100, dtype=dtype)).backward()

    with audit.watch(model, every=1) as seen:
        if not closure:
            backward()
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.step(backward if closure else None)
    asked = sum(int((p.grad != 0).sum()) for p in model.parameters())
    lost = sum(int(((b == p) & (p.grad != 0)).sum()) for b, p in zip(before, model.parameters(), strict=True))
    three_deviations = 3 * 0.5 / math.sqrt(_AT_MOST)
    assert seen.layers["Linear"].lost_update_fraction == pytest.approx(lost / asked, abs=three_deviations)


class KahanSGD(torch.optim.SGD):
    """Keep all of each update for the next one; all that matters here is what its state says."""

    def step(self, closure: Any = None) -> None:
        if closure is not None:
            closure()
        for p in self.param_groups[0]["params"]:
            self.state[p]["kahan_comp"] = torch.zeros_like(p)


class RandomSGD(torch.optim.SGD):
    """Round up or down at random; all that matters here is what it says of itself."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, lr)
        self.bf16_stochastic_round = True


@pytest.mark.parametrize("closure", [False, True], ids=["loop", "closure"])
@pytest.mark.parametrize(
    ("kind", "rate", "named"),
    [
        (torch.optim.SGD, 1e-7, True),
        (torch.optim.SGD, 1.0, False),
        (torch.optim.SGD, 0.0, False),  # before the warm-up
        (KahanSGD, 1e-7, False),
        (RandomSGD, 1e-7, False),
    ],
)
def test_weights_in_bf16_are_named_where_they_do_not_move_and_never_will(kind, rate, named, closure):
    model = nn.Linear(64, 64).bfloat16()
    optimizer = kind(model.parameters(), lr=rate)

    def backward() -> None:
        optimizer.zero_grad()
        model(torch.randn(8, 64, dtype=torch.bfloat16)).float().square().mean().backward()

    with audit.watch() as seen:
        for _ in range(2):
            if not closure:
                backward()
            optimizer.step(backward if closure else None)
    assert len(seen.steps) == 2
    assert [each.code for each in mistakes(seen)] == ["updates_rounded_away"] * named


class Multiplied(torch.autograd.Function):
    """Return the same, and multiply its gradient."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return inputs.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None


class Large(nn.Module):
    """Multiply by a number, forward or on the way back."""

    def __init__(self, forward: float = 1.0, backward: float = 1.0) -> None:
        super().__init__()
        self.forward_factor, self.backward_factor = forward, backward

    def forward(self, inputs: Tensor) -> Tensor:
        return Multiplied.apply(inputs * self.forward_factor, self.backward_factor)


def square_of(model: nn.Module) -> Tensor:
    return model(torch.randn(4, 8)).float().square().mean()


def deep(planted: int, large: Large) -> nn.Sequential:
    return nn.Sequential(*(large if i == planted else nn.Linear(8, 8) for i in range(12)))


@pytest.mark.parametrize("planted", [1, 5, 10])
def test_the_first_overflow_of_a_forward_pass_is_found_where_it_was_planted(planted):
    model = deep(planted, Large(forward=1e30))
    first = trained(model, lambda step: square_of(model), 2, scale=None).first_nonfinite
    assert (first.module, first.phase, first.step) == (str(planted), "forward", 0)
    assert first.before[-1].module == str(planted)
    assert not math.isfinite(first.before[-1].largest)
    assert all(math.isfinite(frame.largest) for frame in first.before[:-1])
    led_there = [str(i) for i in range(max(0, planted - 2), planted + 1)]
    assert [frame.module for frame in first.before][-len(led_there) :] == led_there


@pytest.mark.parametrize("planted", [1, 5, 10])
def test_the_first_overflow_of_gradients_is_found_and_the_frames_show_what_led_there(planted):
    model = deep(planted, Large(backward=1e30))
    seen = trained(model, lambda step: square_of(model))
    first = seen.first_nonfinite
    assert first.phase == "backward"
    # what the planted module passes back arrives at the output of the one before it
    assert first.module == str(planted - 1)
    assert all(math.isfinite(frame.largest) for frame in first.before[:-1])
    assert not seen.steps[0].happened


@pytest.mark.parametrize("past_it", [False, True])
@pytest.mark.parametrize("goes_on", [False, True])
def test_an_overflow_is_recovered_where_its_step_was_skipped_and_the_optimizer_stepped_later(
    past_it, goes_on
):
    models = network(), network()
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    scaler = torch.amp.GradScaler("cpu")
    with audit.watch(*models) as seen:
        for index in range(3):
            for model, optimizer, factor in zip(models, optimizers, (1e30, 1e-3), strict=True):
                if index and not goes_on and factor > 1:
                    continue
                with torch.autocast("cpu", dtype=torch.float16):
                    loss = square_of(model)
                optimizer.zero_grad()
                scaler.scale(loss * (1e-3 if index else factor)).backward()
                scaler.unscale_(optimizer)
                (optimizer if past_it else scaler).step(*([] if past_it else [optimizer]))
            scaler.update()
    assert (seen.first_nonfinite.phase, seen.first_nonfinite.step) == ("backward", 0)
    assert seen.first_nonfinite.recovered == (goes_on and not past_it)
    if past_it:  # a step that applied an overflow is not suspected of it besides
        (found,) = (each for each in mistakes(seen) if each.code == "step_bypasses_scaler")
        assert found.count <= len(seen.steps)


class Attention(nn.Module):
    """One head whose scores are masked by a number that fp16 does not have; a whole row is, which is NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.scores, self.values, self.out = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        masked = self.scores(x) + torch.full((8,), -1e9).to(torch.float16)
        return self.out(masked.softmax(-1).to(x.dtype) * self.values(x))


def first_of(model: nn.Module) -> audit.seen.Nonfinite:
    with audit.watch(model) as seen, torch.autocast("cpu", dtype=torch.float16):
        model(torch.randn(4, 8)).float().sum().backward()
    return seen.first_nonfinite


def test_what_is_made_between_modules_is_no_fault_of_the_one_it_is_given_to():
    found = first_of(nn.Sequential(nn.Linear(8, 8), Attention()))
    assert found.module == "input of 1.out"
    assert [frame.module for frame in found.before[-2:]] == ["1.values", "input of 1.out"]
    assert math.isnan(found.before[-1].largest)


def test_a_layer_that_overwrites_its_input_is_still_the_first():
    class Overwrites(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mul_(1e30)

    assert first_of(nn.Sequential(nn.Linear(8, 8), Overwrites(), nn.Linear(8, 8))).module == "1"


def test_between_sampled_steps_no_numbers_are_taken():
    model = network()
    seen = trained(model, lambda step: square_of(model), 7, dtype=None, scale=None, every=3)
    assert [step.sampled for step in seen.steps] == [True, False, False] * 2 + [True]
    assert all((step.gradient_norm is not None) == step.sampled for step in seen.steps)
    assert [at.step for at in seen.layers["0"].history] == [0, 3, 6]


def stepped(batches, **how):
    """Watch a linear model trained on some batches."""
    model = nn.Linear(4, 2)
    return trained(model, lambda step: model(batches[step]).float().square().mean(), len(batches), **how)


@pytest.mark.parametrize(("skipped", "sampled"), [(1, [0, 1]), (3, [0, 1, 2, 3]), (8, [0, 1, 2, 3])])
def test_where_a_step_to_look_at_is_skipped_the_next_is_looked_at(skipped, sampled):
    model = network()
    seen = trained(model, lambda step: square_of(model) * (1e38 if step < skipped else 1.0), 12, every=10)
    assert [step.index for step in seen.steps if not step.happened] == [*range(skipped)]
    assert [step.index for step in seen.steps if step.sampled] == [*sampled, 10]
    known = [each.lost_update_fraction is not None for each in seen.layers["0"].history]
    assert known == [step >= skipped for step in [*sampled, 10]]


def test_losses_that_are_no_number_are_not_left_to_the_scale():
    broken = torch.full((3, 4), float("nan"))
    (found,) = mistakes(stepped([broken] * 30))
    assert found.code == "always_overflows"
    assert "8 steps in a row" in found.message
    assert found.count == 1  # and no second time after 20
    now_and_then = [broken, broken, torch.ones(3, 4)] * 6
    assert stepped(now_and_then).report.passed


@pytest.mark.parametrize(("skipped", "told"), [(19, []), (20, ["always_overflows"])])
def test_losses_that_are_numbers_are_left_to_the_scale_for_twenty_steps(skipped, told):
    seen = stepped([torch.ones(3, 4)] * skipped, scale=2.0**100)
    assert not any(step.happened for step in seen.steps)
    assert [each.code for each in mistakes(seen)] == told


def test_where_every_loss_is_finite_the_backward_pass_is_blamed_and_not_the_forward_pass():
    training = loss_curves._InfiniteGradient()
    with audit.watch(training.model, every=10) as seen:
        training.run()
    assert all(map(math.isfinite, training.losses))
    (found,) = mistakes(seen)
    assert found.code == "always_overflows"
    assert "but from the backward pass" in found.message
    assert "forward pass" not in found.message + found.hint
    assert "eps inside" in found.hint


def test_a_step_with_a_learning_rate_of_zero_loses_no_update():
    still, moving = (stepped([torch.ones(3, 4)], lr=rate).steps[0].lost_updates for rate in (0.0, 0.1))
    assert still is None
    assert moving == 0.0


def test_a_gradient_that_never_came_is_no_trouble():
    """DDP hands hooks a None for what it has found unused; so does a function that has no gradient for it."""

    class Unused(torch.autograd.Function):
        @staticmethod
        def forward(ctx, used, unused):
            return used.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient, None

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x):
            return Unused.apply(self.used(x), self.unused(x))

    net = Net()
    seen = trained(net, lambda step: net(torch.ones(3, 4)).square().mean(), dtype=None, scale=None)
    assert seen.report.passed
    assert seen.report.not_seen == ()


def codes_of(weight: float, scale: float, steps: int = 4, until: int = 99) -> set[str]:
    """Train in fp16 with the loss multiplied by ``weight`` before step ``until``; return what is found."""
    model = network()

    def loss_of(step: int) -> Tensor:
        inputs, targets = batch(step + 3)
        return F.cross_entropy(model(inputs), targets) * (weight if step < until else 1.0)

    seen = trained(model, loss_of, steps, scale=scale, lr=0.01)
    return {each.code for each in seen.report.findings}


@pytest.mark.parametrize(("weight", "scale"), [(1e-9, 1.0), (0.0, 2.0**16)], ids=["underflow", "cut off"])
def test_gradients_that_are_all_exactly_0_are_a_mistake_and_no_other_is_named(weight, scale):
    assert codes_of(weight, scale) == {"gradients_all_zero"}


@pytest.mark.parametrize(("steps", "until"), [(1, 99), (4, 1)], ids=["one step", "the first of four"])
def test_one_step_without_any_gradient_is_none(steps, until):
    assert codes_of(0.0, 2.0**16, steps, until) == set()


def test_the_precision_that_a_training_ran_in_is_seen():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with audit.watch(model) as seen:
        for step, enabled in enumerate((False, True)):
            inputs, targets = batch(step)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            ran = seen.report.precision
            assert ran.autocast == ((torch.bfloat16,) if enabled else ())
            assert (ran.autocast_off, ran.scaler, ran.scaler_off) == (True, False, False)
