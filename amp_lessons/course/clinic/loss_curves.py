"""Twelve real trainings of one small model, healthy and broken ones: what their loss curves look like.

Each is trained when it is asked for, in a fraction of a second: what is seen was measured on this machine.
One loop stands for all; a run overrides the one method in which it differs, and that is the mistake.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.course.material import models
from amp_lessons.course.material.data import Batch, LabelledImages, batches, digits, with_noise
from amp_lessons.devices import default_device

_IMAGES, _BATCH, _WIDTH = 512, 32, 64
# gradients of a loss this large fit into fp16 once the scale was halved six times
_LARGE = 2.0**9
# as many times fewer pixels has an image of the digits than one of a megapixel
_MEGAPIXEL = 16384
_DECAY = 0.998  # of the averaged weights: an average over the last five hundred steps
_BROKEN_FROM = 5  # the epoch, counted from 1, in which a file is broken


@dataclass(frozen=True)
class LossCurve:
    """What somebody would log of one training: the loss of each step, and the loss scale before it.

    ``scales`` is empty without a scaler. ``beside`` holds what else was logged step by step, by its name:
    the loss of averaged weights, say. ``epoch_steps`` is how many steps an epoch has.
    """

    id: str
    losses: tuple[float, ...]
    scales: tuple[float, ...]
    beside: Mapping[str, tuple[float, ...]]
    epoch_steps: int


class _Training:
    """A loop that does everything right, in fp16 with a scaler: runs differ from it in one thing each."""

    dtype: torch.dtype | None = torch.float16
    learning_rate = 0.1
    loss_weight = 1.0
    scaled = True
    epochs = 8

    def __init__(self) -> None:
        self.device = default_device().type
        self.model = self.make_model().to(self.device)
        self.optimizer = self.make_optimizer()
        self.scaler = self.make_scaler()
        self.batches = self.make_batches()
        self.losses: list[float] = []
        self.scales: list[float] = []
        self.beside: dict[str, list[float]] = {}

    def make_model(self) -> nn.Module:
        return models.digits_classifier(_WIDTH)

    def make_optimizer(self) -> torch.optim.Optimizer:
        rate = self.learning_rate / self.loss_weight
        return torch.optim.SGD(self.model.parameters(), lr=rate, momentum=0.5)

    def make_scaler(self) -> torch.amp.GradScaler:
        return torch.amp.GradScaler(self.device, enabled=self.scaled)

    def make_batches(self) -> list[Batch]:
        train = digits().train
        return batches(
            LabelledImages(train.images[:_IMAGES], train.labels[:_IMAGES]), _BATCH, device=self.device
        )

    def autocast(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device, self.dtype) if self.dtype else nullcontext()

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.model(inputs), targets)

    def begin_epoch(self) -> None:
        """Nothing has to be done when an epoch begins."""

    def take_step(self) -> None:
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def log(self, loss: Tensor) -> None:
        self.losses.append(loss.item())
        if self.scaled:
            self.scales.append(self.scaler.get_scale())

    def run(self) -> None:
        for _ in range(self.epochs):
            self.begin_epoch()
            for inputs, targets in self.batches:
                self.optimizer.zero_grad()
                with self.autocast():
                    loss = self.loss(inputs, targets)
                self.log(loss)
                self.scaler.scale(loss * self.loss_weight).backward()
                self.take_step()


class _Fp32(_Training):
    dtype, scaled = None, False


class _Amp(_Training):
    pass


class _BeginsTooHigh(_Training):
    loss_weight = _LARGE


class _HighRate(_Fp32):
    learning_rate = 4.0


class _SmallSteps(_Fp32):
    learning_rate = 1e-4
    epochs = 24

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.model.parameters(), lr=self.learning_rate)


class _WeightsInBf16(_SmallSteps):
    def make_model(self) -> nn.Module:
        return super().make_model().bfloat16()

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.model(inputs.bfloat16()).float(), targets)

    def run(self) -> None:
        super().run()
        in_fp32 = _SmallSteps()
        in_fp32.run()
        self.beside["the same script in fp32"] = in_fp32.losses


class _PastTheScaler(_Training):
    """One image in raw units, as a broken file would have it, and steps that the scaler does not guard."""

    def begin_epoch(self) -> None:
        if len(self.losses) == (_BROKEN_FROM - 1) * len(self.batches):
            self.batches[2][0][0] *= 1e6

    def take_step(self) -> None:
        self.scaler.unscale_(self.optimizer)
        self.optimizer.step()
        self.scaler.update()


class _OneAutocast(_Training):
    def autocast(self) -> AbstractContextManager[object]:
        return nullcontext()

    def run(self) -> None:
        with super().autocast():
            super().run()


class _InfiniteGradient(_Training):
    """The norm of a bias, written by hand, is added to the loss; the bias begins at zero, as many do."""

    def make_model(self) -> nn.Module:
        model = models.digits_classifier(_WIDTH)
        nn.init.zeros_(model.get_parameter("net.4.bias"))
        return model

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        bias = self.model.get_parameter("net.4.bias")
        return super().loss(inputs, targets) + 0.01 * bias.square().sum().sqrt()


class _AverageInHalf(_Training):
    epochs = 48  # long enough for the same average in fp32 to be nearly as good as the model

    def __init__(self) -> None:
        super().__init__()
        self.average = copy.deepcopy(self.model).bfloat16()

    def take_step(self) -> None:
        super().take_step()
        for mean, weight in zip(self.average.parameters(), self.model.parameters(), strict=True):
            mean.data.mul_(_DECAY).add_(weight.data, alpha=1 - _DECAY)
        inputs, targets = self.batches[0]
        with torch.no_grad():
            loss = F.cross_entropy(self.average(inputs.bfloat16()).float(), targets)
        self.beside.setdefault("the averaged weights", []).append(loss.item())


class _Unscaled(_Training):
    """Denoising, and its mean taken over as many pixels as a large image has; nothing saves the gradients."""

    scaled = False
    learning_rate = 0.3

    def make_model(self) -> nn.Module:
        return models.denoiser()

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(self.model(with_noise(inputs)), inputs)

    loss_weight = 1 / _MEGAPIXEL


class _ScalerMadeAnew(_Training):
    loss_weight = _LARGE

    def begin_epoch(self) -> None:
        self.scaler = self.make_scaler()


class _LogsScaled(_Training):
    def make_scaler(self) -> torch.amp.GradScaler:
        return torch.amp.GradScaler(self.device, growth_interval=24)

    def log(self, loss: Tensor) -> None:
        self.losses.append(self.scaler.scale(loss).item())


_RUNS: dict[str, Callable[[], _Training]] = {
    "begins_too_high": _BeginsTooHigh,
    "one_autocast": _OneAutocast,
    "past_the_scaler": _PastTheScaler,
    "scaler_made_anew": _ScalerMadeAnew,
    "infinite_gradient": _InfiniteGradient,
    "high_rate": _HighRate,
    "fp32": _Fp32,
    "weights_in_bf16": _WeightsInBf16,
    "amp": _Amp,
    "average_in_half": _AverageInHalf,
    "unscaled": _Unscaled,
    "logs_scaled": _LogsScaled,
}
LOSS_CURVES = tuple(_RUNS)


@functools.cache
def loss_curve(id: str) -> LossCurve:
    """Train one of ``LOSS_CURVES``, once, and return what was logged. Raises ValueError for an unknown id."""
    if id not in LOSS_CURVES:
        raise ValueError(f"there is no loss curve {id!r}; {did_you_mean(id, LOSS_CURVES)}")
    training = _RUNS[id]()
    training.run()
    return LossCurve(
        id,
        losses=tuple(training.losses),
        scales=tuple(training.scales),
        beside={name: tuple(values) for name, values in training.beside.items()},
        epoch_steps=len(training.batches),
    )
