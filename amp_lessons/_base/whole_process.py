"""Switches of the whole process that several threads need at once: the first sets one, the last puts it back.

Were each to put back what it found, one that came second and left last would leave what the first had set.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps

import torch

Manager = Callable[[], AbstractContextManager[None]]


def shared(manager: Manager) -> Manager:
    """Enter ``manager()`` once for all threads: the first to come enters it, the last to go leaves it."""
    lock, entered, users = threading.Lock(), ExitStack(), 0

    @wraps(manager)
    @contextmanager
    def block() -> Iterator[None]:
        nonlocal users
        with lock:
            if users == 0:
                entered.enter_context(manager())
            users += 1
        try:
            yield
        finally:
            with lock:
                users -= 1
                if users == 0:
                    entered.close()

    return block


@shared
@contextmanager
def running_eagerly() -> Iterator[None]:
    """Run eagerly what was given to ``torch.compile``: the compiler has one stance for all threads."""
    with torch.compiler.set_stance("force_eager"):
        yield


@shared
@contextmanager
def without_anomaly_detection() -> Iterator[None]:
    """Look for no anomalies in gradients: that, too, is one switch for all threads."""
    with torch.autograd.set_detect_anomaly(False):
        yield


@shared
@contextmanager
def without_collecting() -> Iterator[None]:
    """Keep Python's garbage collector out of a block that makes many short-lived objects, and few cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
