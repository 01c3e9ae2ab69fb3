"""A small training on which a patient's loop can be watched: the handwritten digits, in a second."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons.course.material import models
from amp_lessons.course.material.data import LabelledImages, batches, digits
from amp_lessons.devices import default_device

_WIDTHS = (24, 32, 40, 48)
_IMAGES, _BATCH = 256, 32
MOVED = "distance the weights moved, as a fraction of their norm"


@dataclass
class Training:
    """What a loop is given: model, batches, optimizer and loss function, all drawn from one seed.

    ``steps`` counts how often the optimizer stepped.
    """

    model: nn.Module
    loader: list[tuple[Tensor, Tensor]]
    optimizer: torch.optim.Optimizer
    loss_fn: Callable[[Tensor, Tensor], Tensor]
    device: str
    steps: int = 0

    def __post_init__(self) -> None:
        self.start = self.weights()
        self.optimizer.register_step_post_hook(self._stepped)

    def _stepped(self, *_: Any) -> None:
        self.steps += 1

    def run(self, loop: Callable[..., Any], epochs: int, **options: Any) -> Any:
        """Let ``loop`` train in fp16 and return what it returns; ``options`` are its further arguments.

        PyTorch's warnings are left out: one of them would name a cause.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = self.model, self.loader, self.optimizer, self.loss_fn, epochs
            return loop(*given, device_type=self.device, dtype=torch.float16, **options)

    def weights(self) -> Tensor:
        """Copy all parameters into one flat tensor on the CPU."""
        return torch.cat([p.detach().reshape(-1).float().cpu() for p in self.model.parameters()])

    def moved(self) -> float:
        """Return how far the weights are from where they began, as a fraction of their norm there."""
        return float((self.weights() - self.start).norm() / self.start.norm())

    def loss(self) -> float:
        """Return the mean loss of all batches, computed in fp32 with the weights as they are."""
        with torch.no_grad():
            losses = [float(self.loss_fn(self.model(x), y)) for x, y in self.loader]
        return sum(losses) / len(losses)

    def accuracy(self) -> float:
        """Return the accuracy on the batches' images, computed in fp32."""
        with torch.no_grad():
            right = [self.model(x).argmax(1) == y for x, y in self.loader]
        return float(torch.cat(right).float().mean())


def first_digits(images: int, batch: int, seed: int, device: str) -> list[tuple[Tensor, Tensor]]:
    """Return the first so many handwritten digits, in batches of an order that the seed draws."""
    data = digits().train
    some = LabelledImages(data.images[:images], data.labels[:images])
    return batches(some, batch, seed=seed, device=device)


def trained(
    loader: list[tuple[Tensor, Tensor]],
    loss_of: Callable[[Tensor, Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
) -> tuple[float, ...]:
    """Make one step for each batch; return their losses."""
    losses = []
    for images, labels in loader:
        loss = loss_of(images, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return tuple(losses)


def training(seed: int, *, lr: float = 0.3, loss_weight: float = 1.0, images: int = _IMAGES) -> Training:
    """Make a training of the digits, the same for the same seed; its optimizer is plain SGD.

    ``loss_weight`` multiplies the loss, and divides the learning rate: a large one makes gradients overflow
    in fp16 at scales at which they otherwise would not, and changes nothing else.
    """
    width = random.Random(seed).choice(_WIDTHS)
    device = default_device().type
    model = models.digits_classifier(width, seed=seed).to(device)
    loss_fn = nn.CrossEntropyLoss()
    return Training(
        model=model,
        loader=first_digits(images, _BATCH, seed, device),
        optimizer=torch.optim.SGD(model.parameters(), lr=lr / loss_weight),
        loss_fn=lambda outputs, targets: loss_fn(outputs, targets) * loss_weight,
        device=device,
    )
