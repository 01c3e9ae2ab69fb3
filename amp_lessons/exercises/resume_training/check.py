"""Checkpoints that lose nothing: everything that decides how training goes on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.audit.watching.device import device_type
from amp_lessons.exercises.containment import sandbox
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.report.results import Verdict
from amp_lessons.exercises.resume_training import mistakes
from amp_lessons.exercises.resume_training.testbed import Training, equal, make, random_states, train
from amp_lessons.text.describing import describe

_EPOCH = 7


def _functions(attempt: Any) -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    if isinstance(attempt, (tuple, list)) and len(attempt) == 2:
        return attempt[0], attempt[1]
    if isinstance(attempt, dict) and {"save_checkpoint", "load_checkpoint"} <= set(attempt):
        return attempt["save_checkpoint"], attempt["load_checkpoint"]
    if hasattr(attempt, "save_checkpoint") and hasattr(attempt, "load_checkpoint"):
        return attempt.save_checkpoint, attempt.load_checkpoint
    return None


def check(attempt: Any) -> Verdict:
    attempt = attempt.value
    functions = _functions(attempt)
    if functions is None:
        what = describe(attempt)
        return Verdict((failed("not_a_pair", f"two functions were expected, not {what}", _PASS_BOTH),))
    save, load = functions
    finding = common_findings.uncallable(save, "save_checkpoint", *[None] * 6) or common_findings.uncallable(
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
    finding = common_findings.unwritten_part(outcome, "load_checkpoint") or common_findings.misconduct(
        outcome
    )
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
    finding = common_findings.not_attempted(outcome) or common_findings.misconduct(outcome)
    if finding is not None:
        return finding
    if outcome.error is not None:
        return common_findings.raised(outcome, "in save_checkpoint")
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
