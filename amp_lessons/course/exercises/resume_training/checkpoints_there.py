"""A training run in a worker that has come some way, saved, loaded into a fresh one, and gone on."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons._base.text.describing import describe
from amp_lessons.course.exercises import bed_there


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
        states = {name: _plain(copy.deepcopy(each.state_dict())) for name, each in named}
        return states | {"training": self.model.training}


def make(seed: int, scaling: bool) -> Training:
    """Make everything anew; the scaler is disabled unless ``scaling``."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=4, enabled=scaling)
    return Training(model, optimizer, scheduler, scaler)


def train(training: Training, steps: int) -> None:
    """Train a little, with one overflow, so that every part of the state differs from a fresh one."""
    for step in range(steps):
        training.optimizer.zero_grad()
        loss = training.model(torch.randn(6, 4)).square().mean()
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


def _plain(state: Any) -> Any:
    """Return a state with dicts in the place of other mappings."""
    if isinstance(state, Mapping):
        return {key: _plain(value) for key, value in state.items()}
    return [_plain(each) for each in state] if isinstance(state, list) else state


class Pair:
    """The two functions of a pair, a dict, or whatever holds them by their names."""

    def __init__(self, *value: Any) -> None:
        self._held = held = value[0] if len(value) == 1 else value
        self._functions: tuple[Any, Any] | None = None
        if isinstance(held, (tuple, list)) and len(held) == 2:
            self._functions = held[0], held[1]
        elif isinstance(held, dict) and {"save_checkpoint", "load_checkpoint"} <= set(held):
            self._functions = held["save_checkpoint"], held["load_checkpoint"]
        elif hasattr(held, "save_checkpoint") and hasattr(held, "load_checkpoint"):
            self._functions = held.save_checkpoint, held.load_checkpoint

    def described(self) -> str:
        """Describe what was handed in and is no pair; "" for a pair."""
        return "" if self._functions else describe(self._held)

    def uncallable(self) -> list[Any]:
        """Say of each function why it cannot be called as the stub can, None where it can."""
        assert self._functions is not None
        counts = zip(self._functions, (6, 5), strict=True)
        return [bed_there.uncallable(function, count, []) for function, count in counts]

    def round_trip(self, scaling: bool, epoch: int) -> dict[str, Any]:
        """Save a training, let it go on, and load the file into a fresh one; return what ``call`` does."""
        assert self._functions is not None
        trip = _RoundTrip(*self._functions, scaling, epoch)
        called = bed_there.call(trip.made, [], {})
        return {**called, "result": trip.seen}


class _RoundTrip:
    """One training saved twice and loaded once; ``seen`` says what there was at each moment.

    The run that went on saves again, to another file, and the first file is moved, without whatever was
    written beside it: what a function remembers instead of writing it down is something else by then.
    """

    def __init__(self, save: Callable[..., Any], load: Callable[..., Any], scaling: bool, epoch: int) -> None:
        self._save, self._load, self._scaling, self._epoch = save, load, scaling, epoch
        self.seen: dict[str, Any] = {"saved": []}

    def made(self) -> None:
        running = make(seed=1, scaling=self._scaling)
        train(running, steps=4)
        with tempfile.TemporaryDirectory() as folder:
            file, moved = Path(folder) / "first" / "checkpoint.pt", Path(folder) / "moved" / "checkpoint.pt"
            random_wanted = random_states()
            if not self._saved(file, running, self._epoch):
                return
            _, raised = bed_there.attempted(train, running, steps=2)  # which saving may have changed
            if raised or not self._saved(Path(folder) / "later" / "checkpoint.pt", running, self._epoch + 1):
                return
            self.seen["left_behind"] = _moved_alone(file, moved)
            resumed = make(seed=2, scaling=self._scaling)
            self._loaded(moved, resumed)
        if self.seen["load_raised"] is None:
            self._gone_on(resumed, random_wanted)

    def _saved(self, path: Path, running: Training, epoch: int) -> bool:
        """Save, and say whether there is a file of that name now."""
        path.parent.mkdir()
        seen: dict[str, Any] = {"before": running.state(), "random": random_states()}
        _, seen["raised"] = bed_there.attempted(self._save, path, *running.objects(), epoch)
        seen |= {"after": running.state(), "random_after": random_states()}
        seen["written"] = sorted(each.name for each in path.parent.iterdir())
        self.seen["saved"].append(seen)
        return path.exists()

    def _loaded(self, path: Path, resumed: Training) -> None:
        self.seen["own"] = resumed.state()
        loaded = bed_there.attempted(self._load, path, *resumed.objects())
        self.seen["epoch"], self.seen["load_raised"] = loaded
        stepped = {id(p) for group in resumed.optimizer.param_groups for p in group["params"]}
        parameters = dict(resumed.model.named_parameters())
        self.seen |= {
            "random_found": random_states(),
            "found": resumed.state(),
            "replaced": not all(id(parameter) in stepped for parameter in parameters.values()),
            "frozen": [name for name, parameter in parameters.items() if not parameter.requires_grad],
        }

    def _gone_on(self, resumed: Training, random_wanted: list[Tensor]) -> None:
        set_random_states(random_wanted)
        _, raised = bed_there.attempted(train, resumed, steps=2)  # what was loaded is looked at first
        self.seen["gone_on"] = None if raised else resumed.state()["model"]


def _moved_alone(file: Path, where: Path) -> list[str]:
    """Move a file to another folder, remove its own, and return the names of what was left there."""
    where.parent.mkdir()
    file.rename(where)
    left_behind = sorted(each.name for each in file.parent.iterdir())
    shutil.rmtree(file.parent)
    return left_behind
