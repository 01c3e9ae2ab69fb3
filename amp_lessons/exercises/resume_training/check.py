"""Checkpoints that lose nothing: everything that decides how training goes on."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from amp_lessons.audit.findings import Finding, passed
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
from amp_lessons.exercises.resume_training.testbed import (
    Training,
    make,
    random_states,
    set_random_states,
    train,
)
from amp_lessons.exercises.watching.tape import device_type
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
        reject("not_a_pair", f"two functions were expected, not {describe(value)}", _BOTH)
    return _function(save, "save_checkpoint", 6), _function(load, "load_checkpoint", 5)


_BOTH = (
    'pass both functions, without calling them: check("resume_training", (save_checkpoint, load_checkpoint))'
)


def _function(value: Any, name: str, arguments: int) -> _Function:
    if not callable(value):
        reject("not_a_function", f"{name} is {describe(value)}, not a function", _BOTH)
    return callable_with(value, name, *[None] * arguments).function


def _require_round_trip(save: _Function, load: _Function, scaling: bool) -> None:
    """Save a training, let it go on, and compare with one that goes on from the file.

    The run that went on saves again, to another file, and the first file is moved, without whatever was
    written beside it: what a function remembers instead of writing it down is something else by then.
    """
    device = device_type()
    running = make(seed=1, device=device, scaling=scaling)
    train(running, device, steps=4)
    wanted, random_wanted = running.state(), random_states()
    with tempfile.TemporaryDirectory() as folder:
        file, moved = Path(folder) / "first" / "checkpoint.pt", Path(folder) / "moved" / "checkpoint.pt"
        _require_saved(save, file, running, wanted)
        train(running, device, steps=2)
        later, random_later = running.state(), random_states()
        _require_saved(save, Path(folder) / "later" / "checkpoint.pt", running, later, _EPOCH + 1)
        left_behind = _moved_alone(file, moved)
        resumed = make(seed=2, device=device, scaling=scaling)
        own = resumed.state()
        epoch, random_found = _loaded(load, moved, resumed, scaling, left_behind)
    require_none(mistakes.from_memory(later, wanted, resumed))
    require_none(mistakes.lost(wanted, own, resumed))
    require_none(mistakes.wrong_epoch(epoch, _EPOCH))
    require_none(mistakes.lost_random(random_wanted, random_later, random_found))
    set_random_states(random_wanted)
    train(resumed, device, steps=2)
    require_none(mistakes.goes_on_otherwise(later, resumed))


def _require_saved(
    save: _Function, path: Path, running: Training, wanted: dict[str, Any], epoch: int = _EPOCH
) -> None:
    path.parent.mkdir()
    drawn = random_states()

    def save_and_look() -> list[Tensor]:
        save(path, *running.objects(), epoch)
        return random_states()

    drawn_after = run(save_and_look, about="in save_checkpoint")
    require_none(mistakes.not_written(path))
    require_none(mistakes.saving_changed(running.state(), wanted, drawn_after, drawn))


def _moved_alone(file: Path, where: Path) -> list[str]:
    """Move a file to another folder, remove its own, and return the names of what was left there."""
    where.parent.mkdir()
    file.rename(where)
    left_behind = sorted(each.name for each in file.parent.iterdir())
    shutil.rmtree(file.parent)
    return left_behind


def _loaded(
    load: _Function, path: Path, resumed: Training, scaling: bool, left_behind: list[str]
) -> tuple[Any, list[Tensor]]:
    """Return the epoch that ``load`` returns, and the random states that it leaves."""

    def load_and_look() -> tuple[Any, list[Tensor]]:
        return load(path, *resumed.objects()), random_states()

    outcome = outcome_of(load_and_look, part="load_checkpoint")
    if outcome.error is not None:
        raise Rejected(mistakes.load_raised(outcome, scaling, left_behind))
    epoch, random_found = outcome.value
    return epoch, random_found
