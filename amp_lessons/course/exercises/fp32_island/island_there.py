"""A model with one operation that overflows fp16, and what it sees of a pass under autocast, in a worker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons.course.exercises import bed_there
from amp_lessons.course.exercises.loops_there import Log, spying
from amp_lessons.precisions import HALF_DTYPES

# The dtype of a call's input, and the 16-bit dtype that autocast casts to there, None where it does not
Place = tuple[torch.dtype, torch.dtype | None]


def _place(given: Tensor) -> Place:
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    # in fp32, which CUDA's allows, autocast is as good as off
    return given.dtype, dtype if dtype in HALF_DTYPES else None


class Energy(nn.Module):
    """Two linear layers around a normalisation by the energy of each row, which overflows fp16."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 32)
        self.head = nn.Linear(32, 4)
        self.seen: dict[str, list[Any]] = {"body": [], "head": [], "normalise": []}
        for name, layer in (("body", self.body), ("head", self.head)):
            layer.register_forward_hook(partial(self._note, name))

    def _note(self, name: str, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self.seen[name].append(output.dtype)

    def normalise(self, hidden: Tensor) -> Tensor:
        """Divide each row of (batch, 32) by its norm, computed as a matrix product of the row with itself."""
        self.seen["normalise"].append(_place(hidden))
        energy = hidden.unsqueeze(-2) @ hidden.unsqueeze(-1)
        return hidden / energy.squeeze(-1).sqrt()

    def reference(self, x: Tensor) -> Tensor:
        """Compute the same in fp32 throughout."""
        with torch.autocast("cpu", enabled=False):
            hidden = self.body(x)
            return self.head(hidden / hidden.norm(dim=-1, keepdim=True))


def run(
    forward: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], dtype: torch.dtype
) -> dict[str, Any]:
    """Run the model of these weights with ``forward`` under autocast in ``dtype``; fp32 stands for none.

    ``args`` are the input, of shape (6, 8), and the weights by name; "cuda" means this device. The result
    holds the ``output`` and the gradients of its mean square, None for each that none reaches;
    ``autocast_left``, whether it was on afterwards; what it ``raised``; the dtypes ``seen`` by each part;
    ``changed`` layers, and whether autocast was asked ``for_cuda`` alone.
    """
    model: Energy = type("Model", (Energy,), {"forward": forward})()
    model.load_state_dict(args[1])
    before = {name: (each, each.detach().clone()) for name, each in model.named_parameters()}
    batch, enabled = args[0].clone(), dtype in HALF_DTYPES
    log = Log()
    log.watch(model)
    callers = torch.autocast("cpu", dtype=dtype if enabled else torch.bfloat16, enabled=enabled)

    def code() -> tuple[Any, bool]:
        with callers:
            return model(batch), torch.is_autocast_enabled("cpu")

    with spying(log):
        called = bed_there.call(bed_there.attempted, [code], {})
    ended, raised = called["result"]
    output, autocast_left = ended or (None, None)
    result = {
        "output": output,
        "autocast_left": autocast_left,
        "raised": raised,
        "gradients": _gradients(output, model),
        "seen": model.seen,
        "changed": _changed(model, before),
        "for_cuda": {str(device).partition(":")[0] for device, _ in log.autocasts} == {"cuda"},
    }
    return {**called, "result": result, "args": [batch, args[1]]}


def _gradients(output: Any, model: nn.Module) -> list[Tensor | None] | None:
    if not isinstance(output, Tensor) or not output.requires_grad:
        return None
    loss = output.float().square().mean()
    return list(torch.autograd.grad(loss, list(model.parameters()), allow_unused=True))


def _changed(model: nn.Module, layers: dict[str, tuple[nn.Parameter, Tensor]]) -> list[str]:
    """List the weights and biases that are other tensors than before, or hold another dtype or numbers."""
    now = dict(model.named_parameters())
    return [
        name
        for name, (parameter, before) in layers.items()
        if now.get(name) is not parameter
        or parameter.dtype != before.dtype
        or not torch.equal(parameter, before)
    ]
