"""A process that runs the parts of one step, and how it is asked, listened to and ended."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_END_S = 10.0


class EndedError(Exception):
    """The child process has ended; the message says how."""


class Child:
    """A process that runs the parts of one step, and adds what it prints to ``log``."""

    def __init__(self, module: str, log: Path) -> None:
        self._log, self._said_before = log, log.stat().st_size if log.exists() else 0
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tools.gpu.child", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env=environment(),
                start_new_session=True,  # so that it can be ended together with all that it has started
            )
        assert self._process.stdin is not None
        self._requests = self._process.stdin
        self._answers: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, request: Any, limit_s: float) -> dict[str, Any]:
        """Return the answer. Raises EndedError, TimeoutError after ``limit_s``, ValueError for nonsense."""
        try:
            self._requests.write(json.dumps(request) + "\n")
            self._requests.flush()
            line = self._answers.get(timeout=max(0.0, limit_s))
        except queue.Empty:
            raise TimeoutError from None
        except BrokenPipeError:
            line = None
        if line is None:
            raise EndedError(self._how_it_ended())
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise ValueError(f"{line!r:.60} is no object")
        return answer

    def end(self) -> None:
        """End the process and all that it has started; nothing happens if it has ended."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with suppress(BrokenPipeError):  # a request that nobody has read
            self._requests.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def _how_it_ended(self) -> str:
        code = self._code()
        how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit status {code}"
        said = self._log.read_bytes()[self._said_before :].decode(errors="replace").split("\n")
        said = [line.strip() for line in said if line.strip()]
        return f"its process ended with {how}" + (f": {said[-1][:300]}" if said else "")

    def _code(self) -> int:
        """Return the status with which the process ended: soon, for it has closed what it answers through."""
        try:
            return self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self.end()
            return self._process.returncode


def environment() -> dict[str, str]:
    """Return this process's environment, with the course on the path of whatever runs in another folder."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path}
