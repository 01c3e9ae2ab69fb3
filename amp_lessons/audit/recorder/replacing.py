"""Replace a method of a class for a while, undo exactly that, and let no warning name what took its place."""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

_AUDIT = str(Path(__file__).parents[1])


def replaced(owner: Any, name: str, wrap: Callable[[Any], Any]) -> contextlib.AbstractContextManager[Any]:
    """Replace ``owner.name`` by what ``wrap`` makes of it, and undo exactly that afterwards."""
    original = getattr(owner, name)
    # whoever calls it with wrong arguments is told its name, not the spy's
    return mock.patch.object(owner, name, functools.update_wrapper(wrap(original), original))


@contextmanager
def passing_over_spies() -> Iterator[None]:
    """Let warnings name the lines inside that they name without a watch, those of C++ included."""
    with replaced(warnings, "warn", _past_spies), replaced(warnings, "_showwarnmsg", _not_in_a_spy):
        yield


@contextmanager
def warning_as_ever() -> Iterator[None]:
    """Put Python's own ``warnings.warn`` back for a while."""
    with mock.patch.object(warnings, "warn", getattr(warnings.warn, "__wrapped__", warnings.warn)):
        yield


def _past_spies(original: Any) -> Any:
    def warn(message: Any, category: Any = None, stacklevel: int = 1, *args: Any, **kwargs: Any) -> None:
        level = max(stacklevel, 1)
        level += 1 + _spies_within(sys._getframe(1), level)  # this function is one frame more
        original(message, category, level, *args, **kwargs)

    return warn


def _not_in_a_spy(original: Any) -> Any:
    """Show a warning of C++, which takes the innermost frame, with the line that called the spy."""

    def show(message: warnings.WarningMessage) -> None:
        frame: FrameType | None = sys._getframe(1)
        if message.filename.startswith(_AUDIT):
            while frame is not None and frame.f_code.co_filename.startswith(_AUDIT):
                frame = frame.f_back
            if frame is not None:
                message.filename, message.lineno = frame.f_code.co_filename, frame.f_lineno
        original(message)

    return show


def _spies_within(frame: FrameType | None, level: int) -> int:
    """Count the audit's frames below the one that ``level`` means, where 1 is ``frame`` itself."""
    spies = 0
    while frame is not None and level > 1:
        frame = frame.f_back
        is_spy = frame is not None and frame.f_code.co_filename.startswith(_AUDIT)
        spies, level = spies + is_spy, level - (not is_spy)
    return spies
