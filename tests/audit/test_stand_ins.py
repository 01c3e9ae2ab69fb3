"""A scaler that is given something else to step than an optimizer of PyTorch's: what it skips is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from amp_lessons import audit
from tests.audit.plain_loops import mistakes

RATE = 0.01
OVERFLOWS_AT = 2
STEPS = 24  # more than as many in a row as would be called hopeless


class OfOnesOwn:
    """An optimizer of no class of PyTorch's."""

    def __init__(self, parameters: Any, rate: float) -> None:
        self.param_groups = [{"params": list(parameters), "lr": rate}]

    def step(self) -> None:
        """Go against the gradients."""
        with torch.no_grad():
            for each in self.param_groups[0]["params"]:
                each.sub_(RATE * each.grad)


class StandIn:
    """Is given to the scaler in an optimizer's place, and says whether that may step."""

    def __init__(self, optimizer: Any) -> None:
        self.param_groups, self.skipped = optimizer.param_groups, True

    def step(self) -> None:
        """Take note that the scaler found nothing wrong."""
        self.skipped = False


def directly(scaler: torch.amp.GradScaler, optimizer: Any) -> None:
    scaler.step(optimizer)


def through_a_stand_in(scaler: torch.amp.GradScaler, optimizer: Any) -> None:
    stand_in = StandIn(optimizer)
    scaler.step(stand_in)
    if not stand_in.skipped:
        optimizer.step()


def train(make: Callable[[Any, float], Any], step: Callable[[torch.amp.GradScaler, Any], None]) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer, scaler = make(model.parameters(), RATE), torch.amp.GradScaler("cpu")
    for index in range(STEPS):
        inputs = torch.randn(6, 8) * (1e6 if index == OVERFLOWS_AT else 1.0)
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(inputs), torch.randint(0, 4, (6,)))
        model.zero_grad()
        scaler.scale(loss).backward()
        step(scaler, optimizer)
        scaler.update()
    return model


@pytest.mark.parametrize("step", [directly, through_a_stand_in])
@pytest.mark.parametrize("make", [torch.optim.SGD, OfOnesOwn])
def test_only_the_step_that_the_scaler_skipped_is_called_skipped(make, step):
    with audit.watch(every=1) as seen:
        model = train(make, step)
    assert [step.index for step in seen.steps if not step.happened] == [OVERFLOWS_AT]
    assert len(seen.steps) == STEPS
    assert mistakes(seen.report) == set()
    assert not seen.report.not_seen
    expected = train(make, step).state_dict()
    assert all(torch.equal(now, expected[name]) for name, now in model.state_dict().items())
    lost = [step.lost_updates for step in seen.steps if step.happened and step.lost_updates is not None]
    assert all(share < 0.5 for share in lost)
    assert bool(lost) == (make is torch.optim.SGD)
