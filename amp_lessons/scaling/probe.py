"""Ask one model and batch again and again what a loss scale does to their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from amp_lessons.scaling.backward import (
    Batch,
    LossFn,
    compare_by_layer,
    gradients,
    gradients_by_layer,
    layer_names,
)
from amp_lessons.scaling.checks import check_autocast_dtype, check_batch, check_device_type, check_scale
from amp_lessons.scaling.fates import Census


class LossScaleProbe:
    """Answer as ``backward_by_layer`` does, time and again, and run only what is not known yet.

    The true gradients do not depend on the loss scale: they are computed when first needed and kept, and so
    is the last answer. Both are forgotten once a parameter, a buffer or a tensor of the batch has another
    value, or the model has other modules, modes (train, eval) or frozen parameters. Values are compared with
    copies, so every change of them is seen, also one through ``.data``. What else a loss may depend on is not
    watched, such as the rate of a dropout layer: make another probe after changing that.

    Every pass draws the random numbers that the true gradients were computed with, whatever was drawn in
    between: moving the scale drops the same values again.
    """

    def __init__(self, model: nn.Module, batch: Batch, loss_fn: LossFn) -> None:
        """Probe ``model`` on ``batch``, without running it yet. Raises as ``backward_at`` does."""
        layer_names(model)
        check_batch(batch)
        self._model, self._batch, self._loss_fn = model, batch, loss_fn
        self._truth: _Truth | None = None
        self._question: tuple[float, torch.dtype, str] | None = None
        self._answer: dict[str, Census] = {}

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers that own trainable parameters, in order."""
        return layer_names(self._model)

    def at(
        self,
        scale: float,
        dtype: torch.dtype = torch.float16,
        device_type: str | torch.device | None = None,
    ) -> dict[str, Census]:
        """Return one census per layer at ``scale``. Raises as ``backward_at`` does."""
        where = check_device_type(self._model, device_type)
        question = check_scale(scale), check_autocast_dtype(dtype), where
        if self._truth is None or not self._truth.holds_for(self._model, self._batch):
            self._truth, self._question = _Truth(self._model, self._batch, self._loss_fn), None
        if question != self._question:
            with self._truth.random_numbers.drawn_again():
                scaled = gradients_by_layer(self._model, self._batch, self._loss_fn, *question)
            self._answer = compare_by_layer(self._truth.gradients, scaled, *question[:2])
            self._question = question
        return dict(self._answer)


class _Truth:
    """The true gradients of a batch, and all that they were computed from."""

    def __init__(self, model: nn.Module, batch: Batch, loss_fn: LossFn) -> None:
        self._structure = _structure(model)
        self._values = tree_map_only(Tensor, lambda x: x.detach().clone(), _values(model, batch))
        self.random_numbers = _RandomNumbers(next(model.parameters()).device)
        self.gradients = gradients(model, batch, loss_fn)

    def holds_for(self, model: nn.Module, batch: Batch) -> bool:
        if self._structure != _structure(model):
            return False
        values = _values(model, batch)
        return len(values) == len(self._values) and all(map(_same, self._values, values))


def _structure(model: nn.Module) -> list[Any]:
    modules = [(name, module, module.training) for name, module in model.named_modules()]
    return [*modules, *((name, parameter.requires_grad) for name, parameter in model.named_parameters())]


def _values(model: nn.Module, batch: Batch) -> list[Any]:
    return [*model.parameters(), *model.buffers(), *tree_leaves(batch)]


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, Tensor) and isinstance(new, Tensor):
        return (old.dtype, old.device) == (new.dtype, new.device) and torch.equal(old, new)
    return old is new


class _RandomNumbers:
    """The random numbers that PyTorch will draw next, on the CPU and on the model's device."""

    def __init__(self, device: torch.device) -> None:
        self._cpu = torch.get_rng_state()
        self._cuda = {device: torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}

    @contextmanager
    def drawn_again(self) -> Iterator[None]:
        with torch.random.fork_rng(list(self._cuda)):
            torch.set_rng_state(self._cpu)
            for device, state in self._cuda.items():
                torch.cuda.set_rng_state(state, device)
            yield
