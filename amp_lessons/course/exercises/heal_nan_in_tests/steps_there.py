"""What runs in the worker for a step of training: the loop that it makes, and a model with a BatchNorm."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.course.exercises import loops_there

FEATURES, CLASSES, _WIDTH = 6, 5, 16


def train(step: Callable[..., Any], given: loops_there.Given) -> dict[str, Any]:
    """Train by a loop whose steps are made by ``step``, and which returns the mean loss of each epoch."""

    def loop(
        model: Any, loader: Any, optimizer: Any, loss_fn: Any, epochs: int, *, device_type: str, dtype: Any
    ) -> list[float]:
        scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
        asked = {"device_type": device_type, "dtype": dtype}
        history = []
        for _ in range(epochs):
            losses = [step(model, x, y, optimizer, loss_fn, scaler, **asked) for x, y in loader]
            history.append(sum(float(loss) for loss in losses) / len(losses))
        return history

    return loops_there.train(loop, given)


def network() -> nn.Sequential:
    """Make a small model with a BatchNorm behind each of its two hidden layers."""
    first, second = nn.Linear(FEATURES, _WIDTH), nn.Linear(_WIDTH, _WIDTH)
    hidden = first, nn.BatchNorm1d(_WIDTH), nn.SiLU(), second, nn.BatchNorm1d(_WIDTH), nn.SiLU()
    return nn.Sequential(*hidden, nn.Linear(_WIDTH, CLASSES))


class Bed:
    """A model that a step may train, one batch after another."""

    def __init__(self, state: dict[str, Tensor], dtype: torch.dtype) -> None:
        self._dtype, self._model = dtype, network()
        self._model.load_state_dict(state)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.1)
        self._scaler = torch.amp.GradScaler("cpu", growth_interval=2, enabled=dtype == torch.float16)

    def make(
        self, step: Callable[..., Any], inputs: Tensor, targets: Tensor, weight: float
    ) -> dict[str, Any]:
        """Let ``step`` train on a batch whose loss is multiplied; return the states around it."""

        def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
            return F.cross_entropy(outputs, targets) * weight

        before = copy.deepcopy(self._model.state_dict())
        given = self._model, inputs, targets, self._optimizer, loss_fn, self._scaler
        returned = step(*given, device_type="cpu", dtype=self._dtype)
        return {"before": dict(before), "after": dict(self._model.state_dict()), "returned": returned}
