"""Exceptions that a thread finds when it next runs Python code: to stop it, or to end it."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator


def raise_in(ident: int, error: type[BaseException]) -> None:
    """Raise ``error`` in a thread, as soon as it next runs Python code."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(error))


@contextlib.contextmanager
def left_running_ended() -> Iterator[None]:
    """End, at the end, the threads that were started meanwhile and still run."""
    before = set(threading.enumerate())
    try:
        yield
    finally:
        for thread in threading.enumerate():
            if thread not in before and thread.ident is not None:
                raise_in(thread.ident, SystemExit)
