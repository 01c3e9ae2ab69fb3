"""What a loop makes of numbers: weights that become NaN, steps skipped on and on, a loop that stops."""

from __future__ import annotations

import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons import audit
from amp_lessons.audit.numbers import sampler
from amp_lessons.audit.recorder import later
from tests.audit.plain_loops import mistakes


def of(report: audit.Report, code: str):
    return next(finding for finding in report.findings if finding.code == code)


def distance(out: Tensor, to: Tensor) -> Tensor:
    """Return a loss whose gradient is NaN where both are equal, while it is finite itself."""
    return (out.float() - to).square().sum(-1).sqrt().mean()


def ratio(out: Tensor, to: Tensor) -> Tensor:
    """Return another: 0 times the logarithm of 0."""
    same = (out.float() - to).abs().sum(-1)
    return torch.where(same > 0, same * same.log(), torch.zeros(())).mean()


def watched(dtype, at: int, steps: int, loss_of=distance) -> audit.Report:
    """Train on noise, and at one step on what the model says itself."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with audit.watch(model) as seen:
        for step in range(steps):
            with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
                out = model(torch.randn(8, 4))
            loss = loss_of(out, out.detach().float() if step == at else torch.randn(8, 4))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return seen.report


@pytest.mark.parametrize("loss_of", [distance, ratio])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16], ids=str)
def test_weights_that_a_step_has_made_nan_are_said_with_that_step(loss_of, dtype):
    report = watched(dtype, at=4, steps=13, loss_of=loss_of)
    found = of(report, "weights_broken")
    assert (found.first_step, found.count, found.place.source) == (4, 1, "optimizer.step()")
    assert "step 5" in found.message
    assert (report.first_nonfinite.step, report.first_nonfinite.phase) == (4, "backward")


def test_weights_that_the_last_step_of_all_has_broken_are_seen():
    assert of(watched(None, at=6, steps=7), "weights_broken").first_step == 6


@pytest.mark.parametrize("steps", [7, 25])
def test_weights_on_a_device_that_is_not_waited_for_are_looked_at_with_the_next_sample_or_at_the_end(
    steps, monkeypatch
):
    monkeypatch.setattr(sampler, "may_read", lambda tensor: later._closely)
    found = of(watched(torch.bfloat16, at=5, steps=steps), "weights_broken")
    assert (found.first_step, found.count) == (5, 1)


def scaled(steps: int, inputs, loss_of=F.cross_entropy, interval: int = 2000, scale=65536.0) -> audit.Report:
    """Train in fp16; ``inputs`` gives the batch of a step."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=interval)
    with audit.watch() as seen:
        for step in range(steps):
            with torch.autocast("cpu", dtype=torch.float16):
                loss = loss_of(model(inputs(step)).float(), torch.randint(0, 4, (6,)))
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    return seen.report


def between_0_and_1(out: Tensor, labels: Tensor) -> Tensor:
    """Return a loss whose gradient is too steep for fp16 where all samples are alike: a division by 1e-8."""
    low, high = out.amin(0), out.amax(0)
    return ((out - low) / (high - low + 1e-8) - torch.rand(6, 4)).square().mean()


def test_steps_that_only_the_backward_pass_overflows_are_told_apart():
    alike = scaled(25, lambda step: torch.randn(6 if step % 2 else 1, 8).expand(6, 8), between_0_and_1)
    found = of(alike, "skipped_too_often")
    assert "all their losses were finite" in found.message
    assert "times through this line" in found.message
    assert "(high - low + 1e-8)" in found.place.source


@pytest.mark.parametrize("often", [2, 3])
def test_steps_that_are_skipped_now_and_then_up_to_the_end_are_a_mistake(often):
    report = scaled(30, lambda step: torch.randn(6, 8) * (1e6 if step % often == 1 else 1.0))
    found = of(report, "skipped_too_often")
    skipped = sum(not step.happened for step in report.steps)
    assert f"{skipped} of 30 steps" in found.message
    assert "from 65536 to" in found.message
    assert f"the loss of {skipped} of them was inf or NaN" in found.message


@pytest.mark.parametrize(("scale", "interval"), [(2.0**30, 2000), (65536.0, 3)])
def test_a_scaler_that_looks_for_its_scale_makes_no_mistake(scale, interval):
    report = scaled(40, lambda step: torch.randn(6, 8), interval=interval, scale=scale)
    assert any(not step.happened for step in report.steps)
    assert mistakes(report) == set()


def test_a_training_of_which_every_step_was_skipped_says_so_in_its_first_line():
    report = scaled(4, lambda step: torch.randn(6, 8) * 1e6)
    assert "every one of which was skipped" in str(report).splitlines()[0]


def test_the_first_overflow_is_that_of_the_earlier_step():
    report = scaled(25, lambda step: torch.randn(6, 8) * (1e6 if step in (3, 7, 10) else 1), scale=1024.0)
    said = " ".join(str(report).split())
    assert "The first inf or NaN of the steps that were looked at" in said
    assert "step 4 was skipped before" in said


def by_raise(norm: Tensor) -> None:
    if not norm.isfinite():
        raise FloatingPointError("gradients")


def by_assert(norm: Tensor) -> None:
    assert norm.isfinite(), "gradients"


def by_exit(norm: Tensor) -> None:
    if not norm.isfinite():
        sys.exit("gradients")


def stop_at_overflow(check, unscale: bool, at: int, patience: int = 1) -> None:
    """Train in fp16, and let ``check`` see the norm of the gradients before each step."""
    model = nn.Linear(8, 4)
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.01), torch.amp.GradScaler("cpu")
    for step in range(at + 6):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(torch.randn(6, 8) * (1e5 if step >= at else 0.1)).float().square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if unscale:
            scaler.unscale_(optimizer)
        if step >= at + patience - 1:
            check(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]))
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("check", [by_raise, by_assert, by_exit])
def test_a_loop_that_stops_at_its_own_check_is_told_that_the_scaler_would_have_gone_on(check, unscale, at):
    with pytest.raises((FloatingPointError, AssertionError, SystemExit)), audit.watch() as seen:
        stop_at_overflow(check, unscale, at)
    place = of(seen.report, "stops_at_overflow").place
    assert place.source.startswith(("raise FloatingPointError", "assert norm", "sys.exit"))


def test_a_loop_that_gives_up_after_several_skipped_steps_is_right():
    with pytest.raises(FloatingPointError), audit.watch() as seen:
        stop_at_overflow(by_raise, unscale=True, at=2, patience=5)
    assert "stops_at_overflow" not in mistakes(seen.report)
