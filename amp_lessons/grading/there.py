"""Beyond the wall: define what a learner has written, and call it when asked. No check is here."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from amp_lessons.grading import frames
from amp_lessons.grading.plain_data import decoded, encoded

FILE = "<submission>"


def main() -> None:
    """Serve one attempt: first its source and the name to be called, then call by call."""
    incoming, outgoing = map(int, sys.argv[1:3])
    request = frames.read(incoming)
    os.makedirs(os.environ["AMP_LESSONS_HOME"], exist_ok=True)
    import_module("torch")  # that takes time which is not the learner's
    frames.write(outgoing, {"ready": True})
    try:
        namespace = defined(request["source"])
    except Exception as error:
        frames.write(outgoing, {"raised": said_of(error)})
        return
    attempt: Any = namespace.get(request["name"])
    frames.write(outgoing, _described(attempt))
    while True:
        frames.write(outgoing, _answer(attempt, frames.read(incoming)))


def defined(source: str) -> dict[str, Any]:
    """Run ``source`` as a cell of a notebook; return what it defines. Raises what it raises."""
    linecache.cache[FILE] = (len(source), None, source.splitlines(True), FILE)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, FILE, "exec"), namespace)
    return namespace


def _described(attempt: Any) -> dict[str, Any]:
    if not callable(attempt):
        return {"value": encoded(attempt)}
    try:
        parameters = inspect.signature(attempt).parameters.values()
    except (TypeError, ValueError):
        return {"parameters": [["args", 2, False], ["kwargs", 4, False]]}
    return {
        "parameters": [[each.name, int(each.kind), each.default is not each.empty] for each in parameters]
    }


def _answer(attempt: Callable[..., Any], call: dict[str, Any]) -> dict[str, Any]:
    """Call it; what it has made of its arguments goes back too."""
    args, kwargs = decoded(call["args"]), decoded(call["kwargs"])
    try:
        answer: dict[str, Any] = {"returned": encoded(attempt(*args, **kwargs))}
    except Exception as error:
        answer = {"raised": said_of(error)}
    return {**answer, "args": encoded(args)}


def said_of(error: BaseException) -> list[str]:
    """Return the name of an exception, its text, and the last line of the submission that it came through."""
    trace, line = error.__traceback__, ""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = linecache.getline(FILE, trace.tb_lineno).strip()
        trace = trace.tb_next
    try:
        text = str(error)
    except Exception:
        text = ""
    return [type(error).__name__, text[:500], line[:200]]


if __name__ == "__main__":
    main()
