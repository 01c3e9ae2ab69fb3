"""Where the learner's code begins and ends on the stack: exceptions may be raised in it, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any


def enter(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call ``function``: whatever this frame has called, at whatever distance, is the learner's code."""
    try:
        return function(*args, **kwargs)
    finally:
        _end()


def _end() -> None:
    """Do nothing: where a function begins, Python raises what was to be raised in the learner's code."""


def is_learners(frame: FrameType | None) -> bool:
    """Whether ``frame`` was called, at whatever distance, by ``enter``, whose caller waits for exceptions."""
    while frame is not None:
        frame = frame.f_back
        if frame is not None and frame.f_code is enter.__code__:
            return True
    return False
