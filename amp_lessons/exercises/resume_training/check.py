"""Checkpoints that lose nothing: everything that decides how training goes on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from amp_lessons.audit.watching.device import device_type
from amp_lessons.exercises.containment import sandbox
from amp_lessons.exercises.report import conduct
from amp_lessons.exercises.report.results import Exercise, Finding, Verdict, failed, passed
from amp_lessons.exercises.resume_training import mistakes
from amp_lessons.exercises.resume_training.testbed import Training, equal, make, random_states, train
from amp_lessons.exercises.sources import source_of


def save_checkpoint(path, model, optimizer, scheduler, scaler, epoch):  # type: ignore[no-untyped-def]
    """Write everything that training needs to go on after ``epoch`` finished epochs to one file."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "scaler": scaler.state_dict(),
        "epoch": epoch,
        "rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }
    torch.save(state, path)


def load_checkpoint(path, model, optimizer, scheduler, scaler):  # type: ignore[no-untyped-def]
    """Put everything back, in place, and return the number of finished epochs."""
    state = torch.load(path, map_location="cpu")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    scaler.load_state_dict(state["scaler"])
    torch.set_rng_state(state["rng"])
    if state["cuda_rng"]:
        torch.cuda.set_rng_state_all(state["cuda_rng"])
    return state["epoch"]


_EPOCH = 7


def _functions(attempt: Any) -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    if isinstance(attempt, (tuple, list)) and len(attempt) == 2:
        return attempt[0], attempt[1]
    if isinstance(attempt, dict) and {"save_checkpoint", "load_checkpoint"} <= set(attempt):
        return attempt["save_checkpoint"], attempt["load_checkpoint"]
    if hasattr(attempt, "save_checkpoint") and hasattr(attempt, "load_checkpoint"):
        return attempt.save_checkpoint, attempt.load_checkpoint
    return None


def _examine(attempt: Any) -> Verdict:
    functions = _functions(attempt)
    if functions is None:
        what = conduct.describe(attempt)
        return Verdict((failed("not_a_pair", f"two functions were expected, not {what}", _PASS_BOTH),))
    save, load = functions
    finding = conduct.uncallable(save, "save_checkpoint", *[None] * 6) or conduct.uncallable(
        load, "load_checkpoint", *[None] * 5
    )
    for scaling in (True, False):
        finding = finding or _round_trip(save, load, scaling)
    return Verdict(_WHAT_HOLDS if finding is None else (finding,))


_PASS_BOTH = 'check("resume_training", (save_checkpoint, load_checkpoint))'


def _round_trip(save: Callable[..., Any], load: Callable[..., Any], scaling: bool) -> Finding | None:
    device = device_type()
    running = make(seed=1, device=device, scaling=scaling)
    train(running, device, steps=4)
    wanted, random_wanted = running.state(), random_states()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        finding = _saved(save, path, running, wanted)
        if finding is not None:
            return finding
        resumed = make(seed=2, device=device, scaling=scaling)

        def load_and_look() -> tuple[Any, list[Tensor]]:
            return load(path, *resumed.objects()), random_states()

        outcome = sandbox.call(load_and_look)
    finding = conduct.unwritten_part(outcome, "load_checkpoint") or conduct.misconduct(outcome)
    if finding is not None:
        return finding
    if outcome.error is not None:
        return mistakes.load_raised(outcome, scaling)
    epoch, random_found = outcome.value
    return (
        mistakes.lost(wanted, resumed)
        or mistakes.wrong_epoch(epoch, _EPOCH)
        or mistakes.lost_random(random_wanted, random_found)
    )


def _saved(save: Callable[..., Any], path: Path, running: Training, wanted: dict[str, Any]) -> Finding | None:
    drawn = random_states()

    def save_and_look() -> list[Tensor]:
        save(path, *running.objects(), _EPOCH)
        return random_states()

    outcome = sandbox.call(save_and_look)
    finding = conduct.not_attempted(outcome) or conduct.misconduct(outcome)
    if finding is not None:
        return finding
    if outcome.error is not None:
        return conduct.raised(outcome, "in save_checkpoint")
    if not any(path.parent.iterdir()):
        return failed("nothing_saved", "save_checkpoint wrote no file", "torch.save(state, path)")
    if not equal(running.state(), wanted) or not equal(random_states(), drawn):
        return failed(
            "saving_changes_training",
            "after save_checkpoint the objects of the running training were different (model.half() "
            "converts in place, for one)",
            "convert copies, not the model: {name: tensor.half() for name, tensor in "
            "model.state_dict().items()}; or do not convert",
        )
    return None


_WHAT_HOLDS = (
    passed("model", "weights and buffers come back exactly"),
    passed("optimizer", "so do the optimizer's state and learning rate, and the scheduler's position"),
    passed(
        "scaler", "so do the scaler's scale and its count of clean steps; a disabled scaler works as well"
    ),
    passed("position", "the epoch and PyTorch's random numbers go on where they stopped"),
)

EXERCISE = Exercise(
    id="resume_training",
    title="Resume training and lose nothing",
    lesson="04",
    difficulty=2,
    minutes=15,
    names=("save_checkpoint", "load_checkpoint"),
    task=(
        "Write `save_checkpoint` and `load_checkpoint` so that a training run that was stopped goes on "
        "exactly as if it had not been: model, optimizer, scheduler, scaler (it may be disabled), the "
        "number of finished epochs and PyTorch's random state. `load_checkpoint` changes the objects it "
        "is given in place and returns the number of finished epochs."
    ),
    stub='''def save_checkpoint(path, model, optimizer, scheduler, scaler, epoch):
    """Write everything that training needs to go on after ``epoch`` finished epochs to the file ``path``."""
    raise NotImplementedError


def load_checkpoint(path, model, optimizer, scheduler, scaler):
    """Put everything back, in place, and return the number of finished epochs."""
    raise NotImplementedError
''',
    hints=(
        "Make a list of everything that changes while training goes on. Dropout draws random numbers: "
        "where is their state?",
        "Model, optimizer, scheduler and scaler all have `state_dict()` and `load_state_dict()`. Random "
        "numbers have `torch.get_rng_state()` and `torch.set_rng_state()`.",
        "One dict with the four state dicts, the epoch and the random state, written by `torch.save` "
        "and read by `torch.load`. On a GPU also `torch.cuda.get_rng_state_all()` and `set_rng_state_all`.",
    ),
    explanation=(
        "The scaler's state is small and easily forgotten: without it a resumed run starts at 65536 "
        "again and skips steps until the scale has fallen. Save it after `update()`, when it holds "
        "nothing half done. State dicts instead of whole objects keep the file readable by "
        "`torch.load`, which refuses arbitrary pickled objects by default."
    ),
    answer=(save_checkpoint, load_checkpoint),
    answer_source=source_of(save_checkpoint, load_checkpoint),
    examine=_examine,
)
