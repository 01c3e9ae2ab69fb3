"""Watch a script from the moment on at which it has imported PyTorch, and keep what was seen in a file.

Nothing of PyTorch is imported before the script does so: it may set variables that PyTorch reads then.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amp_lessons import files
from amp_lessons.commands.audit.options import Options
from amp_lessons.commands.audit.when_imported import when_imported

if TYPE_CHECKING:
    from amp_lessons.audit import Seen

_PAUSE = 20  # times as long as the last writing took: at most a twentieth of the time goes into it


class EnoughStepsError(SystemExit):
    """As many steps as were asked for: the script ends as by ``sys.exit(0)``, its ``finally`` included."""


class LateAudit:
    """The audit of the process that made it; in processes that fork from it, nothing happens."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._process = os.getpid()
        self._stack = ExitStack()
        self._seen: Seen | None = None
        self._writing = threading.Lock()
        self._next_s = 0.0  # by the monotonic clock
        self._exit = os._exit

    def begin_with_torch(self) -> None:
        """Begin once PyTorch has been imported."""
        when_imported("torch", self._begin)

    def end(self, error: BaseException | None = None) -> None:
        """Stop watching, leave PyTorch as it was, and keep all that was seen; a second call does nothing."""
        if not self._is_ours() or self._seen is None:
            return
        os._exit = self._exit
        self._stack.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
        self._keep()
        self._seen = None

    def _begin(self) -> None:
        if not self._is_ours():
            return
        from amp_lessons import audit

        self._seen = self._stack.enter_context(audit.watch(every=self._options.every))
        self._seen.listen(self._stepped)
        os._exit = self._exit_at_once

    def _stepped(self, index: int, sampled: bool) -> None:
        if not self._is_ours():
            return
        if sampled and time.monotonic() >= self._next_s:
            self._keep()
        if self._options.steps is not None and index + 1 >= self._options.steps:
            raise EnoughStepsError(0)

    def _keep(self) -> None:
        """Write what was seen so far, whole or not at all."""
        if self._seen is None or not self._writing.acquire(timeout=1):
            return
        try:
            start = time.monotonic()
            files.replace(Path(self._options.kept), self._seen.report.as_json())
            now = time.monotonic()
            self._next_s = now + _PAUSE * (now - start)
        finally:
            self._writing.release()

    def _exit_at_once(self, status: int) -> Any:
        """Stand in for ``os._exit``, by which nothing else of Python's is called."""
        if self._is_ours():
            self._keep()
        self._exit(status)

    def _is_ours(self) -> bool:
        return os.getpid() == self._process
