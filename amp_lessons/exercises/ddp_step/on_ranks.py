"""What each rank does: train, watched, and say what was seen in a form that travels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from amp_lessons.audit.findings import failed, first
from amp_lessons.exercises.attempt import Rejected
from amp_lessons.exercises.training_loops.mistakes import exceptions, history, precision
from amp_lessons.exercises.training_loops.testbed import Problem, Run, run_loop
from amp_lessons.exercises.training_loops.window import Window, windows
from amp_lessons.parallel.collectives import Collective, CollectiveLog


@dataclass(frozen=True)
class SeenWindow:
    """What one rank did between two updates.

    Weights and gradients are flat fp32 tensors. ``summed`` is the true gradient of the sum over this rank's
    samples, ``of_means`` that of the sum of its batches' means.
    """

    before: Tensor
    after: Tensor
    samples: int
    batches: int
    summed: Tensor
    of_means: Tensor
    scale: float
    start_gradient: float
    overflowed: bool


@dataclass(frozen=True)
class SeenRun:
    """What one rank did on one problem; ``losses`` holds (loss, samples) of every batch, in order."""

    windows: tuple[SeenWindow, ...]
    history: Any
    losses: tuple[tuple[float, int], ...]
    reductions: tuple[Collective, ...]
    parameters: int


def train(loop: Callable[..., Any], problems: tuple[tuple[Problem, ...], ...]) -> list[SeenRun]:
    """Train on this rank's part of each problem. Raises Rejected for what one rank alone can tell."""
    return [_train(loop, of_ranks[dist.get_rank()]) for of_ranks in problems]


def _train(loop: Callable[..., Any], problem: Problem) -> SeenRun:
    log = CollectiveLog()

    def logged(*args: Any, device_type: str, **options: Any) -> Any:
        with log:
            return loop(*args, **options)

    run = run_loop(logged, problem, ("accumulation_steps",))
    _require_trained(run)
    return SeenRun(
        windows=tuple(map(_seen, windows(run))),
        history=run.outcome.value,
        losses=tuple((step.loss.value, _samples(run, step.batch)) for step in run.steps),
        reductions=tuple(replace(call, phase="") for call in log.calls if "reduce" in call.name),
        parameters=run.start_weights.numel(),
    )


def _require_trained(run: Run) -> None:
    if run.outcome.error is not None:
        raise Rejected(exceptions.explained(run))
    mistake = first(history.never_ran(run.outcome.value)) or first(precision.mistakes(run))
    if mistake is not None:
        raise Rejected(mistake)
    wanted = list(range(len(run.batches))) * run.problem.epochs
    if [step.batch for step in run.steps] != wanted:
        raise Rejected(
            failed(
                "other_batches",
                f"a rank computed {len(run.steps)} losses in {run.problem.epochs} epochs of "
                f"{len(run.batches)} batches, or took the batches in another order than its loader's",
                "go through the loader once per epoch, on every rank; the last window may be shorter",
            )
        )


def _samples(run: Run, batch: int | None) -> int:
    return 0 if batch is None else len(run.batches[batch][0])


def _seen(window: Window) -> SeenWindow:
    sizes = [_samples(window.run, step.batch) for step in window.steps]
    gradients = window.true_gradients
    start = window.steps[-1].start_gradient
    return SeenWindow(
        before=window.before,
        after=window.after,
        samples=sum(sizes),
        batches=len(sizes),
        summed=torch.stack([size * each for size, each in zip(sizes, gradients, strict=True)]).sum(0),
        of_means=torch.stack(gradients).sum(0),
        scale=window.scale,
        start_gradient=1.0 if start is None else start,
        overflowed=window.overflowed,
    )
