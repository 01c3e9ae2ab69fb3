"""Find the line of a person's own code that led to a call."""

from __future__ import annotations

import contextlib
import gc
import inspect
import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

import torch

from amp_lessons.audit.findings import Place

_HERE = str(Path(__file__).parents[2])
_LIBRARIES = tuple(
    f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_HANDS_ON = (f"{_HERE}{os.sep}", contextlib.__file__, torch.amp.autocast_mode.__file__)
_Line = tuple[str, int]  # a file's name, as code objects have it, and a number from 1
_wrappers: set[CodeType] = set()  # methods of classes that only hand on what they are given


def own_line() -> _Line | None:
    """Return the innermost line on the stack that is neither a library's nor the course's."""
    frame = sys._getframe(1)
    while frame is not None:
        if is_own(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return None


def line_outside() -> _Line | None:
    """Return the innermost line of a person's own that is in none of the classes told to ``pass_over``."""
    frame = sys._getframe(1)
    while frame is not None:
        if is_own(frame.f_code.co_filename) and frame.f_code not in _wrappers:
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return own_line()


def called_by_own_code() -> bool:
    """Whether a person's own code made a call, if only by a context manager or a decorator: no library."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HANDS_ON):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and is_own(frame.f_code.co_filename)


def opened_by_library() -> bool:
    """Whether a library opened a context, not by a manager of its own that a person's code has entered."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        manager = code.co_flags & inspect.CO_GENERATOR and not is_own(code.co_filename)
        if not manager and not code.co_filename.startswith(_HANDS_ON):
            break
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and not is_own(frame.f_code.co_filename)


@contextmanager
def forgetting_wrappers() -> Iterator[None]:
    """Forget afterwards which classes were told to ``pass_over``."""
    try:
        yield
    finally:
        _wrappers.clear()


def pass_over(kind: type) -> None:
    """Take the methods of a class for no place where something is to be mended, but those that call them."""
    codes = (getattr(getattr(each, "__func__", each), "__code__", None) for each in vars(kind).values())
    _wrappers.update(code for code in codes if isinstance(code, CodeType))


def holders_of(held: Any) -> Iterator[Any]:
    """Yield the objects of a person's own classes that have something as an attribute."""
    for owner in gc.get_referrers(held):
        for each in gc.get_referrers(owner) if type(owner) is dict else [owner]:
            file = getattr(sys.modules.get(type(each).__module__), "__file__", None)
            attributes = getattr(each, "__dict__", {}) if file and is_own(file) else {}
            if any(value is held for value in attributes.values()):
                yield each


def line_of(error: BaseException) -> _Line | None:
    """Return the innermost line of a person's own code that an exception came through."""
    lines = [(f.f_code.co_filename, number) for f, number in traceback.walk_tb(error.__traceback__)]
    return next((line for line in reversed(lines) if is_own(line[0])), None)


def raised_by_own_code(error: BaseException) -> bool:
    """Whether a person's own line raised an exception, not something that it called."""
    *_, (frame, _) = [(None, 0), *traceback.walk_tb(error.__traceback__)]
    return frame is not None and is_own(frame.f_code.co_filename)


@cache
def is_own(file: str) -> bool:
    """Whether a file is a person's own: no installed library, nothing of the course, no code made up."""
    made_up = file.startswith("<") and not file.startswith("<ipython-input")
    packages = f"{os.sep}site-packages{os.sep}" in file or f"{os.sep}dist-packages{os.sep}" in file
    return not (made_up or packages or file.startswith((f"{_HERE}{os.sep}", *_LIBRARIES)))


def place_of(line: _Line | None) -> Place | None:
    """Describe a line for people: a path from here, or the notebook's cell, and what stands there."""
    if line is None:
        return None
    file, number = line
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    cell = shell.compile.format_code_name(file) if shell is not None else None  # ("Cell", "In[3]")
    from_here = os.path.relpath(file) if os.path.isabs(file) else file
    shown = " ".join(cell) if cell else file if from_here.startswith("..") else from_here
    return Place(shown, number, linecache.getline(file, number).strip())
