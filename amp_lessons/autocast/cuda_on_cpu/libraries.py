"""Put kernels into PyTorch's table, which all threads share, for as long as somebody is inside a block."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from typing import Any

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


@contextmanager
def library(dispatch_key: str, kernels: Mapping[str, Callable[..., Any]], **options: bool) -> Iterator[None]:
    """Use these kernels, by ATen name without ``aten::``, for calls under ``dispatch_key`` in this block.

    ``options`` are those of ``torch.library.Library.impl``.
    """
    installed = torch.library.Library("aten", "IMPL", dispatch_key)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of kernels being replaced, which is the point
            for name, kernel in kernels.items():
                installed.impl(name, kernel, **options)
        yield
    finally:
        installed._destroy()
