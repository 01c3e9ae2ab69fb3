"""What came of a run: the report that the child has left, however it ended, and the command's exit status."""

from __future__ import annotations

import signal
from pathlib import Path

from amp_lessons.audit.report import as_json
from amp_lessons.audit.report.document import Document, empty

CLEAN, MISTAKES, NOT_RUN = 0, 1, 2
INTERRUPTED = 130  # what shells report of a program that Ctrl-C has ended

_NEVER_BEGAN = "the script ended before it had imported PyTorch"
_NO_STEP = (
    "no optimizer took a step in the script's own process: of a loop that changes weights by hand nothing "
    "can be said, and what other processes train that the script started is not seen (torchrun … -m "
    "amp_lessons audit SCRIPT audits every rank)"
)


def report_of(kept: Path, of: str, status: int) -> Document:
    """Return the report of ``of``, as far as the child has kept it in ``kept``; ``status`` is the child's."""
    document = as_json.loads(kept.read_text("utf-8")) if kept.exists() else empty(of)
    document["of"] = of
    if not document["ended"]:
        document["ended"] = _say_status(status)
    if not kept.exists():
        document["not_seen"].append(_NEVER_BEGAN)
    elif not document["steps"]:
        document["not_seen"].append(_NO_STEP)
    return document


def exit_status(document: Document, status: int) -> int:
    """Return the command's exit status: mistakes come first, then how the script itself ended."""
    if not document["passed"]:
        return MISTAKES
    if status in (INTERRUPTED, -signal.SIGINT):
        return INTERRUPTED
    return CLEAN if status == 0 and document["steps"] else NOT_RUN


def _say_status(status: int) -> str:
    """Say how a process ended, "" where it ended well."""
    if status >= 0:
        return f"it ended with exit status {status}" if status else ""
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    why = ", as the system does it when memory has run out" if name == "SIGKILL" else ""
    return f"it was killed by {name}{why}; what follows is what had been seen shortly before"
