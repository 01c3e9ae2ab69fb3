"""Real mistakes, what PyTorch says of each, and the code that the cure recommends."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Mistake:
    """Code that PyTorch answers with the message called ``name``, and the same as its cure has it."""

    name: str
    made: Callable[[], object]
    cured: Callable[[], object]

    def __str__(self) -> str:
        return self.name


def given(name: str, code: Callable[[Any], object], wrong: Any, right: Any) -> Mistake:
    """Return the mistake of giving to ``code`` what is wrong, which is cured by giving what is right."""
    return Mistake(name, lambda: code(wrong), lambda: code(right))


def heard(code: Callable[[], object]) -> list[BaseException]:
    """Return what running ``code`` raises or warns of, the exception first."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        raised = _raised_by(code)
    return [*raised, *(each.message for each in warned if isinstance(each.message, Warning))]


def _raised_by(code: Callable[[], object]) -> Iterable[BaseException]:
    try:
        code()
    except Exception as error:
        return [error]
    return []


X = torch.ones(2, 4)
HALF = X.half()


class Training:
    """A small model with its optimizer and scaler, on the CPU."""

    def __init__(self, model: nn.Module | None = None, scale: float = 1024.0) -> None:
        self.model = model or nn.Linear(4, 4)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=scale)

    def backward(self, x: torch.Tensor = X) -> Training:
        """Go forward and, with the loss scaled, backward."""
        self.scaler.scale(self.model(x).float().sum()).backward()
        return self

    def unscale(self) -> Training:
        self.scaler.unscale_(self.optimizer)
        return self

    def step(self, **more: object) -> Training:
        self.scaler.step(self.optimizer, **more)
        return self

    def update(self, new: object = None) -> Training:
        self.scaler.update(new)
        return self

    def directly(self) -> Training:
        """Make the optimizer's step, without the scaler's."""
        self.optimizer.step()
        return self

    def without_gradients(self) -> Training:
        self.optimizer.zero_grad()
        return self
