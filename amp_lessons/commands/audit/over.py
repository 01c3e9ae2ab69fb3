"""Watch over the process that runs the script, and stay out of its way."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from amp_lessons.commands.audit.options import Options


def run_child(options: Options, arguments: Sequence[str]) -> int:
    """Run the script with ``arguments``; return its exit status, or minus the signal that ended it.

    It has this process's input, output, terminal and environment.
    """
    command = [sys.executable, "-m", "amp_lessons.commands.audit.child", options.as_argument(), *arguments]
    sys.stdout.flush()
    with (
        _interruptions_left_to_the_script(),
        subprocess.Popen(command) as child,
        _handing_on(signal.SIGTERM, child),
    ):
        return child.wait()


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

    def hand_on(received: int, _frame: FrameType | None) -> None:
        child.send_signal(received)

    before = signal.signal(signum, hand_on)
    try:
        yield
    finally:
        signal.signal(signum, before)
