"""A gradient penalty under mixed precision: it is meant for the true gradient, not for the scaled one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed, first, passed
from amp_lessons.exercises.attempt import Attempt, require_none
from amp_lessons.exercises.training_loops.mistakes import (
    coverage,
    exceptions,
    history,
    precision,
    scaling,
    steps,
)
from amp_lessons.exercises.training_loops.testbed import Classifier, Problem, Run, run_loop
from amp_lessons.exercises.training_loops.window import Window, windows

_PENALTY = 0.1
_PROBLEMS = (
    Problem(seed=1, dtype=torch.float16),
    Problem(seed=0, dtype=torch.float16, loss_weight=2.0**-22),  # no unscaled gradient survives
    Problem(seed=2, dtype=torch.bfloat16),
    Problem(seed=3, dtype=torch.float16, loss_weight=2.0**-2, poisoned=((1, 1e6), (3, 8e3))),
)


def check(attempt: Attempt) -> Iterator[Finding]:
    """Let the loop train on several problems, and compare each update with that of loss and penalty."""
    loop = attempt.function(*[None] * 5, penalty=None, device_type=None, dtype=None).function
    for problem in _PROBLEMS:
        run = run_loop(lambda *args, **kwargs: loop(*args, penalty=_PENALTY, **kwargs), problem)
        require_none(_mistakes(run))
    yield passed("precision", "forward and loss ran under autocast in the dtype asked for")
    yield passed("penalty", "every update is that of the loss plus the penalty on its true gradient")
    yield passed("overflow", "batches that overflowed were skipped, and the scale was lowered")
    yield passed("history", "the history holds the mean loss of each epoch, without the penalty")


def _mistakes(run: Run) -> Iterator[Finding]:
    """Look for what is wrong, what may be the cause of the rest first."""
    if run.outcome.error is not None:
        yield from _unscaled_nothing(run)
        yield exceptions.explained(run)
    yield from history.never_ran(run.outcome.value)
    yield from precision.mistakes(run)
    yield from chain(coverage.inputs_changed(run), coverage.batches(run), coverage.another_optimizer(run))
    everything = windows(run)
    yield from scaling.kept_from_another_call(run)
    yield from scaling.not_scaled(everything[0])
    for window in everything:
        yield from _in_window(window)
    yield from scaling.scale_after_overflow(everything)
    if not run.problem.poisoned:
        yield from scaling.never_stepped(everything)
        if run.problem.loss_weight > 2.0**-15:  # below, a mean in the history rounds to zero
            yield from history.mistakes(run)


def _unscaled_nothing(run: Run) -> Iterator[Finding]:
    """Find ``unscale_`` before backward had left anything in ``.grad``."""
    calls = run.steps[-1].called("unscale_", directly=True) if run.steps else []
    if any(call.gradients is not None and not call.gradients.any() for call in calls):
        yield catalogue.steps.unscale_without_gradients(
            "torch.autograd.grad returns its gradients instead of putting them there",
            "divide what torch.autograd.grad returned by scaler.get_scale() yourself",
        )


def _in_window(window: Window) -> Iterator[Finding]:
    if window.overflowed or window.overflow_was_hidden or window.skipped_backward_on_nonfinite_loss:
        yield from _vanished(window)
        yield from scaling.overflow(window)
    elif not window.poisoned:
        yield from _update(window)


def _vanished(window: Window) -> Iterator[Finding]:
    """Find a penalty's gradient that was taken of the unscaled loss: all zeros have no norm to derive."""
    looks = [each for each in window.last.backwards if not each.gradients]
    tiny = window.run.problem.loss_weight < 2.0**-15
    if tiny and looks and looks[0].start_gradient <= 1:
        yield catalogue.steps.loss_not_scaled(
            "torch.autograd.grad went through the loss as it is",
            "the gradients that are penalised vanish in fp16, and zeros have no norm to derive",
            hint="take these gradients of the scaled loss, and bring them to their true size afterwards",
        )


def _update(window: Window) -> Iterator[Finding]:
    update = Update(window, _PENALTY)
    if update.is_right:
        return
    yield from _vanished(window)
    if first(steps.no_step(window)) is not None:
        yield from steps.no_step(window)
    yield from steps.stepped_twice(window)
    yield from _weight(window, update.weight)
    yield from steps.direct_step(window)
    yield from steps.gradients_changed(window)
    yield catalogue.steps.wrong_update(
        "the update",
        "it is neither that of the loss nor that of loss and penalty",
        "scale for torch.autograd.grad, divide by the scale, then scale the sum of loss and penalty",
    )


def _weight(window: Window, weight: float) -> Iterator[Finding]:
    """Report the mistake behind a wrong weight of the penalty in the update."""
    if weight > math.sqrt(window.scale) > 1:  # the scale, unless the penalty was made smaller against it
        yield catalogue.steps.penalty_on_scaled_gradients(f"{weight:.5g} times")
    if abs(weight) < 0.05:
        yield failed(
            "penalty_missing",
            "the update is that of the loss alone: the penalty has no part in it, or next to none",
            "torch.autograd.grad needs create_graph=True for its result to have a gradient itself; and the "
            "result is divided once, by scaler.get_scale(), which is 1 in bf16",
        )
    yield from _divided_by_the_first_scale(window, weight)
    if not math.isnan(weight):
        yield catalogue.steps.wrong_update(
            "the update",
            f"the penalty counts {weight:.3g} times",
            "add penalty times the norm of the true gradient over all parameters, once",
        )


def _divided_by_the_first_scale(window: Window, weight: float) -> Iterator[Finding]:
    """Find gradients that are divided by a constant although the scale has moved since."""
    first_scale = windows(window.run)[0].scale
    if window.scale != first_scale and math.isclose(weight, window.scale / first_scale, rel_tol=0.1):
        yield catalogue.steps.wrong_update(
            "the update",
            f"the penalty counts {weight:.3g} times, as if its gradients had been divided by "
            f"{first_scale:.0f}, the scale of the first batch; the scale is {window.scale:.0f} by now",
            "divide by what scaler.get_scale() returns in the same iteration",
        )


# --- the gradient of a loss with a penalty, in fp32, beside what a loop applied


@dataclass(frozen=True)
class Update:
    """What one batch's update was, and what it should be; all gradients are flat float32 tensors."""

    window: Window
    penalty: float

    @cached_property
    def parts(self) -> tuple[Tensor, Tensor]:
        """The gradient of the loss, and that of ``penalty`` times the norm of it."""
        run, batch = self.window.run, self.window.last.batch
        assert batch is not None
        model = Classifier()
        nn.utils.vector_to_parameters(self.window.before.clone(), model.parameters())
        inputs, targets = (each.float().cpu() for each in run.batches[batch])
        loss = F.cross_entropy(model(inputs), targets.long()) * run.problem.loss_weight
        parameters = list(model.parameters())
        gradients = _flat(torch.autograd.grad(loss, parameters, create_graph=True))
        of_norm = _flat(torch.autograd.grad(self.penalty * gradients.norm(), parameters))
        return gradients.detach(), of_norm

    @property
    def is_right(self) -> bool:
        """Whether the update is that of loss and penalty: fp16 rounds second derivatives twice."""
        wanted = sum(self.parts, torch.zeros(()))
        return bool((self.window.applied - wanted).norm() <= 0.05 * wanted.norm())

    @property
    def weight(self) -> float:
        """How often the penalty counts in the update, 1 if it is right; NaN if the rest is something else."""
        of_loss, of_norm = self.parts
        rest = self.window.applied - of_loss
        weight = float(rest @ of_norm / (of_norm @ of_norm))
        unexplained = (rest - weight * of_norm).norm()
        return weight if bool(unexplained <= 0.2 * self.window.applied.norm()) else float("nan")


def _flat(gradients: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([gradient.reshape(-1) for gradient in gradients])
