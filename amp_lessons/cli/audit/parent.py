"""The process that starts the script's: what it hands over, how it waits, and what it makes of the end.

It stays out of the script's way, and never loads PyTorch.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from amp_lessons.audit.report.report import Report


@dataclass(frozen=True)
class Options:
    """Where the child keeps what it has seen, how closely it looks, when it ends, what it runs, and its log.

    ``trial`` says what it changes in the training (``audit.trying.Trial``), None to leave it alone.
    """

    kept: str
    every: int
    steps: int | None
    script: str | None
    module: str | None
    log: str | None = None
    trial: dict[str, Any] | None = None


_POLL_S = 0.1
_ENDS_BY_ITSELF_S = 5.0  # a script whose peer has gone: gloo's next call raises, and says more than a signal
_KILLED_AFTER_S = 30.0  # as torchrun does it
_CHILD = "amp_lessons.cli.audit.child"


def child_command(options: Any, arguments: Sequence[str], child: str = _CHILD) -> list[str]:
    """Return the command that starts a child: its module, its options, a dataclass, the script's arguments.

    Options go on the command line, because a variable would reach the script's own children.
    """
    return [sys.executable, "-m", child, json.dumps(asdict(options)), *arguments]


def run_child(
    options: Any,
    arguments: Sequence[str],
    peer_failed: Callable[[], bool] | None = None,
    child: str = _CHILD,
) -> int:
    """Run the script with ``arguments``; return its exit status, or minus the signal that ended it.

    It has this process's input, output, terminal and environment. Where ``peer_failed`` becomes true, it is
    ended too, if it does not end by itself. ``child`` is the module that runs it.
    """
    sys.stdout.flush()
    with _started(child_command(options, arguments, child)) as process:
        if peer_failed is None:
            return process.wait()
        while not _ends_within(_POLL_S, process) and not peer_failed():
            pass
        if not _ends_within(_ENDS_BY_ITSELF_S, process):
            process.terminate()
        if not _ends_within(_KILLED_AFTER_S, process):
            process.kill()
        return process.wait()


def _ends_within(seconds: float, child: subprocess.Popen[bytes]) -> bool:
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


@contextmanager
def outliving_sigterm() -> Iterator[threading.Event]:
    """Keep running at SIGTERM, which sets the event: what was seen is still to be reported.

    Afterwards it is ignored: a launcher that sees another rank end with 1 sends it to those about to do so.
    """
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    try:
        yield asked
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextmanager
def _started(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start the child, and leave signals to it until it has ended.

    The terminal sends Ctrl-C to both, and the script decides what becomes of it; SIGTERM is passed on.
    """

    def pass_on(received: int, frame: FrameType | None) -> None:
        process.send_signal(received)
        if callable(at_sigterm):
            at_sigterm(received, frame)

    at_ctrl_c = signal.signal(signal.SIGINT, lambda *_: None)  # SIG_IGN would stay so in the child
    try:
        with subprocess.Popen(command) as process:
            at_sigterm = signal.signal(signal.SIGTERM, pass_on)
            try:
                yield process
            finally:
                signal.signal(signal.SIGTERM, at_sigterm)
    finally:
        signal.signal(signal.SIGINT, at_ctrl_c)


CLEAN, MISTAKES, NOT_RUN = 0, 1, 2
INTERRUPTED = 130  # what shells report of a program that Ctrl-C has ended

_NEVER_BEGAN = "the script ended before it had imported PyTorch"
_ENDED_BEFORE_A_STEP = "the script ended before any optimizer had taken a step: nothing was trained yet"
_NO_STEP = (
    "no optimizer took a step in the script's own process: of a loop that changes weights by hand nothing "
    "can be said, and what other processes train that the script started is not seen (torchrun … -m "
    "amp_lessons audit SCRIPT audits every rank)"
)


def report_of(kept: Path, of: str, status: int) -> Report:
    """Return the report of ``of``, as far as the child has kept it in ``kept``; ``status`` is the child's."""
    if not kept.exists():
        return Report((), of=of, ended=_say_status(status), not_seen=(_NEVER_BEGAN,))
    report = Report.from_json(kept.read_text("utf-8"))
    report = replace(report, of=of, ended=report.ended or _say_status(status))
    return (
        report if report.steps else and_not_seen(report, _ENDED_BEFORE_A_STEP if report.ended else _NO_STEP)
    )


def and_not_seen(report: Report, *sentences: str) -> Report:
    """Return a report that says besides what was not seen."""
    return replace(report, not_seen=(*report.not_seen, *sentences))


def exit_status(report: Report, status: int) -> int:
    """Return the command's exit status: mistakes come first, then how the script itself ended."""
    if not report.passed:
        return MISTAKES
    if status in (INTERRUPTED, -signal.SIGINT):
        return INTERRUPTED
    trained = any(step.happened for step in report.steps)
    return CLEAN if status == 0 and trained else NOT_RUN


def _say_status(status: int) -> str:
    """Describe how a process ended, "" where it ended well."""
    if status >= 0:
        return f"it ended with exit status {status}" if status else ""
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    why = ", as the system does it when memory has run out" if name == "SIGKILL" else ""
    return f"it was killed by {name}{why}; what follows is what had been seen shortly before"
