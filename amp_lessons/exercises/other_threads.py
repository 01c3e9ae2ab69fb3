"""Threads other than the one that asks: raise in them, end them."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable

# a check within a check finds the watching thread of the outer one, which must live on
WATCHING = "amp-lessons time limit"


def raise_in(ident: int, error: type[BaseException]) -> None:
    """Raise ``error`` in a thread, as soon as it next runs Python code."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(error))


def end(threads: Iterable[threading.Thread]) -> None:
    """End those of ``threads`` that are not this package's own."""
    for thread in threads:
        if thread.ident is not None and thread.name != WATCHING:
            raise_in(thread.ident, SystemExit)
