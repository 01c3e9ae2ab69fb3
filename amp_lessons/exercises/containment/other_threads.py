"""Exceptions that a thread finds when it next runs Python code: to stop it, or to end it."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any

# a check within a check finds the watching thread of the outer one, which must live on
WATCHING = "amp-lessons time limit"
NOBODY = 0
# with three arguments more than the function takes, and ignores: those of a tracing function
_SET_WHEN_TRACED = ctypes.PYFUNCTYPE(None, ctypes.c_ulong, *[ctypes.py_object] * 4)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


def raise_in(ident: int, error: type[BaseException]) -> None:
    """Raise ``error`` in a thread, as soon as it next runs Python code."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(error))


def asking(ident: int, error: type[BaseException]) -> Callable[..., Any]:
    """Make a tracing function without Python code of its own that does what `raise_in` does."""
    return functools.partial(_SET_WHEN_TRACED, ident, error)


def end(threads: Iterable[threading.Thread]) -> None:
    """End those of ``threads`` that are not this package's own."""
    for thread in threads:
        if thread.ident is not None and thread.name != WATCHING:
            raise_in(thread.ident, SystemExit)
