"""What a model was before an attempt looked at it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

_PLAIN = (bool, int, float, str, tuple, type(None))  # attributes that can be compared


class Snapshot:
    """A model with its batch, to be compared with what they are later."""

    def __init__(self, model: nn.Module, batch: Tensor) -> None:
        self._model, self._batch, self._values = model, batch, batch.clone()
        self._state = {
            name: (tensor, tensor.clone()) for name, tensor in model.state_dict(keep_vars=True).items()
        }
        self._modules = dict(model.named_modules())
        self._training = {name: module.training for name, module in self._modules.items()}
        self._attributes = {name: dict(vars(module)) for name, module in self._modules.items()}
        self._hooks = {name: _hooks(module) for name, module in self._modules.items()}
        self._trained = {name: each.requires_grad for name, each in model.named_parameters()}
        self._hooked_everywhere = _has_any_global_hook()

    @property
    def batch_changed(self) -> bool:
        """Whether the batch holds other values now."""
        return not torch.equal(self._batch, self._values)

    def changes(self) -> str:
        """Say what is another than it was, "" where nothing is."""
        if self._batch.requires_grad:
            return "the batch requires a gradient"
        now = dict(self._model.named_modules())
        if now != self._modules:
            return "it has other modules than before"
        for name, (before, values) in self._state.items():
            tensor = self._model.state_dict(keep_vars=True)[name]
            if tensor is not before or not torch.equal(tensor, values):
                return f"{name} is not what it was"
        if any(parameter.grad is not None for parameter in self._model.parameters()):
            return "its parameters have gradients"
        for name, parameter in self._model.named_parameters():
            if parameter.requires_grad is not self._trained[name]:
                return f"{name}.requires_grad is {parameter.requires_grad}"
            if parameter._backward_hooks:
                return f"a hook is left on {name}"
        if _has_any_global_hook() and not self._hooked_everywhere:
            return "a hook is left on all modules that there are"
        return next(filter(None, map(self._changed, now)), "")

    def _changed(self, name: str) -> str:
        module, shown = self._modules[name], name or "the model"
        if _hooks(module) != self._hooks[name]:
            return f"a hook is left on {shown}"
        if module.training is not self._training[name]:
            return f"{shown} is in {'training' if module.training else 'eval'} mode"
        before, now = self._attributes[name], dict(vars(module))
        others = before.keys() ^ now.keys() or {each for each in now if _other(before[each], now[each])}
        return f"{shown} has another {min(others)}" if others else ""


def _hooks(module: nn.Module) -> dict[str, list[Any]]:
    """Return the hooks of every kind, also of those that later versions of PyTorch may have."""
    kinds = [kind for kind in vars(module) if kind.endswith(("_hooks", "_pre_hooks"))]
    return {kind: list(vars(module)[kind].values()) for kind in kinds if vars(module)[kind]}


def _other(before: Any, now: Any) -> bool:
    return before is not now and not (isinstance(now, _PLAIN) and before == now)
