"""Which module of a model is running."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn


class ModulePaths:
    """Which module is running, and which was when a node of the autograd graph was made."""

    def __init__(self) -> None:
        self.stack = [""]
        self.numbers: list[int] = []
        self.paths: list[str] = []

    @property
    def current(self) -> str:
        """Path of the innermost module that runs now, "" for the model itself."""
        return self.stack[-1]

    def when_made(self, sequence_number: int) -> str:
        """Path of the module that ran when autograd gave out ``sequence_number``."""
        place = bisect_right(self.numbers, sequence_number) - 1
        return self.paths[place] if place >= 0 else ""

    @contextmanager
    def following(self, model: nn.Module) -> Iterator[None]:
        """Follow the modules of ``model`` as they run; scripted ones count as part of their parent."""
        with ExitStack() as stack:
            for path, module in model.named_modules():
                if not isinstance(module, torch.jit.ScriptModule):
                    for handle in self._hooks(path, module):
                        stack.callback(handle.remove)
            yield

    def _hooks(self, path: str, module: nn.Module) -> Iterable[Any]:
        def enter(*_: Any) -> None:
            self.stack.append(path)
            self._note()

        def leave(*_: Any) -> None:
            self.stack.pop()
            self._note()

        yield module.register_forward_pre_hook(enter, prepend=True)
        yield module.register_forward_hook(leave, always_call=True)

    def _note(self) -> None:
        self.numbers.append(torch.autograd._get_sequence_nr())
        self.paths.append(self.current)
