"""Where the learner's code begins and ends on the stack: exceptions may be raised in it, and nowhere else."""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch

_NOT_THE_LEARNERS = (
    str(Path(__file__).resolve().parents[2]),
    str(Path(torch.__file__).resolve().parent.parent),
    sysconfig.get_path("stdlib"),
    "<frozen",
)


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


def innermost_line(trace: TracebackType | None) -> str:
    """Name the innermost line of the learner's own code in a traceback: "line 7: scaler.step()"."""
    frames = [f for f in traceback.extract_tb(trace) if not f.filename.startswith(_NOT_THE_LEARNERS)]
    if not frames or frames[-1].lineno is None:
        return ""
    source = linecache.getline(frames[-1].filename, frames[-1].lineno).strip()
    return f"line {frames[-1].lineno}: {source}" if source else f"line {frames[-1].lineno}"
