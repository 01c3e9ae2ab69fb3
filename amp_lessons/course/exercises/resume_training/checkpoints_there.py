"""A training run in a worker: what it is at a moment, and what a function makes of its objects."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons.course.exercises import bed_there


def held(at: int, name: str, *handed_in: Any) -> Any:
    """Return one function of a pair, a dict, or whatever holds it by its name; None where there is none."""
    value = handed_in[0] if len(handed_in) == 1 else handed_in
    if isinstance(value, (tuple, list)):
        return value[at] if len(value) == 2 else None
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


class Training:
    """A small training run, made anew; its scaler is disabled unless ``scaling``."""

    def __init__(self, seed: int, scaling: bool) -> None:
        torch.manual_seed(seed)
        self._model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 3))
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.1, momentum=0.9)
        self._scheduler = torch.optim.lr_scheduler.ExponentialLR(self._optimizer, gamma=0.5)
        self._scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=4, enabled=scaling)

    def train(self, *epochs: int, random: Tensor | None = None) -> None:
        """Train epochs of so many steps, the second an overflow: nothing of the state stays as it is."""
        if random is not None:
            torch.set_rng_state(random)
        for steps in epochs:
            for step in range(steps):
                self._optimizer.zero_grad()
                loss = self._model(torch.randn(6, 4)).square().mean()
                self._scaler.scale(loss * (float("inf") if step == 1 else 1.0)).backward()
                if self._scaler.is_enabled() or step != 1:
                    self._scaler.step(self._optimizer)
                self._scaler.update()
            self._scheduler.step()

    def state(self) -> dict[str, Any]:
        """Copy everything that decides how training goes on."""
        optimizer, scaler = self._optimizer.state_dict(), self._scaler.state_dict()
        state = {
            "weights": {name: each.detach() for name, each in self._model.named_parameters()},
            "buffers": dict(self._model.named_buffers()),
            "mode": self._model.training,
            "momentum": optimizer["state"],
            "scheduler's epoch": self._scheduler.state_dict()["last_epoch"],
            "scheduler's last learning rate": self._scheduler.get_last_lr(),
            "learning rate": optimizer["param_groups"][0]["lr"],
            "scaler's scale": scaler.get("scale"),
            "scaler's count of clean steps": scaler,
            "state of random numbers": torch.get_rng_state(),
        }
        return copy.deepcopy(state)

    def given_to(self, function: Callable[..., Any], path: str, *epoch: int) -> dict[str, Any]:
        """Call a function with the objects; return its result, the state then, and what no state tells."""
        objects = self._model, self._optimizer, self._scheduler, self._scaler
        told = bed_there.call(function, [Path(path), *objects, *epoch], {})
        stepped = {id(p) for group in self._optimizer.param_groups for p in group["params"]}
        parameters = list(self._model.parameters())
        replaced = not stepped.issuperset(map(id, parameters))
        return {
            "left": told["left"],
            "epoch": told["result"],
            "state": self.state(),
            "beside": {
                "the model is in evaluation mode": not self._model.training,
                "the optimizer steps other tensors than the model's": replaced,
                "some weights have requires_grad=False": not all(each.requires_grad for each in parameters),
            },
            "random_on_gpus": {n: torch.cuda.get_rng_state(n) for n in range(torch.cuda.device_count())},
        }
