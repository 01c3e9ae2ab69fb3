"""Force a precision on whatever model runs, as accelerate does it: autocast around its forward pass."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils import _pytree

from amp_lessons.precisions import HALVES, precision


class _Forced:
    """Enters autocast where the outermost module begins, and leaves it where that ends."""

    def __init__(self, dtype: torch.dtype | None) -> None:
        self._dtype = dtype
        self._here = threading.local()

    def before(self, module: nn.Module, args: Any) -> None:
        """Enter autocast before the outermost module; the backward pass repeats what was entered then."""
        if torch.compiler.is_compiling() or getattr(self._here, "outermost", None) is not None:
            return
        if torch._C._current_graph_task_id() == -1:
            self._here.outermost, self._here.entered = module, self._autocast(module, args)
            self._here.entered.__enter__()

    def after(self, module: nn.Module, args: Any, output: Any) -> Any:
        """Leave it, and return what was computed in 16 bits as fp32, in which losses are computed."""
        if torch.compiler.is_compiling() or getattr(self._here, "outermost", None) is not module:
            return None
        self._here.entered.__exit__(None, None, None)
        self._here.outermost = None
        return _pytree.tree_map_only(Tensor, _whole, output) if self._dtype is not None else None

    def _autocast(self, module: nn.Module, args: Any) -> AbstractContextManager[Any]:
        tensors = [each for each in _pytree.tree_leaves(args) if isinstance(each, Tensor)]
        device = next((each.device.type for each in [*module.parameters(), *tensors]), "cpu")
        return torch.autocast(device, dtype=self._dtype or torch.bfloat16, enabled=self._dtype is not None)


def _whole(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in HALVES.values() else tensor


@contextmanager
def forced(name: str) -> Iterator[None]:
    """Run each outermost module inside under autocast in fp16 or bf16, or, for "fp32", with autocast off.

    What the script itself says around its model does not count then; what the model says inside does. Raises
    ValueError for another name.
    """
    forces = _Forced(precision(name).autocast_dtype)
    before = register_module_forward_pre_hook(forces.before)
    after = register_module_forward_hook(forces.after, always_call=True)
    try:
        yield
    finally:
        before.remove()
        after.remove()
