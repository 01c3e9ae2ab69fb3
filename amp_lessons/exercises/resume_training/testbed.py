"""A training run that has come some way: all its state differs from a fresh one's, and can be compared."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class Training:
    """What a checkpoint has to hold: the objects of a training run."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: Any
    scaler: torch.amp.GradScaler

    def objects(self) -> tuple[Any, ...]:
        """Return the objects in the order in which the exercise takes them."""
        return self.model, self.optimizer, self.scheduler, self.scaler

    def state(self) -> dict[str, Any]:
        """Copy everything that decides how training goes on, apart from random numbers."""
        named = zip(("model", "optimizer", "scheduler", "scaler"), self.objects(), strict=True)
        states = {name: copy.deepcopy(each.state_dict()) for name, each in named}
        return states | {"training": self.model.training}


def make(seed: int, device: str, scaling: bool) -> Training:
    """Make everything anew; the scaler is disabled unless ``scaling``."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 3)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**12, growth_interval=4, enabled=scaling)
    return Training(model, optimizer, scheduler, scaler)


def train(training: Training, device: str, steps: int) -> None:
    """Train a little, with one overflow, so that every part of the state differs from a fresh one."""
    for step in range(steps):
        training.optimizer.zero_grad()
        loss = training.model(torch.randn(6, 4, device=device)).square().mean()
        training.scaler.scale(loss * (float("inf") if step == 1 else 1.0)).backward()
        if training.scaler.is_enabled() or step != 1:
            training.scaler.step(training.optimizer)
        training.scaler.update()
    training.scheduler.step()


def random_states() -> list[Tensor]:
    """Copy the states of PyTorch's random numbers on all devices."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [])]


def set_random_states(states: list[Tensor]) -> None:
    """Put back what ``random_states`` returned."""
    torch.set_rng_state(states[0])
    if states[1:]:
        torch.cuda.set_rng_state_all(states[1:])


def equal(a: Any, b: Any) -> bool:
    """Compare states, which are nested dicts and lists of tensors and numbers, exactly."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return (
            isinstance(a, Tensor)
            and isinstance(b, Tensor)
            and a.dtype == b.dtype
            and torch.equal(a, b.to(a.device))
        )
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)
