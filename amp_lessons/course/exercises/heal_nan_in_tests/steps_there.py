"""What runs in the worker for a step of training: the loop that it makes, and a model with a BatchNorm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons.course.exercises import loops_there

FORWARD, BACKWARD = "overflows in the forward pass", "overflows in the backward pass"
_FEATURES, _WIDTH, _CLASSES, _BATCH = 6, 16, 5, 8


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
    """Make a small model with a BatchNorm behind its first layer."""
    norm = nn.BatchNorm1d(_WIDTH)
    return nn.Sequential(nn.Linear(_FEATURES, _WIDTH), norm, nn.SiLU(), nn.Linear(_WIDTH, _CLASSES))


class Bed:
    """A model that a step may train, one batch of a kind after another."""

    def __init__(self, state: dict[str, Tensor], dtype: torch.dtype, seed: int) -> None:
        self._dtype, self._draw = dtype, torch.Generator().manual_seed(seed)
        self._model = network()
        self._model.load_state_dict(state)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.1)
        self._scaler = torch.amp.GradScaler("cpu", enabled=dtype == torch.float16)

    def make(self, step: Callable[..., Any], kind: str) -> dict[str, Any]:
        """Let ``step`` train on the next batch, which is of this ``kind``; return the states around it."""
        inputs = torch.randn(_BATCH, _FEATURES, generator=self._draw) + 1.0
        inputs[0] *= 1e6 if kind == FORWARD else 1.0
        targets = torch.randint(0, _CLASSES, (_BATCH,), generator=self._draw)
        loss_fn, before = _Weighted(1e6 if kind == BACKWARD else 1.0), self._state()
        given = self._model, inputs.clone(), targets, self._optimizer, loss_fn, self._scaler
        returned = step(*given, device_type="cpu", dtype=self._dtype)
        return {"before": before, "inputs": inputs, "after": self._state(), "returned": returned}

    def _state(self) -> dict[str, Tensor]:
        return {name: each.detach().clone() for name, each in self._model.state_dict().items()}


class _Weighted(nn.CrossEntropyLoss):
    """The mean cross entropy, times a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self._factor = factor

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return super().forward(input, target) * self._factor
