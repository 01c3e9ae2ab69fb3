"""The process that runs the parts of one step: it reads the names of parts, and answers each with a line.

``python -m tools.gpu.child MODULE`` is started by ``conductor``. The first line it reads is the place to
measure at, which it answers with the names of all parts; every other line is the name of one. It ends, and
with it whatever it has started, when nobody is left to answer, be it because the conductor was killed.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import IO, Any

from tools.gpu.found import Found, NotPossibleError, Place

OWN_PACKAGES = ("amp_lessons", "tools", "tests")
LONGEST_MESSAGE = 400


def main(module: str) -> None:
    """Answer until the last line was read."""
    answers, requests = _only_for_answers(), _requests()
    place = Place(**json.loads(requests.get()))
    _answer(answers, partial(_parts, module, place))
    while True:
        _answer(answers, partial(_run, module, json.loads(requests.get()), place))


def _only_for_answers() -> IO[str]:
    """Keep standard output for answers: whatever a step prints goes where its errors go."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def _requests() -> queue.Queue[str]:
    """Read lines in a thread of its own, which notices at once when the other end has gone."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        _end_all()

    threading.Thread(target=read, daemon=True).start()
    return lines


def _end_all() -> None:
    """End this process and its group, if that is its own."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def _answer(answers: IO[str], ask: Callable[[], dict[str, Any]]) -> None:
    """Write one line: what was asked for, or what went wrong."""
    try:
        answer = ask()
    except Exception as error:
        traceback.print_exc()
        answer = {"status": _status(error), "message": message(error), **asdict(Found())}
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _parts(module: str, place: Place) -> dict[str, Any]:
    return {"parts": list(importlib.import_module(module).parts(place))}


def _run(module: str, name: str, place: Place) -> dict[str, Any]:
    return asdict(importlib.import_module(module).run(name, place))


def _status(error: Exception) -> str:
    """Tell what a machine lacks from what went wrong; a module of our own is lacking nowhere."""
    if isinstance(error, ModuleNotFoundError):
        return "failed" if str(error.name).partition(".")[0] in OWN_PACKAGES else "not possible"
    return "not possible" if isinstance(error, NotPossibleError) else "failed"


def message(error: Exception) -> str:
    """Say in one line what went wrong, and where unless it is something that is lacking."""
    words = " ".join(str(error).split())[:LONGEST_MESSAGE]
    if isinstance(error, NotPossibleError):
        return words
    if isinstance(error, ModuleNotFoundError):
        return f"this Python lacks {error.name}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {words} ({os.path.basename(frame.filename)}, line {frame.lineno})"


if __name__ == "__main__":
    main(sys.argv[1])
