"""Change one thing in the training of this process, before it begins, and for good: the process is its own.

Every run begins alike: with the same random numbers where the script draws its own, and unchanged data and
code. PyTorch is never put back, so nothing else may run in such a process.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from amp_lessons._base import files
from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.audit.numbers.naming import Names
from amp_lessons.audit.recorder.gradients import parameters_of
from amp_lessons.audit.recorder.replacing import replaced
from amp_lessons.audit.trying import Trial
from amp_lessons.autocast.islands import find_islands, in_fp32
from amp_lessons.precisions import HALVES

_SEED = 0
_SEARCH_S = 60.0
_NO_SWITCH = (
    "PyTorch's switches for the sums within products of 16 bits are CUDA's "
    "(torch.backends.cuda.matmul.allow_…_reduced_precision_reduction), and there is no CUDA here"
)
_KEPT = ExitStack()  # what is changed, until the process ends


def carry_out(trial: Trial) -> None:
    """Let the training that begins now be as ``trial`` says."""
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(_SEED)
    if trial.whole:
        _KEPT.enter_context(replaced(torch.autocast, "__init__", _autocast_in(trial.whole)))
    if trial.reduce:
        if not torch.cuda.is_available():
            raise SystemExit(_NO_SWITCH)
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    if trial.modules:
        _watch_for_models(_Islands(trial.modules))
    if trial.islands:
        _watch_for_models(_Search(Path(trial.islands), HALVES[trial.half]))
    if trial.nudge:
        register_optimizer_step_pre_hook(_Nudge(trial.nudge, HALVES[trial.half]))


def _autocast_in(whole: str) -> Callable[[Any], Any]:
    """Make every autocast context compute in another precision; what is switched off stays off."""

    def wrap(original: Any) -> Any:
        def init(
            self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None
        ) -> None:
            if whole == "fp32":
                enabled = False
            else:
                dtype = HALVES[whole]
            original(self, device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

        return init

    return wrap


def _watch_for_models(found: Any) -> None:
    """Give ``found`` each optimizer once it is made, and have it called when one steps."""

    def wrap(original: Any) -> Any:
        def init(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            names = Names()
            names.find(parameters_of(self))
            found.models(names)

        return init

    _KEPT.enter_context(replaced(torch.optim.Optimizer, "__init__", wrap))
    register_optimizer_step_pre_hook(lambda *_: found.first_step())


class _Islands:
    """Modules that run in fp32 from the moment at which their optimizer is made."""

    def __init__(self, wanted: tuple[str, ...]) -> None:
        self._missing, self._known = set(wanted), set[str]()
        self._wanted = wanted

    def models(self, names: Names) -> None:
        for model in names.models:
            paths = {path: names.module(module) or "" for path, module in model.named_modules()}
            self._known |= set(paths.values())
            new = [path for path, name in paths.items() if name in self._missing]
            self._missing -= {paths[path] for path in new}
            _KEPT.enter_context(in_fp32(model, new))

    def first_step(self) -> None:
        """End the run where a module is not there: it would be one with nothing changed."""
        if self._missing:
            name = min(self._missing)
            raise SystemExit(f"no module is called {name!r}; {did_you_mean(name, sorted(self._known))}")


class _Search:
    """Search for islands at the first pass of the first model, write their names into a file, and end."""

    def __init__(self, file: Path, half: torch.dtype) -> None:
        self._file, self._half = file, half
        self._names: Names | None = None
        self._parts: list[str] = []

    def models(self, names: Names) -> None:
        if self._names is None and names.models:
            self._names, model = names, names.models[0]
            self._parts = [names.module(part) or "" for part in model.children()]
            self._hook = model.register_forward_pre_hook(self._pass, with_kwargs=True)

    def _pass(self, model: nn.Module, args: Any, kwargs: Any) -> None:
        self._hook.remove()
        device = next(model.parameters()).device.type
        options: Any = {"dtype": self._half, "device_type": device, "seconds": _SEARCH_S}
        with torch.autocast(device, enabled=False):
            found = find_islands(model, *args, **options, **kwargs)
        modules = dict(model.named_modules())
        name = self._names.module if self._names is not None else str
        self._end([name(modules[path]) or "" for path in found.names], device)

    def first_step(self) -> None:
        """End where no pass came through the model itself."""
        self._end([], "")

    def _end(self, islands: list[str], device: str) -> None:
        found = {"islands": islands, "parts": self._parts, "device": device}
        files.replace(self._file, json.dumps(found))
        raise SystemExit(0)


class _Nudge:
    """Move each weight, before its first step, by no more than a cast to 16 bits rounds it.

    So the run is another one of the same kind: what differs is what rounding could have made differ.
    """

    def __init__(self, seed: int, half: torch.dtype) -> None:
        self._draw, self._spacing = torch.Generator().manual_seed(seed), torch.finfo(half).eps
        self._moved: dict[int, Tensor] = {}  # kept: another one could be given its id

    @torch.no_grad()
    def __call__(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for parameter in parameters_of(optimizer):
            if id(parameter) not in self._moved and parameter.is_floating_point():
                self._moved[id(parameter)] = parameter
                by = torch.rand(
                    parameter.shape, generator=self._draw, dtype=torch.float32, device="cpu"
                ).sub_(0.5)
                parameter.mul_(1 + by.to(parameter.device) * self._spacing)
