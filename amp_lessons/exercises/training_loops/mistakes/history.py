"""What a training loop returns: one mean loss per epoch, as plain floats."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, failed, note
from amp_lessons.exercises.training_loops.testbed import Run
from amp_lessons.text.describing import describe

_CLOSE = 2e-3  # a loss rounded to four digits still counts
_ADVICE = "collect loss.item() for every batch and return one mean per epoch, as a list of floats"


def mistake(run: Run) -> Finding | None:
    """Return what is wrong with the returned history, or a note on its type, or None."""
    returned = run.outcome.value
    finding = _wrong_type(returned)
    if finding is not None:
        return finding
    values = [float(value) for value in returned]
    finding = _wrong_length(run, values) or _wrong_values(run, values)
    if finding is None and not isinstance(returned, list):
        return note(
            "history_not_a_list",
            f"a list of floats was asked for, this is a {type(returned).__name__}",
            _ADVICE,
        )
    return finding


def never_ran(returned: Any) -> Finding | None:
    """Recognise a generator or coroutine function, of which calling runs nothing."""
    if not (inspect.isgenerator(returned) or inspect.iscoroutine(returned)):
        return None
    return failed(
        "wrong_return_type",
        "the function contains yield or async: calling it ran nothing and returned a "
        f"{type(returned).__name__}",
        _ADVICE,
    )


def _wrong_type(returned: Any) -> Finding | None:
    if returned is None:
        return failed("returned_none", "the function returned None: is there a return statement?", _ADVICE)
    if not isinstance(returned, (list, tuple, Tensor, np.ndarray)):
        return failed("wrong_return_type", f"the function returned {describe(returned)}", _ADVICE)
    tensors = [value for value in returned if isinstance(value, Tensor)]
    if tensors and not isinstance(returned, Tensor):
        alive = any(value.requires_grad for value in tensors)
        why = (
            "each of them keeps the whole graph of its batch in memory" if alive else "floats were asked for"
        )
        return failed("history_of_tensors", f"the history contains tensors: {why}", _ADVICE)
    if isinstance(returned, (Tensor, np.ndarray)) and (returned.ndim != 1 or _keeps_graph(returned)):
        return failed("wrong_return_type", f"the function returned {describe(returned)}", _ADVICE)
    wrong = [value for value in returned if not _is_number(value)]
    if wrong:
        return failed("wrong_return_type", f"the history contains {describe(wrong[0])}", _ADVICE)
    return None


def _keeps_graph(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _is_number(value: Any) -> bool:
    return isinstance(value, (numbers.Real, np.number, Tensor)) and not isinstance(value, bool)


def _wrong_length(run: Run, values: Sequence[float]) -> Finding | None:
    epochs = run.problem.epochs
    if len(values) == epochs:
        return None
    if len(values) == len(run.steps):
        return failed(
            "history_per_batch",
            f"the history has one entry per batch ({len(values)}), not one per epoch",
            _ADVICE,
        )
    return failed(
        "history_length", f"the history has {len(values)} entries after training for {epochs} epochs", _ADVICE
    )


def _wrong_values(run: Run, values: Sequence[float]) -> Finding | None:
    losses, sizes = epoch_losses(run)
    if losses is None:
        return None
    mean, by_sample = losses.mean(1), (losses * sizes).sum(1) / sizes.sum()
    seen = torch.tensor(values, dtype=torch.float64)
    if _near(seen, mean) or _near(seen, by_sample):
        return None
    return _explained(run, seen, losses, sizes)


def epoch_losses(run: Run) -> tuple[Tensor | None, Tensor]:
    """Return the losses computed, (epochs, batches), None if some are missing, and the batch sizes."""
    sizes = torch.tensor([len(x) for x, _ in run.batches], dtype=torch.float64)
    losses = [step.loss.value for step in run.steps]
    if len(losses) != run.problem.epochs * len(sizes) or not all(math.isfinite(loss) for loss in losses):
        return None, sizes
    return torch.tensor(losses, dtype=torch.float64).reshape(run.problem.epochs, -1), sizes


def _near(seen: Tensor, expected: Tensor) -> bool:
    return bool(((seen - expected).abs() <= _CLOSE * expected.abs()).all())


def _explained(run: Run, seen: Tensor, losses: Tensor, sizes: Tensor) -> Finding:
    mean, by_sample = losses.mean(1), (losses * sizes).sum(1) / sizes.sum()
    first, right = float(seen[0]), float(mean[0])
    smallest_scale = min(step.start_gradient or 1.0 for step in run.steps)
    if smallest_scale > 8 and first > 0.4 * smallest_scale * right:
        return failed(
            "history_scaled",
            f"the history holds the scaled loss: {first:.5g} instead of {right:.5g}; it is about "
            f"{first / right:.5g} times too large, and jumps whenever the scale changes",
            "log loss.item(), not scaler.scale(loss).item()",
        )
    if _near(seen * run.problem.accumulation_steps, mean):
        return failed(
            "history_divided",
            f"the history holds losses divided by accumulation_steps: {first:.5g} instead of {right:.5g}",
            "log the loss before dividing it, or multiply it back",
        )
    for total, what in (
        (losses.sum(1), "the sum of the batch losses"),
        ((losses * sizes).sum(1), "the sum of the losses of all samples"),
    ):
        divisor = total[0] / seen[0]
        if seen[0] != 0 and _near(seen * divisor, total):
            by = "" if math.isclose(divisor, 1.0, rel_tol=_CLOSE) else f" divided by {float(divisor):.4g}"
            return _not_mean(what + by, first, right)
    if _near(seen, torch.round(mean, decimals=2)) or _near(seen, torch.round(mean, decimals=1)):
        return _not_mean("that mean rounded to one or two digits", first, right)
    if _near(seen, losses[:, -1]):
        return _not_mean("the loss of the last batch", first, right)
    if _near(seen, losses[:, 0]):
        return _not_mean("the loss of the first batch", first, right)
    if _near(seen[:1], mean[:1]) or _near(seen[:1], by_sample[:1]):
        return _not_mean(
            "a total that is not reset at the start of each epoch", float(seen[-1]), float(mean[-1])
        )
    return _not_mean("something else", first, right)


def _not_mean(what: str, seen: float, right: float) -> Finding:
    return failed(
        "history_not_mean",
        f"the history is not the mean loss of each epoch but {what}: {seen:.5g} instead of {right:.5g}",
        _ADVICE,
    )
