"""Let what ``torch.compile`` returns run without being compiled.

Loading the compiler takes seconds, compiling as many again, and a machine without one for C++ raises: of what
a check watches, it changes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch


@contextlib.contextmanager
def not_compiling() -> Iterator[None]:
    """Run eagerly what is, or has been, given to ``torch.compile`` or ``torch.nn.Module.compile``."""
    compile_as_ever = torch.compile

    def compile_later(*args: Any, **options: Any) -> Any:
        """Return what ``torch.compile`` does, with a backend that does not have to be loaded."""
        return compile_as_ever(*args, **{**options, "backend": "eager", "mode": None, "options": None})

    with mock.patch.object(torch, "compile", compile_later), torch.compiler.set_stance("force_eager"):
        yield
