"""What belongs to each of two optimizers, as a GAN has them: its schedule, its average, its scaler."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel

from amp_lessons import audit
from tests.audit.plain_loops import mistakes

BOTH = ("critic", "maker")
OVERFLOWS = 3  # of the first batches


class Pair:
    """Two networks, each with its optimizer, of which one's first gradients overflow in fp16."""

    def __init__(self, overflowing: str, scalers: int = 1) -> None:
        torch.manual_seed(0)
        self.overflowing = overflowing
        self.nets = {name: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)) for name in BOTH}
        self.optimizers = {name: torch.optim.SGD(net.parameters(), 1.0) for name, net in self.nets.items()}
        made = [torch.amp.GradScaler("cpu") for _ in range(scalers)]
        self.scalers = dict(zip(BOTH, made * 2, strict=False))

    def step(self, name: str, batch: int) -> None:
        """Train one network on a batch, all but ``scaler.update``."""
        with torch.autocast("cpu", dtype=torch.float16):
            loss = self.nets[name](torch.randn(8, 6)).float().square().mean()
        factor = 1e6 if name == self.overflowing and batch < OVERFLOWS else 1e-3
        self.optimizers[name].zero_grad()
        self.scalers[name].scale(loss * factor).backward()
        self.scalers[name].step(self.optimizers[name])


def found(report: audit.Report, code: str) -> str:
    (message,) = (each.message for each in report.findings if each.code == code)
    return message


@pytest.mark.parametrize("overflowing", BOTH)
def test_a_schedule_follows_the_steps_of_its_own_optimizer(overflowing):
    with audit.watch() as seen:
        pair = Pair(overflowing)
        schedule = LambdaLR(pair.optimizers["maker"], lambda n: 1.0)
        for batch in range(6):
            for name in BOTH:
                pair.step(name, batch)
            pair.scalers["maker"].update()
            schedule.step()
    assert sum(not step.happened for step in seen.steps) == OVERFLOWS
    if overflowing == "critic":
        assert mistakes(seen.report) == set()
    else:
        assert "advanced 3 times for 0 steps" in found(seen.report, "schedule_on_skipped_step")


@pytest.mark.parametrize("order", [BOTH, BOTH[::-1]])
@pytest.mark.parametrize("overflowing", BOTH)
def test_averaged_weights_follow_the_optimizer_that_steps_them(overflowing, order):
    with audit.watch() as seen:
        pair = Pair(overflowing)
        average = AveragedModel(pair.nets["maker"])
        for batch in range(6):
            for name in order:
                pair.step(name, batch)
            pair.scalers["maker"].update()
            average.update_parameters(pair.nets["maker"])
    if overflowing == "critic":
        assert mistakes(seen.report) == set()
    else:
        assert "updated 3 times for 0 steps" in found(seen.report, "average_on_skipped_step")


@pytest.mark.parametrize("overflowing", BOTH)
def test_a_scaler_need_not_lower_its_scale_for_a_step_that_another_one_skipped(overflowing):
    with audit.watch() as seen:
        pair = Pair(overflowing, scalers=2)
        for batch in range(6):
            for name in BOTH:
                pair.step(name, batch)
            for name in BOTH[::-1]:
                pair.scalers[name].update()
    assert sum(not step.happened for step in seen.steps) == OVERFLOWS
    assert mistakes(seen.report) == set()
