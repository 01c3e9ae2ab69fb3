"""The learner's own line in a traceback."""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

import torch

_NOT_THE_LEARNERS = (
    str(Path(__file__).resolve().parents[2]),
    str(Path(torch.__file__).resolve().parent.parent),
    sysconfig.get_path("stdlib"),
    "<frozen",
)


def innermost_line(trace: TracebackType | None) -> str:
    """Name the innermost line of the learner's own code in a traceback: "line 7: scaler.step()"."""
    frames = [f for f in traceback.extract_tb(trace) if not f.filename.startswith(_NOT_THE_LEARNERS)]
    if not frames or frames[-1].lineno is None:
        return ""
    source = linecache.getline(frames[-1].filename, frames[-1].lineno).strip()
    return f"line {frames[-1].lineno}: {source}" if source else f"line {frames[-1].lineno}"
