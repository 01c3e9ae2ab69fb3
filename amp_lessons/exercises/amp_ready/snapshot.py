"""What a model was before an attempt looked at it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Snapshot:
    """A model with its batch, to be compared with what they are later."""

    def __init__(self, model: nn.Module, batch: Tensor) -> None:
        self._model, self._batch, self._values = model, batch, batch.clone()
        self._state = {
            name: (tensor, tensor.clone()) for name, tensor in model.state_dict(keep_vars=True).items()
        }
        self._modules = dict(model.named_modules())
        self._training = {name: module.training for name, module in self._modules.items()}
        self._attributes = {name: set(vars(module)) for name, module in self._modules.items()}

    @property
    def batch_changed(self) -> bool:
        """Whether the batch holds other values now."""
        return not torch.equal(self._batch, self._values)

    def changes(self) -> str:
        """Say what is another than it was, "" where nothing is."""
        now = dict(self._model.named_modules())
        if now != self._modules:
            return "it has other modules than before"
        for name, (before, values) in self._state.items():
            tensor = self._model.state_dict(keep_vars=True)[name]
            if tensor is not before or not torch.equal(tensor, values):
                return f"{name} is not what it was"
        if any(parameter.grad is not None for parameter in self._model.parameters()):
            return "its parameters have gradients"
        return next(filter(None, map(self._changed, now)), "")

    def _changed(self, name: str) -> str:
        module, shown = self._modules[name], name or "the model"
        if any(getattr(module, hooks) for hooks in _HOOKS):
            return f"a hook is left on {shown}"
        if module.training is not self._training[name]:
            return f"{shown} is in {'training' if module.training else 'eval'} mode"
        if added := set(vars(module)) ^ self._attributes[name]:
            return f"{shown} has another {min(added)}"
        return ""
