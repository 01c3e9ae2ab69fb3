"""The model that advice is asked for, with its batch and its loss: one module that returns the loss."""

from __future__ import annotations

import copy
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map_only

from amp_lessons._base.text.describing import describe
from amp_lessons.autocast.cast_policy import tensors_in
from amp_lessons.autocast.running import gradients_on
from amp_lessons.formats.dtypes import dtype_name

Loss = Callable[[Any, Any], torch.Tensor]
_LONG_S = 1.0


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
        inputs, target = _split_pair(batch) if loss is not None else (batch, None)
        output = _call_model(self.model, inputs)
        return loss(output, target) if loss is not None else own_loss(output)


@dataclass(frozen=True)
class Subject:
    """The subject of advice: a copy of the model with its loss, and the batch on the model's device.

    ``plain`` names the dtype in which it is trained without autocast. ``step_s`` is how many seconds a
    forward and backward pass takes so; ``was_in_eval`` and ``compiled`` say how the model came.
    """

    training: Training
    batch: Any
    name: str
    device: torch.device
    plain: str = "fp32"
    step_s: float = 0.0
    was_in_eval: bool = False
    compiled: bool = False

    @property
    def model(self) -> nn.Module:
        """The copy of the model."""
        return self.training.model

    @property
    def samples(self) -> int:
        """The number of samples in the batch: the length of its first tensor or list, 1 without either."""
        sizes = [tensor.shape[0] for tensor in tensors_in(self.batch) if tensor.dim()]
        return self.listed or (sizes[0] if sizes else 1)

    @property
    def listed(self) -> int:
        """The number of samples that come in a list, one tensor each, as detectors take images; else 0."""
        (loss,) = self.training.loss
        inputs = _split_pair(self.batch)[0] if loss is not None else self.batch
        if not isinstance(inputs, (Mapping, list, tuple)):
            return 0
        given = inputs.values() if isinstance(inputs, Mapping) else inputs
        first = next((each for each in given if any(True for _ in tensors_in(each))), None)
        return len(first) if isinstance(first, (list, tuple)) and all(map(torch.is_tensor, first)) else 0

    def batch_of(self, samples: int) -> Any:
        """Return a batch of this many samples, without values that mean anything: new tensors of zeros."""

        def resized(tensor: torch.Tensor) -> torch.Tensor:
            shape = list(tensor.shape)
            if shape and shape[0] == self.samples:
                shape[0] = samples
            return torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)

        return tree_map_only(torch.Tensor, resized, self.batch)

    @gradients_on()
    def take_step(self, autocast: AbstractContextManager[Any] | None = None) -> None:
        """Run forward and backward pass once, the forward pass in a region. Raises what the model raises."""
        with autocast or nullcontext():
            loss = self.training(self.batch)
        loss.backward()
        self.training.zero_grad()


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
    with _refused_as("the model cannot be copied"):
        training = Training(copy.deepcopy(model), loss)
    _without_cache(training.model)
    if not model.training:
        training.train()  # a part that is in evaluation mode while the model is not stays so
    # Copies: what the model writes into its inputs is not to reach the caller's.
    moved = tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone().to(device), batch)
    of_reals = [dtype for dtype, _ in trained_numbers(model).most_common() if dtype.is_floating_point]
    plain = dtype_name(of_reals[0]) if of_reals else "fp32"
    return Subject(
        training,
        moved,
        type(model).__name__,
        device,
        plain,
        _require_loss(training, moved, plain),
        was_in_eval=not model.training,
        # some part wrapped by ``torch.compile``, or compiled in its place
        compiled=any("_orig_mod" in each._modules or each._compiled_call_impl for each in model.modules()),
    )


def own_loss(output: Any) -> torch.Tensor:
    """Return the loss that a model computes itself: ``output.loss``, or its only tensor."""
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    loss = output if loss is None else loss
    if loss is output:
        _require_no_several(output)
    if isinstance(loss, (tuple, list)) and loss and isinstance(loss[0], torch.Tensor) and loss[0].dim() == 0:
        loss = loss[0]
    if not isinstance(loss, torch.Tensor):
        raise CannotAdviseError(
            f"the model returns {describe(output)}, which has no loss: give the loss, a function of output "
            "and target, or let the batch hold what the model computes its loss from, such as labels"
        )
    return loss


def _require_no_several(output: Any) -> None:
    """Refuse to choose among several losses that a model returns, as detectors do."""
    if isinstance(output, (tuple, list)):
        output = dict(enumerate(output))
    items = output.items() if isinstance(output, Mapping) else ()
    losses = [str(name) for name, each in items if torch.is_tensor(each) and each.dim() == 0]
    if len(losses) > 1:
        raise CannotAdviseError(
            f"the model returns several numbers ({', '.join(losses)}): give a loss that adds them up, such "
            "as `lambda losses, _: sum(losses.values())`, and (inputs, None) as the batch"
        )


def plain_path(path: str) -> str:
    """Return the path of a module in the learner's model; "" is the model, and ``the loss`` what follows."""
    return "the loss" if path == "" else path.removeprefix("model").removeprefix(".")


def _split_pair(batch: Any) -> tuple[Any, Any]:
    """Return inputs and target: of a pair as loaders give it, its halves, else the batch in both roles."""
    return tuple(batch) if isinstance(batch, (tuple, list)) and len(batch) == 2 else (batch, batch)


def _call_model(model: nn.Module, inputs: Any) -> Any:
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
    if scripted := [name for name, each in model.named_modules() if isinstance(each, torch.jit.ScriptModule)]:
        raise CannotAdviseError(
            f"{scripted[0] or 'the model'} is scripted (torch.jit), and what runs in it cannot be followed; "
            "give the module that it was made from"
        )
    if any(each.is_meta or isinstance(each, FakeTensor) for each in parameters):
        raise CannotAdviseError(
            'the model has no values (it is on the device "meta", or fake); give it some, as with '
            'model.to_empty(device="cpu") and its own initialisation'
        )
    places = sorted({str(each.device) for each in parameters})
    if len(places) > 1:
        raise CannotAdviseError(f"the model lies on {' and '.join(places)}; advice is for one device")


def trained_numbers(model: nn.Module) -> Counter[torch.dtype]:
    """Count the numbers that are trained by their dtype."""
    counts: Counter[torch.dtype] = Counter()
    for each in model.parameters():
        if each.requires_grad:
            counts[each.dtype] += each.numel()
    return counts


def _require_loss(training: Training, batch: Any, plain: str) -> float:
    """Run forward and backward pass without autocast; return how long they take.

    The first time much is done that is done only once, so what was short is timed again.
    """
    took = _require_step(training, batch, plain)
    if took > _LONG_S:
        return took
    try:
        return min(took, _require_step(training, batch, plain))
    except CannotAdviseError as error:
        raise CannotAdviseError(f"the model ran on this batch, and then not again: {error}") from error


@gradients_on()
def _require_step(training: Training, batch: Any, plain: str) -> float:
    start = time.perf_counter()
    with _refused_as("the model cannot be run on this batch"), torch.random.fork_rng():
        loss = training(batch)
    _require_scalar(loss, plain)
    with _refused_as("the model has no backward pass"):
        loss.backward()
    _require_finite_gradients(training, plain)
    training.zero_grad()
    return time.perf_counter() - start


@contextmanager
def _refused_as(sentence: str) -> Iterator[None]:
    """Let what is raised in this block refuse advice, in a sentence that begins with this."""
    try:
        yield
    except CannotAdviseError:
        raise
    except Exception as error:
        raise CannotAdviseError(f"{sentence}: {describe_error(error, 400)}") from error


def _require_finite_gradients(training: Training, plain: str) -> None:
    for name, parameter in training.named_parameters():
        gradient = parameter.grad
        if gradient is not None and not gradient.is_sparse and not gradient.isfinite().all():
            raise CannotAdviseError(
                f"the gradient of {plain_path(name)} has inf or NaN in {plain} already; that comes before "
                "any advice on AMP"
            )


def _require_scalar(loss: Any, plain: str) -> None:
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
            f"the loss is {loss.item()} in {plain} already; that comes before any advice on AMP"
        )


def _without_cache(model: nn.Module) -> None:
    """Switch off the caches of language models, for which training has no use."""
    for module in model.modules():
        config = getattr(module, "config", None)
        if getattr(config, "use_cache", False) is True:
            config.use_cache = False  # type: ignore[union-attr]  # the copy's own


def describe_error(error: BaseException, most: int = 200) -> str:
    """Name an error, and quote so many characters of its message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:most]}"
