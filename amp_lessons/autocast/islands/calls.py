"""A pass through a model, written down call by call, so that each module can be run again by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_map_only


@dataclass(eq=False)
class Call:
    """One call of one module: what went in, what came out, and the calls that it made in turn, in order."""

    path: str
    module: nn.Module
    args: Any
    kwargs: Any
    output: Any = None
    children: list[Call] = field(default_factory=list)

    def below(self) -> Iterator[Call]:
        """Yield all calls that were made within this one, and then itself."""
        for child in self.children:
            yield from child.below()
        yield self

    @property
    def dtypes(self) -> tuple[tuple[torch.dtype | None, ...], tuple[torch.dtype | None, ...]]:
        """The dtypes of what went in and of what came out, None for what is no tensor."""
        return _dtypes((self.args, self.kwargs)), _dtypes(self.output)


class CallLog:
    """Writes down the calls of a model's modules within ``following``; values are copied if asked for.

    Without copies, only tensors' dtypes are to be read: their values may have been overwritten since.
    """

    def __init__(self, *, copied: bool) -> None:
        self._keep = copies if copied else _emptied
        self._open: list[Call] = []
        self.roots: list[Call] = []

    @contextmanager
    def following(self, model: nn.Module) -> Iterator[None]:
        """Follow the modules of ``model``; of those that appear in several places, the first path counts."""
        with ExitStack() as stack:
            for path, module in model.named_modules():
                if not isinstance(module, torch.jit.ScriptModule):
                    stack.callback(self._entering(path, module).remove)
                    stack.callback(self._leaving(module).remove)
            yield

    def _entering(self, path: str, module: nn.Module) -> Any:
        def enter(_: nn.Module, args: Any, kwargs: Any) -> None:
            call = Call(path, module, self._keep(args), self._keep(kwargs))
            (self._open[-1].children if self._open else self.roots).append(call)
            self._open.append(call)

        return module.register_forward_pre_hook(enter, with_kwargs=True)

    def _leaving(self, module: nn.Module) -> Any:
        def leave(_: nn.Module, args: Any, output: Any) -> None:
            self._open.pop().output = self._keep(output)

        return module.register_forward_hook(leave, always_call=True)


def copies(value: Any) -> Any:
    """Copy the tensors of a nested value."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), value)


def _emptied(value: Any) -> Any:
    """Keep the dtypes of a nested value's tensors, and none of their memory."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.new_empty(0), value)


def _dtypes(value: Any) -> tuple[torch.dtype | None, ...]:
    return tuple(leaf.dtype if isinstance(leaf, torch.Tensor) else None for leaf in tree_flatten(value)[0])
