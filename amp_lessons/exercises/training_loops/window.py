"""What happened between two updates of the weights, and how it compares with what should have happened."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from amp_lessons.exercises.training_loops.testbed import Run, Step
from amp_lessons.exercises.watching.tape_there import Call, flat

_TOLERANCE = {torch.float16: 0.01, torch.bfloat16: 0.03}
# at a small but sufficient loss scale the smallest gradients of the tiny problem are subnormal
_TOLERANCE_NEAR_UNDERFLOW = 0.12


@dataclass(frozen=True)
class Window:
    """The batches between two updates of the weights, one of them unless gradients are accumulated.

    Weights and gradients are flat float32 tensors on the CPU, all parameters joined.
    """

    run: Run
    steps: list[Step]

    @property
    def planned_batches(self) -> int:
        """How many batches a full window has."""
        return self.run.problem.accumulation_steps

    @property
    def before(self) -> Tensor:
        """The weights before the window."""
        return self.steps[0].loss.weights

    @property
    def after(self) -> Tensor:
        """The weights after the window."""
        return self.steps[-1].weights_after

    @property
    def last(self) -> Step:
        """The handling of the last batch, where the step belongs."""
        return self.steps[-1]

    @property
    def calls(self) -> list[Call]:
        """All calls of scaler and optimizer in the window, in order."""
        return [call for step in self.steps for call in step.calls]

    def called(self, *names: str, directly: bool = False) -> list[Call]:
        """List the calls of these names; ``directly`` leaves out what ``scaler.step`` did itself."""
        return [call for step in self.steps for call in step.called(*names, directly=directly)]

    @property
    def applied(self) -> Tensor:
        """The gradient that the change of the weights amounts to."""
        return (self.before - self.after) / self.run.problem.learning_rate

    @cached_property
    def _truths(self) -> list[tuple[float, Tensor]]:
        return [self.run.truth(self.before, step.batch) for step in self.steps if step.batch is not None]

    @property
    def true_losses(self) -> list[float]:
        """The fp32 loss of each batch at the weights before the window."""
        return [loss for loss, _ in self._truths]

    @property
    def true_gradients(self) -> list[Tensor]:
        """The fp32 gradient of each batch at the weights before the window."""
        return [gradient for _, gradient in self._truths]

    def wanted(self, gradient: Tensor) -> Tensor:
        """Return the gradient to apply where the true one is ``gradient``: clipped, if the task says so."""
        max_norm = self.run.problem.max_norm
        return (
            gradient if max_norm is None else gradient * min(1.0, max_norm / (float(gradient.norm()) + 1e-6))
        )

    @cached_property
    def mean_gradient(self) -> Tensor:
        """The gradient of the mean loss of a full window."""
        return torch.stack(self.true_gradients).sum(0) / self.planned_batches

    @property
    def scale(self) -> float:
        """The scale of an enabled scaler in this window, 1 without one."""
        return next((call.scale for call in self.called("scale") if call.enabled), 1.0)

    @property
    def start_gradient(self) -> float:
        """By how much the gradients of this window were multiplied, beyond the mean over the window."""
        start = self.last.start_gradient
        return (1.0 if start is None else start) * self.planned_batches

    @property
    def accumulated(self) -> Tensor | None:
        """What backward left in ``.grad``, flat; None where the loop did not use ``.grad``."""
        for step in reversed(self.steps):
            if step.backwards_into_grad:
                found = step.backwards_into_grad[-1].gradients
                return flat(self.run.parameters, [found.get(i) for i in range(len(self.run.parameters))])
        return None

    @property
    def overflowed(self) -> bool:
        """Whether backward left inf or NaN."""
        gradients = self.accumulated
        return gradients is not None and not bool(gradients.isfinite().all())

    @property
    def overflow_was_hidden(self) -> bool:
        """Whether gradients of a loss that is not finite are finite: something has replaced inf and NaN."""
        spread = any(not step.loss_is_finite and step.backwards for step in self.steps)
        given = [call.gradients for call in self.called("unscale_", "scaler.step")]
        seen = any(gradients is not None and not gradients.isfinite().all() for gradients in given)
        return spread and self.accumulated is not None and not self.overflowed and not seen

    @property
    def skipped_backward_on_nonfinite_loss(self) -> bool:
        """Whether the loop saw a non-finite loss and went on to the next batch without a backward pass."""
        return any(not step.loss_is_finite and not step.backwards for step in self.steps)

    @property
    def stepped(self) -> bool:
        """Whether a step was asked for, of the scaler or of the optimizer."""
        return bool(self.called("scaler.step", "optimizer.step"))

    @property
    def cleared_after_nonfinite_loss(self) -> bool:
        """Whether gradients of earlier batches were thrown away when a loss was not finite."""
        return any(
            not step.loss_is_finite and step.called("zero_grad") and any(s.backwards for s in self.steps[:i])
            for i, step in enumerate(self.steps[:-1])
        )

    @property
    def poisoned(self) -> bool:
        """Whether a batch of this window was made to overflow."""
        bad = dict(self.run.problem.poisoned)
        return any(step.batch is None or step.batch in bad for step in self.steps)

    @property
    def moved_within(self) -> bool:
        """Whether the weights changed before the last batch of the window had its turn."""
        return any(step.moved for step in self.steps[:-1])

    @property
    def gradients_at_step(self) -> Tensor | None:
        """The gradients that the optimizer was given."""
        steps = self.called("optimizer.step")
        return steps[0].gradients if steps else None

    @property
    def given_rightly(self) -> bool:
        """Whether the optimizer was given the gradients that it should apply."""
        given, wanted = self.gradients_at_step, self.wanted(self.mean_gradient)
        return given is not None and bool((given - wanted).norm() <= 0.1 * wanted.norm())


def windows(run: Run) -> list[Window]:
    """Cut a run into the windows that the task asks for; the last of an epoch may be shorter."""
    per_epoch, length = len(run.batches), run.problem.accumulation_steps
    return [
        Window(run, run.steps[first : min(first + length, start + per_epoch)])
        for start in range(0, len(run.steps), per_epoch)
        for first in range(start, min(start + per_epoch, len(run.steps)), length)
    ]


def close(window: Window, wanted: Tensor) -> bool:
    """Whether the gradient that was applied is ``wanted``, up to the rounding of the dtype."""
    return bool((window.applied - wanted).norm() <= tolerance(window) * wanted.norm())


def tolerance(window: Window) -> float:
    """By which share of its norm a right gradient may be off: that is how far the dtype rounds."""
    if window.run.problem.loss_weight < 2.0**-15:
        return _TOLERANCE_NEAR_UNDERFLOW
    return _TOLERANCE[window.run.problem.dtype]


def factor_of(window: Window) -> float:
    """By which factor the applied gradient differs from the wanted one; NaN if it points elsewhere."""
    wanted, applied = window.wanted(window.mean_gradient), window.applied
    factor = float(applied @ wanted / (wanted @ wanted))
    off_direction = float((applied - factor * wanted).norm() / max(abs(factor) * float(wanted.norm()), 1e-30))
    return factor if off_direction < 0.15 else math.nan


def is_near(factor: float, expected: float) -> bool:
    """Whether a factor is the expected one, within 10 %."""
    return math.isclose(factor, expected, rel_tol=0.1)


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two flat gradients are equal, NaN where NaN is."""
    return bool(torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)))
