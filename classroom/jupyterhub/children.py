"""The processes that make up a hub: each started again when it ends, and ended with all that came of them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIBC = ctypes.CDLL(None, use_errno=True)
_MOST_STARTS_A_MINUTE = 5


class EndedError(Exception):
    """A process does not stay up; the message says which, and where to look."""


@dataclass
class Child:
    """One of them: what starts it, and how often that was needed lately. The hub can do without some."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    needed: bool = True
    process: subprocess.Popen[bytes] | None = None
    starts: list[float] = field(default_factory=list)
    given_up: bool = False

    @property
    def runs(self) -> bool:
        """Whether it runs at this moment."""
        return self.process is not None and self.process.poll() is None

    def keep_up(self) -> bool:
        """Start it if it does not run, and say whether that was done. Raises EndedError if it never lasts."""
        if self.runs or self.given_up:
            return False
        self.starts = [each for each in self.starts if time.monotonic() - each < 60] + [time.monotonic()]
        if len(self.starts) > _MOST_STARTS_A_MINUTE:
            self.given_up = True
            if self.needed:
                raise EndedError(f"the {self.name} ends as soon as it is started; see {self.log}")
            return False
        self._start()
        return True

    def end(self, timeout_s: float) -> None:
        """Ask it to end and wait, taking in orphans meanwhile: a hub waits for servers it has adopted."""
        until = time.monotonic() + timeout_s
        if self.runs and self.process:
            self.process.terminate()
        while self.runs and time.monotonic() < until:
            take_in_orphans([self])
            time.sleep(0.05)

    def kill(self) -> None:
        """End it at once."""
        if self.runs and self.process:
            self.process.kill()
            self.process.wait()

    def _start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.log.parent,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=end_with_the_parent,
                start_new_session=True,  # Ctrl-C is for the parent, which then ends them in order
            )


def adopt_orphans() -> None:
    """Become the parent of whatever is orphaned below this process, so that it can be ended with it."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def take_in_orphans(own: Sequence[Child]) -> None:
    """Let orphans that have ended be gone: else a hub that was started anew would take them for alive."""
    pids = {child.process.pid for child in own if child.process}
    for each in psutil.Process().children():
        with suppress(ChildProcessError, psutil.NoSuchProcess):
            if each.pid not in pids and each.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(each.pid, os.WNOHANG)


def end_all_below(timeout_s: float = 10.0) -> None:
    """End whatever is left, until nothing is: what is killed may leave orphans, which come to us."""
    until = time.monotonic() + timeout_s
    while (left := psutil.Process().children(recursive=True)) and time.monotonic() < until:
        for each in left:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.05)


def end_with_the_parent() -> None:
    """Have this process ended, in good order, when its parent is gone: to be called between fork and exec."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
