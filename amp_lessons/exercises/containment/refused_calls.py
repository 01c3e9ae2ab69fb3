"""Calls that would end, copy or block the notebook's kernel, replaced by ones that only say so."""

from __future__ import annotations

import builtins
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock


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
