"""The model that advice is asked for, with its batch and its loss: one module that returns the loss."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map_only

from amp_lessons.autocast.cast_policy import tensors_in
from amp_lessons.autocast.running import gradients_on
from amp_lessons.text.describing import describe

Loss = Callable[[Any, Any], torch.Tensor]
PREFIX = "model."


class CannotAdviseError(ValueError):
    """There is no advice for this model; the message says why, and what would be right."""


class Training(nn.Module):
    """A model with its loss: called with a batch, it returns the loss."""

    def __init__(self, model: nn.Module, loss: Loss | None) -> None:
        super().__init__()
        self.model = model
        self.loss = [loss]  # in a list: a loss that is a module is no layer of the model

    def forward(self, batch: Any) -> torch.Tensor:
        """Return the loss of a batch."""
        (loss,) = self.loss
        inputs, target = _parted(batch) if loss is not None else (batch, None)
        output = _called(self.model, inputs)
        return loss(output, target) if loss is not None else own_loss(output)


@dataclass(frozen=True)
class Subject:
    """What advice is given on: a copy of the model with its loss, and the batch on the model's device.

    ``first_s`` is how many seconds its first forward and backward pass took, in fp32.
    """

    training: Training
    batch: Any
    name: str
    device: torch.device
    first_s: float = 0.0

    @property
    def model(self) -> nn.Module:
        """The copy of the model."""
        return self.training.model

    @property
    def samples(self) -> int:
        """How many samples the batch has: the length of its first tensor, 1 if that has none."""
        sizes = [tensor.shape[0] for tensor in tensors_in(self.batch) if tensor.dim()]
        return sizes[0] if sizes else 1

    def batch_of(self, samples: int) -> Any:
        """Return a batch of this many samples, without values that mean anything: new tensors of zeros."""

        def resized(tensor: torch.Tensor) -> torch.Tensor:
            shape = list(tensor.shape)
            if shape and shape[0] == self.samples:
                shape[0] = samples
            return torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)

        return tree_map_only(torch.Tensor, resized, self.batch)


def subject_of(model: Any, batch: Any, loss: Any) -> Subject:
    """Check what was given, and run it once in fp32. Raises ``CannotAdviseError`` if it cannot be."""
    _require_trainable(model)
    if loss is not None and not callable(loss):
        raise CannotAdviseError(f"loss is a function of output and target, or None, not {describe(loss)}")
    if not any(True for _ in tensors_in(batch)):
        raise CannotAdviseError(
            f"the batch holds no tensor, it is {describe(batch)}; a tensor, a dict of named inputs or, with "
            "a loss, a pair of inputs and targets would be right"
        )
    device = next(model.parameters()).device
    try:
        training = Training(copy.deepcopy(model), loss)
    except Exception as error:
        raise CannotAdviseError(f"the model cannot be copied: {_said(error)}") from error
    _without_cache(training.model)
    moved = tree_map_only(torch.Tensor, lambda tensor: tensor.detach().to(device), batch)
    return Subject(training, moved, type(model).__name__, device, _require_loss(training, moved))


def own_loss(output: Any) -> torch.Tensor:
    """Return the loss that a model computes itself: ``output.loss``, or its only tensor."""
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    loss = output if loss is None else loss
    if isinstance(loss, (tuple, list)) and loss and isinstance(loss[0], torch.Tensor) and loss[0].dim() == 0:
        loss = loss[0]
    if not isinstance(loss, torch.Tensor):
        raise CannotAdviseError(
            f"the model returns {describe(output)}, which has no loss: give the loss, a function of output "
            "and target, or let the batch hold what the model computes its loss from, such as labels"
        )
    return loss


def plain_path(path: str) -> str:
    """Return the path of a module in the learner's model; "" is the model, and ``the loss`` what follows."""
    return "the loss" if path == "" else path.removeprefix("model").removeprefix(".")


def _parted(batch: Any) -> tuple[Any, Any]:
    """Return inputs and target: of a pair as loaders give it, its halves, else the batch in both roles."""
    return tuple(batch) if isinstance(batch, (tuple, list)) and len(batch) == 2 else (batch, batch)


def _called(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)


def _require_trainable(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise CannotAdviseError(f"a model is a torch.nn.Module, not {describe(model)}")
    parameters = list(model.parameters())
    if not parameters:
        raise CannotAdviseError(f"{type(model).__name__} has no parameters: there is nothing to train")
    if not any(parameter.requires_grad for parameter in parameters):
        raise CannotAdviseError("no parameter of the model requires grad: there is nothing to train")
    if any(isinstance(each, nn.parameter.UninitializedParameter) for each in parameters):
        raise CannotAdviseError("the model has lazy layers; run it once on a batch, so that they have shapes")
    if any(each.is_meta or isinstance(each, FakeTensor) for each in parameters):
        raise CannotAdviseError(
            'the model has no values (it is on the device "meta", or fake); give it some, as with '
            'model.to_empty(device="cpu") and its own initialisation'
        )
    places = sorted({str(each.device) for each in parameters})
    if len(places) > 1:
        raise CannotAdviseError(f"the model lies on {' and '.join(places)}; advice is for one device")


@gradients_on()
def _require_loss(training: Training, batch: Any) -> float:
    """Run forward and backward pass once, without autocast; return how long they took."""
    start = time.perf_counter()
    try:
        with torch.random.fork_rng():
            loss = training(batch)
    except CannotAdviseError:
        raise
    except Exception as error:
        raise CannotAdviseError(f"the model cannot be run on this batch: {_said(error)}") from error
    _require_scalar(loss)
    loss.backward()
    training.zero_grad()
    return time.perf_counter() - start


def _require_scalar(loss: Any) -> None:
    if not isinstance(loss, torch.Tensor):
        raise CannotAdviseError(f"the loss is a tensor of one number, not {describe(loss)}")
    if loss.numel() != 1:
        raise CannotAdviseError(
            f"the loss is one number, not a tensor of shape {tuple(loss.shape)}: give a loss, a function of "
            "output and target that returns one, such as torch.nn.CrossEntropyLoss()"
        )
    if not loss.is_floating_point():
        raise CannotAdviseError(f"the loss is in {loss.dtype}: no gradient flows through whole numbers")
    if not loss.requires_grad:
        raise CannotAdviseError(
            "the loss does not depend on a parameter that requires grad: was it detached?"
        )
    if not math.isfinite(loss.item()):
        raise CannotAdviseError(
            f"the loss is {loss.item()} in fp32 already; that comes before any advice on AMP"
        )


def _without_cache(model: nn.Module) -> None:
    """Switch off the caches of language models, for which training has no use."""
    for module in model.modules():
        config = getattr(module, "config", None)
        if getattr(config, "use_cache", False) is True:
            config.use_cache = False  # type: ignore[union-attr]  # the copy's own


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
