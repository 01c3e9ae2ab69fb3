"""The texts in which an exception says what happened: its own, and those of what it came from."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from amp_lessons.text.describing import describe


def texts(problem: Any) -> Iterator[str]:
    """Yield what a message, an exception or a recorded warning says, the last raised first.

    A string says itself. Raises TypeError for anything else.
    """
    if isinstance(problem, str):
        yield problem
    elif isinstance(problem, warnings.WarningMessage):
        yield str(problem.message)
    elif isinstance(problem, BaseException):
        yield from map(_text, _chain(problem))
    else:
        raise TypeError(
            f"an exception, a warning or the text of one can be explained, not {describe(problem)}"
        )


def _chain(exception: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its group's members, then what it was raised from or during; each once."""
    seen: set[int] = set()
    waiting = [exception]
    while waiting:
        each = waiting.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        # `raise ... from None` hides the context from readers of a traceback; it may say the cause even so.
        came_from = (*getattr(each, "exceptions", ()), each.__cause__, each.__context__)
        waiting += [other for other in came_from if isinstance(other, BaseException)]


def _text(exception: BaseException) -> str:
    """Return what an exception says, its notes too; an exception of somebody's own may fail to say it."""
    try:
        return "\n".join([str(exception), *map(str, getattr(exception, "__notes__", ()))])
    except Exception:
        return ""
