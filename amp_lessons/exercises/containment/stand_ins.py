"""What learner's code meets in place of the process's own: output, the compiler, calls that would end it.

Loading the compiler takes seconds, compiling as many again, and a machine without one for C++ raises: of what
a check watches, it changes nothing.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

from amp_lessons.whole_process import running_eagerly

_PRINTED_CHARACTERS = 2000


class BoundedText(io.TextIOBase):
    """A text stream that counts everything and keeps the first ``limit`` characters."""

    def __init__(self, limit: int = _PRINTED_CHARACTERS) -> None:
        self._limit = limit
        self._kept: list[str] = []
        self._room = limit
        self.characters = 0

    def writable(self) -> bool:
        """Say that this stream takes text."""
        return True

    def write(self, text: str) -> int:
        """Take ``text``, keeping only what still fits."""
        self.characters += len(text)
        if self._room > 0:
            self._kept.append(text[: self._room])
            self._room -= len(text)
        return len(text)

    def text(self) -> str:
        """Return what was kept, saying how much was not."""
        kept = "".join(self._kept).rstrip("\n")
        dropped = self.characters - self._limit
        return f"{kept}\n… and {dropped:,} more characters" if dropped > 0 else kept


@contextlib.contextmanager
def captured(output: BoundedText) -> Iterator[None]:
    """Send what is printed to ``output``; reading from the keyboard finds nothing."""
    stdin = sys.stdin
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            sys.stdin = io.StringIO()
            yield
        finally:
            sys.stdin = stdin


class Refused(BaseException):
    """Raised in place of a call that would end, copy or block the process."""


@contextlib.contextmanager
def refusing(refused: list[str]) -> Iterator[None]:
    """Raise in place of every such call, and append how the learner spells it to ``refused``."""
    with contextlib.ExitStack() as stack:
        for owner, name in _targets():
            refusal = _refusal(refused, _spelling(owner, name))
            stack.enter_context(mock.patch.object(owner, name, refusal))
        yield


def _targets() -> list[tuple[Any, str]]:
    ending = ("_exit", "abort", "fork", "forkpty", "kill", "killpg", "execv", "execve")
    candidates = [(os, name) for name in ending]
    candidates += [(signal, name) for name in ("alarm", "setitimer")]  # their signal ends the process, later
    candidates += [(builtins, name) for name in ("exit", "quit", "input", "breakpoint")]
    return [(owner, name) for owner, name in candidates if hasattr(owner, name)] + _notebook_exit()


def _notebook_exit() -> list[tuple[Any, str]]:
    """Find what ``exit()`` means in a notebook: IPython's own, which asks the whole kernel to end."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return [(shell, "ask_exit")] if shell is not None else []


def _refusal(refused: list[str], spelling: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> None:
        refused.append(spelling)
        raise Refused(spelling)

    return refuse


def _spelling(owner: Any, name: str) -> str:
    if owner in (os, signal):
        return f"{owner.__name__}.{name}()"
    return "exit()" if name == "ask_exit" else f"{name}()"


@contextlib.contextmanager
def not_compiling() -> Iterator[None]:
    """Run eagerly what is, or has been, given to ``torch.compile`` or ``torch.nn.Module.compile``."""
    compile_as_ever = torch.compile

    def compile_later(*args: Any, **options: Any) -> Any:
        """Return what ``torch.compile`` does, with a backend that does not have to be loaded."""
        return compile_as_ever(*args, **{**options, "backend": "eager", "mode": None, "options": None})

    with mock.patch.object(torch, "compile", compile_later), running_eagerly():
        yield
