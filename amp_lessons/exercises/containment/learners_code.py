"""Where the learner's code begins and ends on the stack: exceptions may be raised in it, and nowhere else."""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch

from amp_lessons.exercises.containment.process_state import Snapshot

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
    except BaseException:
        try:  # noqa: SIM105  (suppress() is Python code: the exception would be raised in it)
            _begin()
        except BaseException:
            pass
        raise


def _begin() -> None:
    """Do nothing: where a function begins, Python raises what it was asked to raise in the learner's code."""


def is_learners(frame: FrameType | None) -> bool:
    """Whether ``frame`` was called, at whatever distance, by `enter`, whose caller waits for exceptions."""
    if frame is None or frame.f_code is enter.__code__:
        return False
    while frame is not None and frame.f_code is not enter.__code__:
        if frame.f_code in _OWN_WORK:
            return False
        frame = frame.f_back
    return frame is not None


def frames_from(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield ``frame`` and those that called it, as far as they are the learner's."""
    while frame is not None and frame.f_code is not enter.__code__:
        yield frame
        frame = frame.f_back


def innermost_line(trace: TracebackType | None) -> str:
    """Name the innermost line of the learner's own code in a traceback: "line 7: scaler.step()"."""
    frames = [f for f in traceback.extract_tb(trace) if not f.filename.startswith(_NOT_THE_LEARNERS)]
    if not frames or frames[-1].lineno is None:
        return ""
    source = linecache.getline(frames[-1].filename, frames[-1].lineno).strip()
    return f"line {frames[-1].lineno}: {source}" if source else f"line {frames[-1].lineno}"


# a check within the learner's code is called by `enter` too, but must not be stopped while it tidies up
_OWN_WORK = {Snapshot.__init__.__code__, Snapshot.restore.__code__, innermost_line.__code__}
