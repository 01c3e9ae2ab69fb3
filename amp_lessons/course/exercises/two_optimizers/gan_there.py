"""Where a GAN's step runs in a worker: on two small networks with an SGD optimizer each, watched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons._base.whole_process import running_eagerly
from amp_lessons.course.exercises import bed_there
from amp_lessons.course.exercises.loops_there import Log, of_pass, spying

NOISE, FEATURES, BATCH = 4, 6, 10
LEARNING_RATE = 0.25
PARTS = "discriminator", "generator"
_HIDDEN = 12


class Part(nn.Module):
    """Two linear layers that note every forward pass, and the backward passes through it, in a log."""

    def __init__(self, name: str, log: Log | None = None) -> None:
        super().__init__()
        self.name, self.log = name, log
        inputs, outputs = (FEATURES, 1) if name == "discriminator" else (NOISE, FEATURES)
        self.body, self.head = nn.Linear(inputs, _HIDDEN), nn.Linear(_HIDDEN, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, inputs) to (batch, outputs)."""
        hidden = self.body(inputs)
        outputs = self.head(F.silu(hidden))
        if (log := self.log) is not None:
            graph = outputs.requires_grad
            log.call("forward", self, part=self.name, graph=graph, **of_pass(self, inputs, hidden))
            if graph:
                outputs.register_hook(lambda _: self._note_backward(log))
        return outputs

    def _note_backward(self, log: Log) -> None:
        log.call("backward", self, autocast=torch.is_autocast_enabled("cpu"))


def train(step: Callable[..., Any], problem: dict[str, Any]) -> dict[str, Any]:
    """Let ``step`` train both networks, one call after another, until one raises.

    ``problem`` has the ``weights`` of both, flat; ``batches``, pairs of real images and noise; the ``dtype``,
    and the ``scaler``'s arguments. What is told of each call is what there was before and after it, and what
    it did; beside that, where the step asked for cuda, and what it has ``left`` changed.
    """
    log = Log()
    parts = [Part(name, log) for name in PARTS]
    for part, weights in zip(parts, problem["weights"], strict=True):
        nn.utils.vector_to_parameters(weights.clone(), part.parameters())
    log.watch(nn.ModuleList(parts))
    opt_d, opt_g = (torch.optim.SGD(part.parameters(), lr=LEARNING_RATE) for part in parts)
    scaler = torch.amp.GradScaler("cpu", **problem["scaler"])

    def called(real: Tensor, noise: Tensor) -> dict[str, Any]:
        log.before.clear()
        before, scale = log.weights(), scaler.get_scale()
        networks = parts[1], parts[0], opt_g, opt_d, scaler
        with spying(log), running_eagerly():
            options = {"device_type": "cpu", "dtype": problem["dtype"]}
            returned, raised = bed_there.attempted(step, *networks, real, noise, **options)
        return {
            "weights": [before, log.weights()],
            "scales": [scale, scaler.get_scale()],
            "returned": returned,
            "raised": raised,
            "events": list(log.before),
            "frozen": [part.name for part in parts if not all(p.requires_grad for p in part.parameters())],
        }

    def all_calls() -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []
        for real, noise in problem["batches"]:
            calls.append(called(real.clone(), noise.clone()))
            if calls[-1]["raised"] is not None:
                break
        return calls

    told = bed_there.call(all_calls, [], {})
    return {
        "calls": told["result"],
        "left": told["left"],
        "owners": {"discriminator": id(opt_d), "generator": id(opt_g), "scaler": id(scaler)},
        "cuda": sorted(log.cuda),
    }
