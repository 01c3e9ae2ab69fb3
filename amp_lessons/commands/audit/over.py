"""Watch over the process that runs the script, and stay out of its way."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from amp_lessons.commands.audit.options import Options

_POLL_S = 0.1
_ENDS_BY_ITSELF_S = 5.0  # a script whose peer has gone: gloo's next call raises, and says more than a signal
_KILLED_AFTER_S = 30.0  # as torchrun does it


def run_child(
    options: Options, arguments: Sequence[str], peer_failed: Callable[[], bool] | None = None
) -> int:
    """Run the script with ``arguments``; return its exit status, or minus the signal that ended it.

    It has this process's input, output, terminal and environment. Where ``peer_failed`` becomes true, it is
    ended too, if it does not end by itself.
    """
    command = [sys.executable, "-m", "amp_lessons.commands.audit.child", options.as_argument(), *arguments]
    sys.stdout.flush()
    with (
        _interruptions_left_to_the_script(),
        subprocess.Popen(command) as child,
        _handing_on(signal.SIGTERM, child),
    ):
        return child.wait() if peer_failed is None else _wait_among_peers(child, peer_failed)


def _wait_among_peers(child: subprocess.Popen[bytes], peer_failed: Callable[[], bool]) -> int:
    while not _waited(child, _POLL_S):
        if peer_failed():
            break
    if not _waited(child, _ENDS_BY_ITSELF_S):
        child.terminate()
    if not _waited(child, _KILLED_AFTER_S):
        child.kill()
    return child.wait()


def _waited(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the child has ended, waiting so long for it."""
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


@contextmanager
def outliving_sigterm() -> Iterator[threading.Event]:
    """Go on at SIGTERM, which sets the event: what was seen is still to be told.

    Afterwards it is ignored: a launcher that sees another rank end with 1 sends it to those about to do so.
    """
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    try:
        yield asked
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextmanager
def _interruptions_left_to_the_script() -> Iterator[None]:
    """Go on at Ctrl-C, which the terminal sends to both: the script decides what becomes of it.

    A handler, not SIG_IGN: what is ignored stays so in a child.
    """
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _handing_on(signum: signal.Signals, child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Hand a signal that is meant for both to the child: whoever ends this process means the script."""

    def hand_on(received: int, frame: FrameType | None) -> None:
        child.send_signal(received)
        if callable(before):
            before(received, frame)

    before = signal.signal(signum, hand_on)
    try:
        yield
    finally:
        signal.signal(signum, before)
