"""The gradient of a loss with a penalty, in fp32, beside what a loop applied."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.exercises.training_loops.testbed import Classifier
from amp_lessons.exercises.training_loops.window import Window


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
