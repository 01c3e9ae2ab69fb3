"""Checkpoints that lose nothing: everything that decides how training goes on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.audit.watching.device import device_type
from amp_lessons.exercises.attempt import (
    Attempt,
    Rejected,
    callable_with,
    outcome_of,
    reject,
    require_none,
    run,
)
from amp_lessons.exercises.resume_training import mistakes
from amp_lessons.exercises.resume_training.testbed import Training, equal, make, random_states, train
from amp_lessons.text.describing import describe

_EPOCH = 7
_Function = Callable[..., Any]


def check(attempt: Attempt) -> Iterator[Finding]:
    """Save a training that has come some way, load it into a fresh one, and look for what is lost."""
    save, load = _both(attempt.value)
    for scaling in (True, False):
        _require_round_trip(save, load, scaling)
    yield passed("model", "weights and buffers come back exactly")
    yield passed("optimizer", "so do the optimizer's state and learning rate, and the scheduler's position")
    yield passed(
        "scaler", "so do the scaler's scale and its count of clean steps; a disabled scaler works as well"
    )
    yield passed("position", "the epoch and PyTorch's random numbers go on where they stopped")


def _both(value: Any) -> tuple[_Function, _Function]:
    """Return the two functions of a pair, a dict, or whatever holds them by their names."""
    if isinstance(value, (tuple, list)) and len(value) == 2:
        save, load = value
    elif isinstance(value, dict) and {"save_checkpoint", "load_checkpoint"} <= set(value):
        save, load = value["save_checkpoint"], value["load_checkpoint"]
    elif hasattr(value, "save_checkpoint") and hasattr(value, "load_checkpoint"):
        save, load = value.save_checkpoint, value.load_checkpoint
    else:
        reject(
            "not_a_pair",
            f"two functions were expected, not {describe(value)}",
            'check("resume_training", (save_checkpoint, load_checkpoint))',
        )
    return (
        callable_with(save, "save_checkpoint", *[None] * 6).function,
        callable_with(load, "load_checkpoint", *[None] * 5).function,
    )


def _require_round_trip(save: _Function, load: _Function, scaling: bool) -> None:
    device = device_type()
    running = make(seed=1, device=device, scaling=scaling)
    train(running, device, steps=4)
    wanted, random_wanted = running.state(), random_states()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        _require_saved(save, path, running, wanted)
        resumed = make(seed=2, device=device, scaling=scaling)
        epoch, random_found = _loaded(load, path, resumed, scaling)
    require_none(mistakes.lost(wanted, resumed))
    require_none(mistakes.wrong_epoch(epoch, _EPOCH))
    require_none(mistakes.lost_random(random_wanted, random_found))


def _require_saved(save: _Function, path: Path, running: Training, wanted: dict[str, Any]) -> None:
    drawn = random_states()

    def save_and_look() -> list[Tensor]:
        save(path, *running.objects(), _EPOCH)
        return random_states()

    drawn_after = run(save_and_look, about="in save_checkpoint")
    if not any(path.parent.iterdir()):
        reject("nothing_saved", "save_checkpoint wrote no file", "torch.save(state, path)")
    if not equal(running.state(), wanted) or not equal(drawn_after, drawn):
        reject(
            "saving_changes_training",
            "after save_checkpoint the running training was different: its objects (model.half() converts "
            "in place, for one) or PyTorch's random state",
            "convert copies, not the model: {name: tensor.half() for name, tensor in "
            "model.state_dict().items()}; or do not convert",
        )


def _loaded(load: _Function, path: Path, resumed: Training, scaling: bool) -> tuple[Any, list[Tensor]]:
    """Return the epoch that ``load`` returns, and the random states that it leaves."""

    def load_and_look() -> tuple[Any, list[Tensor]]:
        return load(path, *resumed.objects()), random_states()

    outcome = outcome_of(load_and_look, part="load_checkpoint")
    if outcome.error is not None:
        raise Rejected(mistakes.load_raised(outcome, scaling))
    epoch, random_found = outcome.value
    return epoch, random_found
