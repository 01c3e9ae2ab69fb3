"""What each rank does: train, watched, and say what was seen in a form that travels."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed, first
from amp_lessons.exercises.attempt import Rejected
from amp_lessons.exercises.training_loops.mistakes import exceptions, history, precision, scaling
from amp_lessons.exercises.training_loops.testbed import Problem, Run, run_loop
from amp_lessons.exercises.training_loops.window import Window, windows
from amp_lessons.parallel.collectives import Collective, CollectiveLog

_TRAINING = "training"


@dataclass(frozen=True)
class SeenWindow:
    """What one rank did between two updates.

    Weights and gradients are flat fp32 tensors. ``summed`` is the true gradient of the sum over this rank's
    samples, ``of_means`` that of the sum of its batches' means. ``by_scaler`` is whether ``scaler.step`` was
    called.
    """

    before: Tensor
    after: Tensor
    samples: int
    batches: int
    summed: Tensor
    of_means: Tensor
    scale: float
    overflowed: bool
    by_scaler: bool


@dataclass(frozen=True)
class SeenRun:
    """What one rank did on one problem; ``losses`` holds (loss, samples) of every batch, in order.

    ``given`` are the weights that it was given, flat; ``of_scaler`` what its scaler did wrong on its own;
    ``reductions`` are those from the first forward pass on, for what comes before is no gradient.
    """

    given: Tensor
    windows: tuple[SeenWindow, ...]
    of_scaler: Finding | None
    history: Any
    losses: tuple[tuple[float, int], ...]
    reductions: tuple[Collective, ...]
    parameters: int


def train(loop: Callable[..., Any], problems: tuple[tuple[Problem, ...], ...]) -> list[SeenRun]:
    """Train on this rank's part of each problem. Raises Rejected for what one rank alone can tell."""
    return [_train(loop, of_ranks[dist.get_rank()]) for of_ranks in problems]


def _train(loop: Callable[..., Any], problem: Problem) -> SeenRun:
    log = CollectiveLog()

    def logged(model: nn.Module, *args: Any, device_type: str, **options: Any) -> Any:
        hook = model.register_forward_pre_hook(lambda *call: setattr(log, "phase", _TRAINING))
        with log:
            value = loop(model, *args, **options)
        hook.remove()
        return value

    run = run_loop(logged, problem, ("accumulation_steps",))
    _require_trained(run)
    return SeenRun(
        given=run.start_weights,
        windows=tuple(map(_seen, windows(run))),
        of_scaler=first(_not_lowered_for_good(run)),
        history=run.outcome.value,
        losses=tuple((step.loss.value, _samples(run, step.batch)) for step in run.steps),
        reductions=tuple(each for each in log.calls if "reduce" in each.name and each.phase == _TRAINING),
        parameters=run.start_weights.numel(),
    )


def _require_trained(run: Run) -> None:
    if run.outcome.error is not None:
        raise Rejected(exceptions.explained(run))
    mistake = first(history.never_ran(run.outcome.value)) or first(precision.mistakes(run))
    mistake = mistake or first(_unscaled(run))
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


def _unscaled(run: Run) -> Iterator[Finding]:
    """Find a loss that went backward in fp16 as it is, or times the samples of its batch."""
    window = windows(run)[0]
    start = window.last.start_gradient
    if run.problem.dtype != torch.float16 or start is None:
        return
    if window.scale == 1.0 and 1.0 < start <= max(run.problem.batch_sizes):
        effect = scaling.vanished(window)
        yield catalogue.steps.loss_not_scaled(scaling.why_unscaled(run), effect, hint=scaling.SCALING_HINT)
    yield from scaling.not_scaled(window)


def _not_lowered_for_good(run: Run) -> Iterator[Finding]:
    """Find a scaler whose scale an overflow did not lower, or that was back at the old one later.

    Of a scale kept by hand the updates tell.
    """
    for window, later in itertools.pairwise(windows(run)):
        if window.overflowed and 1.0 < window.scale <= later.scale:
            yield scaling.why_no_backoff(window, later)
        yield from scaling.raised_otherwise(window, later)


def _samples(run: Run, batch: int | None) -> int:
    return 0 if batch is None else len(run.batches[batch][0])


def _seen(window: Window) -> SeenWindow:
    sizes = [_samples(window.run, step.batch) for step in window.steps]
    gradients = window.true_gradients
    return SeenWindow(
        before=window.before,
        after=window.after,
        samples=sum(sizes),
        batches=len(sizes),
        summed=torch.stack([size * each for size, each in zip(sizes, gradients, strict=True)]).sum(0),
        of_means=torch.stack(gradients).sum(0),
        scale=window.scale,
        overflowed=window.overflowed,
        by_scaler=bool(window.called("scaler.step")),
    )
