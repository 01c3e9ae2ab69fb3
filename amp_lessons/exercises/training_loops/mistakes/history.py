"""What a training loop returns: one mean loss per epoch, as plain floats."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, failed, note
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.training_loops.testbed import Run, Step
from amp_lessons.text.describing import describe

_CLOSE = 2e-3  # a loss rounded to four digits still counts
_ADVICE = "collect loss.item() for every batch and return one mean per epoch, as a list of floats"


def never_ran(returned: Any) -> Iterator[Finding]:
    """Recognise a generator or coroutine function, of which calling runs nothing."""
    if inspect.isgenerator(returned) or inspect.iscoroutine(returned):
        kind = type(returned).__name__
        yield _wrong_type(f"a {kind}: the function contains yield or async, so that calling it ran nothing")


def mistakes(run: Run) -> Iterator[Finding]:
    """Look for what is wrong with the returned history: its type, its length, its values."""
    returned = run.outcome.value
    yield from _wrong_types(returned)
    values = [float(value) for value in returned]
    yield from _wrong_length(run, values)
    yield from _wrong_values(run, values)


def remarks(run: Run) -> Iterator[Finding]:
    """Remark on a right history that is no list."""
    if not isinstance(run.outcome.value, list):
        kind = type(run.outcome.value).__name__
        yield note("history_not_a_list", f"a list of floats was asked for, this is a {kind}", _ADVICE)


def _wrong_types(returned: Any) -> Iterator[Finding]:
    if returned is None:
        yield failed("returned_none", "the function returned None: is there a return statement?", _ADVICE)
    if not isinstance(returned, (list, tuple, Tensor, np.ndarray)):
        yield _wrong_type(describe(returned))
    tensors = [value for value in returned if isinstance(value, Tensor)]
    if tensors and not isinstance(returned, Tensor):
        if any(value.requires_grad for value in tensors):
            why, advice = "each of them keeps the whole graph of its batch in memory", _ADVICE
        else:
            why, advice = (
                "floats were asked for",
                "convert at the end: (total / n).item(), one float per epoch",
            )
        yield failed("history_of_tensors", f"the history contains tensors: {why}", advice)
    if isinstance(returned, (Tensor, np.ndarray)) and (returned.ndim != 1 or _keeps_graph(returned)):
        yield _wrong_type(describe(returned))
    for value in returned:
        if not _is_number(value):
            yield _wrong_type(f"one with {describe(value)}")


def _wrong_type(seen: str) -> Finding:
    return common_findings.wrong_return_type("a list of floats was", seen, _ADVICE)


def _keeps_graph(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _is_number(value: Any) -> bool:
    return isinstance(value, (numbers.Real, np.number, Tensor)) and not isinstance(value, bool)


def _wrong_length(run: Run, values: Sequence[float]) -> Iterator[Finding]:
    epochs = run.problem.epochs
    if len(values) == epochs:
        return
    if len(values) == len(run.steps):
        yield failed(
            "history_per_batch",
            f"the history has one entry per batch ({len(values)}), not one per epoch",
            _ADVICE,
        )
    yield failed(
        "history_length", f"the history has {len(values)} entries after training for {epochs} epochs", _ADVICE
    )


def _wrong_values(run: Run, values: Sequence[float]) -> Iterator[Finding]:
    losses, sizes = _epoch_losses(run)
    if losses is None:
        return
    means = _Means(torch.tensor(values, dtype=torch.float64), losses, sizes, run.problem.accumulation_steps)
    if _near(means.seen, means.by_batch) or _near(means.seen, means.by_sample):
        return
    yield from _scaled(run, means)
    yield from _divided(run, means)
    yield from _norms(run, means)
    yield _not_mean(means)


def _epoch_losses(run: Run) -> tuple[Tensor | None, Tensor]:
    """Return the losses computed, (epochs, batches), None if some are missing, and the batch sizes."""
    sizes = torch.tensor([len(x) for x, _ in run.batches], dtype=torch.float64)
    losses = [step.loss.value for step in run.steps]
    if len(losses) != run.problem.epochs * len(sizes) or not all(math.isfinite(loss) for loss in losses):
        return None, sizes
    return torch.tensor(losses, dtype=torch.float64).reshape(run.problem.epochs, -1), sizes


@dataclass(frozen=True)
class _Means:
    """What the history says, (epochs,), beside the losses computed, (epochs, batches), and batch sizes."""

    seen: Tensor
    losses: Tensor
    sizes: Tensor
    accumulation_steps: int

    @property
    def by_batch(self) -> Tensor:
        """The mean over the batches of each epoch."""
        return self.losses.mean(1)

    @property
    def by_sample(self) -> Tensor:
        """The mean over the samples of each epoch; the last batch is smaller."""
        return (self.losses * self.sizes).sum(1) / self.sizes.sum()

    @property
    def first(self) -> str:
        """The first epoch's entry beside the right one."""
        return _instead(self.seen[0], self.by_batch[0])


def _instead(seen: Tensor, right: Tensor) -> str:
    return f"{float(seen):.5g} instead of {float(right):.5g}"


def _near(seen: Tensor, expected: Tensor) -> bool:
    return bool(((seen - expected).abs() <= _CLOSE * expected.abs()).all())


def _scaled(run: Run, means: _Means) -> Iterator[Finding]:
    first, right = float(means.seen[0]), float(means.by_batch[0])
    scales = [step.start_gradient or 1.0 for step in run.steps]
    if min(scales) > 8 and 0.4 * min(scales) * right < first < 2 * max(scales) * right:
        yield failed(
            "history_scaled",
            f"the history holds the scaled loss: {means.first}; it is about {first / right:.5g} times too "
            "large, and jumps whenever the scale changes",
            "log the loss as loss_fn returned it: not scaler.scale(loss).item(), and after loss = "
            "scaler.scale(loss) not loss.item() either, for the name means the scaled loss from there on",
        )


def _divided(run: Run, means: _Means) -> Iterator[Finding]:
    if _near(means.seen * run.problem.accumulation_steps, means.by_batch):
        yield failed(
            "history_divided",
            f"the history holds losses divided by accumulation_steps: {means.first}",
            "log the loss before dividing it, or multiply it back",
        )


def _norms(run: Run, means: _Means) -> Iterator[Finding]:
    """Find the norm of the gradient in place of the loss: that is what ``clip_grad_norm_`` returns."""
    norms = torch.tensor([_norm(run, step) for step in run.steps], dtype=torch.float64)
    by_epoch = norms.reshape(run.problem.epochs, -1).mean(1)
    finite = means.seen.isfinite()
    if finite.any() and bool(((means.seen - by_epoch).abs() <= 0.05 * by_epoch)[finite].all()):
        seen, right = means.seen[finite][0], means.by_batch[finite][0]
        overflowed = "" if finite.all() else ", and inf or NaN after an overflow"
        yield failed(
            "history_not_mean",
            "the history holds the mean norm of the gradients, which clip_grad_norm_ returns, instead of the "
            f"mean loss: {_instead(seen, right)}{overflowed}",
            _ADVICE,
        )


def _norm(run: Run, step: Step) -> float:
    """Return the norm of the true gradient of one batch, NaN where the batch is not known."""
    return math.nan if step.batch is None else float(run.truth(step.loss.weights, step.batch)[1].norm())


def _not_mean(means: _Means) -> Finding:
    what, numbers = next(_other_quantities(means), ("something else", means.first))
    return failed(
        "history_not_mean",
        f"the history is not the mean loss of each epoch but {what}: {numbers}",
        _ADVICE,
    )


def _other_quantities(means: _Means) -> Iterator[tuple[str, str]]:
    """List what the history may be, with the numbers that show it."""
    seen, losses, mean = means.seen, means.losses, means.by_batch
    steps = means.accumulation_steps
    totals = {
        "the sum of the batch losses": losses.sum(1),
        "the sum of the losses of all samples": (losses * means.sizes).sum(1),
        "the loss of the last batch": losses[:, -1],
        "the loss of the first batch": losses[:, 0],
    }
    if steps > 1 and losses.shape[1] % steps == 0:
        totals["the sum of the losses at which a window ended"] = losses[:, steps - 1 :: steps].sum(1)
    for what, total in totals.items():
        divisor = float(total[0] / seen[0])
        if seen[0] != 0 and _near(seen * divisor, total):
            divided = not math.isclose(divisor, 1.0, rel_tol=_CLOSE)
            yield f"{what} divided by {divisor:.4g}" if divided else what, means.first
    if any(_near(seen, torch.round(mean, decimals=digits)) for digits in (1, 2)):
        yield "that mean rounded to one or two digits", means.first
    if _near(seen[:1], mean[:1]) or _near(seen[:1], means.by_sample[:1]):
        yield "a total that is not reset at the start of each epoch", _instead(seen[-1], mean[-1])
