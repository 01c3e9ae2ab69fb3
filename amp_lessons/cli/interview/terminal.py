"""Asking in a terminal, or whoever writes into the pipe, and saying what there is to say in 80 columns."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable

_MOST_COLUMNS = 80
_LEAVE = ("q", "quit", "exit")
_TAKE_BACK = ("u", "undo")
_WHICH = "Which did you cover? Numbers such as 1 3, all, or Enter for none:"
HOW_TO_LEAVE = "q ends it, if you say so twice, and Ctrl-D at once; what you answered is kept."


class InputOver(Exception):  # noqa: N818 - it is no error: nobody answers any more
    """The input has come to its end: q, Ctrl-D, or the last line of a pipe."""


class TakenBack(Exception):  # noqa: N818 - it is no error: somebody's finger slipped
    """Whoever answers wants to take the answer before back."""


def columns() -> int:
    """Return how wide lines may be: as the terminal is, and 80 at most."""
    return max(20, min(_MOST_COLUMNS, shutil.get_terminal_size().columns))


def say(text: str = "", first: str = "", then: str | None = None) -> None:
    """Print a paragraph, its lines begun by ``first`` and ``then``, which is as many blanks by default."""
    then = " " * len(first) if then is None else then
    lines = textwrap.wrap(
        text,
        columns(),
        initial_indent=first,
        subsequent_indent=then,
        break_on_hyphens=False,
    )
    print("\n".join(lines), flush=True)


def say_list(items: Iterable[str], first: int = 1) -> None:
    """Print items, numbered from ``first``."""
    for number, item in enumerate(items, start=first):
        say(item, f"  {number}. ")


def rule(title: str) -> None:
    """Print a line that parts what follows from what was."""
    print(f"\n--- {title} ".ljust(columns(), "-"), flush=True)


def ask(prompt: str, *, may_undo: bool = False) -> str:
    """Return the answer to a question, without blanks at its ends.

    Raises InputOver for q, and for none; where one ``may_undo``, TakenBack for u. After a q it is asked
    whether that was meant; if not, the question is asked again.
    """
    while (answer := _line(prompt)).lower() in _LEAVE:
        if _line("End it here? y ends it, Enter goes on:").lower() in ("y", "yes", *_LEAVE):
            raise InputOver
    if may_undo and answer.lower() in _TAKE_BACK:
        raise TakenBack
    return answer


def started(what: str) -> bool:
    """Wait for Enter, with which a clock starts; False where nobody wants to begin."""
    try:
        wants = _line(f"Press Enter to start {what}:").lower() not in _LEAVE
    except InputOver:
        wants = False
    if not wants:
        say("Nothing was started.")
    return wants


def _line(prompt: str) -> str:
    try:
        answer = input(f"{prompt} ")
    except EOFError:
        print(flush=True)
        raise InputOver from None
    if not sys.stdin.isatty():
        print(answer, flush=True)  # nobody has typed it, and the line has no end yet
    return answer.strip()


def ask_for(prompt: str, known: Iterable[str], default: str = "", *, may_undo: bool = False) -> str:
    """Ask until the answer is one of ``known``, or begins as only one of them does; Enter is ``default``."""
    names = tuple(known)
    while True:
        answer = ask(prompt, may_undo=may_undo).lower() or default
        found = [name for name in names if name.startswith(answer)] if answer else []
        if answer in names or len(found) == 1:
            return answer if answer in names else found[0]
        say(f"Answer with one of: {', '.join(names)}.")


def ask_points(points: tuple[str, ...]) -> tuple[int, ...]:
    """Ask which points were covered; return their places from 0."""
    while True:
        answer = ask(_WHICH, may_undo=True).lower()
        if answer == "all":
            return tuple(range(len(points)))
        words = [_places(word) for word in re.sub(r"\s*-\s*", "-", answer.replace(",", " ")).split()]
        if all(each and each[0] >= 1 and each[-1] <= len(points) for each in words):
            return tuple(sorted({number - 1 for each in words for number in each}))
        say(f"Answer with numbers from 1 to {len(points)}, such as 1 3 or 1-3, with all, or with nothing.")


def _places(word: str) -> range:
    """Read ``3``, or ``1-3``; anything else is no place."""
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", word)
    return range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
