"""Turn calls of scalers, optimizers and autograd into events, and keep what the next event needs to know.

A spy must never become the training's own exception, never change a number and never make a device wait. So
what goes wrong in here is kept as one of the ``troubles``, nothing is written to anybody's tensors, and
numbers that lie on a device are kept there until a sampled step waits for it anyway.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from amp_lessons.audit.recorder import events
from amp_lessons.audit.recorder.autograd import AutocastCalls, AutogradCalls
from amp_lessons.audit.recorder.casts import CastCalls
from amp_lessons.audit.recorder.later import Later
from amp_lessons.audit.recorder.optimizers import GradientCalls, OptimizerCalls
from amp_lessons.audit.recorder.places import own_line
from amp_lessons.audit.recorder.scalers import ScalerCalls
from amp_lessons.audit.recorder.shared import Known, Log


class Recorder(Log):
    """Everything that a training calls, given to ``report`` as events, in order.

    The spies call its parts, one for each kind of calls: ``scalers``, ``autocast``, ``autograd``,
    ``gradients``, ``optimizers`` and ``casts``. What these share is ``known``. ``before_step``,
    ``after_step`` and ``closure_begins`` are called as ``OptimizerCalls`` says, ``found_optimizer`` once for
    each optimizer, ``cleared`` whenever gradients were set to zero.
    """

    def __init__(
        self,
        report: Callable[[events.Event], None],
        before_step: Callable[[torch.optim.Optimizer, int, Later, Later, torch.dtype | None], None],
        after_step: Callable[[torch.optim.Optimizer, events.StepDone, Later, Later, Later], None],
        found_optimizer: Callable[[torch.optim.Optimizer], None],
        cleared: Callable[[], None] = lambda: None,
        closure_begins: Callable[[torch.optim.Optimizer], None] = lambda optimizer: None,
    ) -> None:
        super().__init__(report)
        self.known = Known(self, found_optimizer)
        self.casts = CastCalls(self, self.known)
        self.optimizers = OptimizerCalls(
            self, self.known, self.casts, before_step, after_step, closure_begins
        )
        self.gradients = GradientCalls(self, self.known, cleared)
        self.scalers = ScalerCalls(self, self.known, self.optimizers)
        self.autocast = AutocastCalls(self, self.known)
        self.autograd = AutogradCalls(self, self.known, self.scalers.refused)

    def is_scaled_gradient(self, tensor: Tensor) -> bool:
        """Whether a tensor holds a gradient that is still multiplied by the loss scale."""
        return self.known.book.is_scaled(tensor)

    def evaluating(self) -> None:
        """Note that a model is put into evaluation mode."""
        self.here.evaluating_since = own_line()

    def in_step(self) -> bool:
        """Whether this thread is inside an optimizer's step."""
        return self.here.stepping
