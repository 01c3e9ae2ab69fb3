"""Stop a forward pass at the module and line that made the first inf or NaN, not at one that carried it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from amp_lessons._base.arguments import require
from amp_lessons.audit.numbers.buffers import all_finite
from amp_lessons.audit.numbers.naming import Names
from amp_lessons.audit.recorder.later import local
from amp_lessons.audit.recorder.places import own_line, place_of

# what puts in constants: a mask's −inf is made on purpose, and softmax takes it out again
_PUT_IN = ("fill", "full", "where", "scalar_tensor", "empty", "new_", "copy_", "lift_fresh", "view", "expand")


class Guard:
    """The hooks of ``stop_at_nan``, in force until ``remove``, or to the end of its ``with`` block."""

    def __init__(self, model: nn.Module) -> None:
        self._names = Names([model])
        self._handles = [
            each.register_forward_hook(self._after, with_kwargs=True, prepend=True)
            for each in model.modules()
        ]

    def remove(self) -> None:
        """Take it away again."""
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or all_finite(_floating(output)):
            return
        if not all_finite(_floating((args, kwargs))):
            if self._names.models[0] is module:
                raise FloatingPointError(f"{self._name(module)} was given inf or NaN: its inputs have them")
            return  # whoever computed these is asked when it returns
        broken = [name for name, each in module.named_parameters() if not all_finite([each])]
        if broken:
            raise FloatingPointError(
                f"{self._name(module)} returned inf or NaN, for its weights are so already, {broken[0]} "
                "first: a step before made them; audit.watch says which"
            )
        made = _first_made(module, args, kwargs)
        raise FloatingPointError(
            f"{self._name(module)} returned inf or NaN and was given finite numbers: "
            + (made or "run once more, it did not; its random numbers decide")
        )

    def _name(self, module: nn.Module) -> str:
        name = self._names.module(module) or ""
        return f"`{name}` ({type(module).__name__})" if name else type(module).__name__


def stop_at_nan(model: nn.Module) -> Guard:
    """Make ``model`` raise FloatingPointError where its forward pass makes the first inf or NaN.

    The error names the module that was given finite numbers and returned others, and the operation and line
    in it that made them, found by running that module once more; a mask's −inf that softmax takes out again
    stops nothing. Nothing else is changed. Each module's result is waited for: a tool for looking, not for
    long runs. In compiled code it is silent. Raises TypeError for what is no module.
    """
    return Guard(require(model, nn.Module, "model", "an nn.Module"))


def _floating(nest: Any) -> list[Tensor]:
    return [
        each for each in _pytree.tree_leaves(nest) if isinstance(each, Tensor) and each.is_floating_point()
    ]


def _first_made(module: nn.Module, args: Any, kwargs: Any) -> str:
    """Run a module once more, and say which operation makes inf or NaN of finite numbers; "" for none."""
    kept = {id(each): each.clone() for each in module.buffers()}
    looking = _Looking()
    try:
        with torch.no_grad(), looking:
            module.forward(*args, **kwargs)
    except _FoundError:
        pass
    finally:
        with torch.no_grad():
            for each in module.buffers():
                each.copy_(kept[id(each)])
    return looking.said


class _FoundError(Exception):
    """Ends the second run."""


class _Looking(TorchDispatchMode):
    """Look at each operation until one makes inf or NaN of finite numbers, and constants are not why."""

    said = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        put_in = any(each in name for each in _PUT_IN)
        if not put_in and _made(_floating(result), _floating((args, kwargs))):
            place = place_of(own_line())
            at = f" at {place.shown}" if place is not None else ""
            dtype = next(str(each.dtype).removeprefix("torch.") for each in _floating(result))
            self.said = f"the operation {name} made them in {dtype}{at}"
            raise _FoundError
        return result


def _made(results: list[Tensor], given: list[Tensor]) -> bool:
    """Whether numbers became inf that were finite, or NaN that were none: of a row of −inf, say."""
    if all_finite(results):
        return False
    return all_finite(given) or (_have_nan(results) and not _have_nan(given))


def _have_nan(tensors: list[Tensor]) -> bool:
    return any(bool(local(each).isnan().any()) for each in tensors)
