"""Go through the steps, part by part, each step in a process of its own, and keep what every part came to.

A part that crashes or hangs ends its process and not the run. What was begun is noted before it runs, so that
a part which takes the whole machine down with it is not begun for ever.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from amp_lessons.keeping.from_json import fits
from tools.gpu.found import Place
from tools.gpu.recording import Part, Recording, StepRecord, found_in

ROOT = Path(__file__).resolve().parents[2]
MOST_TRIES = 2
_END_S = 10.0
_START_S = 180.0  # to import PyTorch from a slow disk, and to find out which parts there are

Keep = Callable[[Recording], object]
Say = Callable[[str], object]


@dataclass(frozen=True)
class Step:
    """A step: ``module`` has ``parts(place)``, the names of its parts, and ``run(name, place)``.

    A part is not begun with less than ``usual_s`` seconds left. One that takes longer than ``limit_s`` is
    given up, and the rest of its step left for the next call: what made one hang may make all of them.
    """

    name: str
    module: str
    title: str
    usual_s: float
    limit_s: float


class EndedError(Exception):
    """The child process has ended; the message says how."""


class Child:
    """A process that runs the parts of one step, and adds what it prints to ``log``."""

    def __init__(self, step: Step, log: Path) -> None:
        self._log, self._said_before = log, log.stat().st_size if log.exists() else 0
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tools.gpu.child", step.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env=environment(),
                start_new_session=True,  # so that it can be ended together with all that it has started
            )
        self._answers: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, request: Any, limit_s: float) -> dict[str, Any]:
        """Return the answer. Raises EndedError, TimeoutError after ``limit_s``, ValueError for nonsense."""
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
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
            self._process.stdin.close()

    def _read(self) -> None:
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


@dataclass
class Conductor:
    """One call of ``make gpu``: ``keep`` stores a recording, ``say`` tells somebody who waits.

    ``log`` is where the steps' own words go. ``deadline`` is a time of ``time.monotonic()``, at which
    everything has ended.
    """

    place: Place
    deadline: float
    log: Path
    keep: Keep
    say: Say = print
    commit: str = ""
    left_for_next: list[str] = field(default_factory=list)

    def conduct(self, steps: Iterable[Step], recording: Recording) -> Recording:
        """Run what is outstanding of the steps, in order; return the recording, which was kept each time."""
        for step in steps:
            recording = _Run(self, step, recording).run()
        return recording

    @property
    def left_s(self) -> float:
        """The seconds until the deadline."""
        return self.deadline - time.monotonic()


class _Run:
    """One step of one call."""

    def __init__(self, conductor: Conductor, step: Step, recording: Recording) -> None:
        self._conductor, self._step, self._recording = conductor, step, recording
        self._child: Child | None = None
        self._knows_parts = False

    def run(self) -> Recording:
        """Run what is outstanding; return the recording."""
        if not self._record.is_finished and self._has_time():
            try:
                self._find_parts()
                self._run_parts()
            finally:
                self._end_child()
        self._say_what_is_left()
        return self._recording

    @property
    def _record(self) -> StepRecord:
        return self._recording.step(self._step.name)

    def _store(self, record: StepRecord) -> None:
        self._recording = self._recording.with_step(record)
        self._conductor.keep(self._recording)

    def _has_time(self) -> bool:
        return self._conductor.left_s >= self._step.usual_s

    def _find_parts(self) -> None:
        """Ask which parts there are; what goes wrong stands in the record as a part of its own."""
        try:
            answer = self._started()
        except (EndedError, TimeoutError, ValueError) as error:
            if self._conductor.left_s <= 0:
                return
            answer = {"status": "failed", "message": _in_words(error, _START_S)}
        names = answer.get("parts")
        if isinstance(names, list) and names and fits(tuple(names), tuple[str, ...]):
            self._store(self._record.wanting(tuple(names)))
            self._knows_parts = True
        else:
            trouble = {"status": "failed", "message": "it names no parts", **answer}
            self._note(self._part(self._step.name, trouble, 0.0))

    def _started(self) -> dict[str, Any]:
        """Start a child, and return what it says of its parts."""
        self._child = Child(self._step, self._conductor.log)
        return self._child.ask(asdict(self._conductor.place), min(_START_S, self._conductor.left_s))

    def _run_parts(self) -> None:
        for name in self._record.outstanding if self._knows_parts else ():
            if not self._has_time():
                return
            if self._record.begun.get(name, 0) >= MOST_TRIES:
                self._note(self._given_up(name))
                continue
            part = self._ended(name)
            if part is None:  # the deadline came first
                return
            self._note(part)
            if part.status == "failed":  # after an error of CUDA nothing works any more in that process
                self._end_child()
            if part.status == "cut short":
                return

    def _note(self, part: Part) -> None:
        """Keep what a part came to, and tell it."""
        self._store(self._record.with_part(part))
        self._tell(part)

    def _given_up(self, name: str) -> Part:
        """Return what to record of a part that was begun too often."""
        message = f"begun {MOST_TRIES} times, and each time everything was ended from outside"
        return self._part(name, {"status": "cut short", "message": message}, 0.0)

    def _ended(self, name: str) -> Part | None:
        """Run a part; return what it came to, or None if the deadline ended it."""
        self._store(self._record.beginning(name))
        start, limit_s = time.monotonic(), self._step.limit_s
        try:
            if self._child is None:
                self._started()
            answer = self._child.ask(name, min(limit_s, self._conductor.left_s))
        except TimeoutError as error:
            self._end_child()
            if self._conductor.left_s <= 0:
                self._store(self._record.never_begun(name))
                return None
            answer = {"status": "cut short", "message": _in_words(error, limit_s)}
        except (EndedError, ValueError) as error:
            answer = {"status": "failed", "message": _in_words(error, limit_s)}
        except KeyboardInterrupt:  # somebody's wish, and no fault of the part
            self._store(self._record.never_begun(name))
            raise
        return self._part(name, answer, time.monotonic() - start)

    def _part(self, name: str, answer: dict[str, Any], seconds: float) -> Part:
        """Make a part of an answer, which may be nonsense."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        part = Part(name, "failed", now, self._conductor.commit, round(seconds, 1))
        if "status" in answer:
            status = answer["status"] if answer["status"] in ("not possible", "cut short") else "failed"
            return replace(part, status=status, message=" ".join(str(answer.get("message", "")).split()))
        try:
            return replace(part, status="done", **vars(found_in(answer)))
        except (TypeError, KeyError, AttributeError) as error:
            return replace(part, message=_in_words(error, 0.0))

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None

    def _tell(self, part: Part) -> None:
        wrong = sum(not agreement.agrees for agreement in part.agreements)
        words = f"{wrong} of {len(part.agreements)} disagree" if wrong else part.status
        why = f": {part.message}" if part.message else ""
        self._conductor.say(f"{self._step.name}: {part.name}: {words}{why} ({part.seconds:.0f} s)")

    def _say_what_is_left(self) -> None:
        record = self._record
        left = len(record.untried)
        if left or not (record.wanted or record.parts):
            count = f" ({left} of {len(record.wanted)} parts)" if left else ""
            self._conductor.left_for_next.append(self._step.name + count)


def _in_words(error: Exception, limit_s: float) -> str:
    if isinstance(error, EndedError):
        return str(error)
    if isinstance(error, TimeoutError):
        return f"it took longer than {limit_s:g} seconds"
    return f"it answered with something else than a result ({type(error).__name__}: {error})"
