"""Where a GAN's step runs in a worker: on two small networks with an SGD optimizer each, watched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons._base.whole_process import running_eagerly
from amp_lessons.course.exercises import bed_there
from amp_lessons.course.exercises.loops_there import Log, spying

NOISE, FEATURES, BATCH = 4, 6, 10
LEARNING_RATE = 0.25
PARTS = "discriminator", "generator"
_HIDDEN = 12


class Part(nn.Module):
    """Two linear layers that note in ``seen`` how each forward pass of training ran."""

    def __init__(self, name: str, seen: list[dict[str, Any]] | None = None) -> None:
        super().__init__()
        self.name, self.seen = name, seen
        inputs, outputs = (FEATURES, 1) if name == "discriminator" else (NOISE, FEATURES)
        self.body, self.head = nn.Linear(inputs, _HIDDEN), nn.Linear(_HIDDEN, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, inputs) to (batch, outputs)."""
        if self.seen is None or not torch.is_grad_enabled():
            return self.head(F.silu(self.body(inputs)))
        entry = {
            "part": self.name,
            "training": self.training,
            "autocast": torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None,
            "backward_autocast": False,
            "inputs": inputs.detach().float().clone(),
            "input_dtype": inputs.dtype,
        }
        self.seen.append(entry)
        outputs = self.head(F.silu(self.body(inputs)))
        if outputs.requires_grad:
            outputs.register_hook(lambda _: entry.update(backward_autocast=torch.is_autocast_enabled("cpu")))
        return outputs


def train(step: Callable[..., Any], problem: dict[str, Any]) -> dict[str, Any]:
    """Let ``step`` train both networks, one call after another, until one raises.

    ``problem`` has the ``weights`` of both, flat; ``batches``, pairs of real images and noise; the ``dtype``,
    and the ``scaler``'s arguments. The result tells of each call what there was before and after it, and how
    the step spelled what is of one device.
    """
    log, seen = Log(), list[dict[str, Any]]()
    discriminator, generator = parts = [Part(name, seen) for name in PARTS]
    for part, weights in zip(parts, problem["weights"], strict=True):
        nn.utils.vector_to_parameters(weights.clone(), part.parameters())
    log.watch(nn.ModuleList(parts))
    opt_d, opt_g = (torch.optim.SGD(part.parameters(), lr=LEARNING_RATE) for part in parts)
    scaler = torch.amp.GradScaler("cpu", **problem["scaler"])
    calls = []
    for real, noise in problem["batches"]:
        log.before.clear()
        seen.clear()
        before, scale = log.weights(), scaler.get_scale()
        networks = generator, discriminator, opt_g, opt_d, scaler
        with spying(log), running_eagerly():
            options = {"device_type": "cpu", "dtype": problem["dtype"]}
            returned, raised = bed_there.attempted(step, *networks, real.clone(), noise.clone(), **options)
        calls.append(
            {
                "weights": [before, log.weights()],
                "scales": [scale, scaler.get_scale()],
                "scaled": any(call["name"] == "scale" for call in log.before),
                "returned": returned,
                "raised": raised,
                "forwards": list(seen),
                "frozen": [
                    part.name for part in parts if not all(p.requires_grad for p in part.parameters())
                ],
            }
        )
        if raised is not None:
            break
    return {"calls": calls, "cuda": sorted(log.cuda), "old": sorted(log.old_spellings)}


def watched(
    step: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], problem: dict[str, Any]
) -> dict[str, Any]:
    """Let ``step`` train, and tell what it has left behind, as ``bed_there.call`` does."""
    return {**bed_there.call(train, [step, problem], kwargs), "args": args}
