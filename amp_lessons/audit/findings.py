"""Findings of a check or of an audit: plain frozen dataclasses with a stable code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

FindingKind = Literal["passed", "failed", "note", "todo"]
INPUT_OF = "input of "  # before a module's name, in a frame of what it was given


@dataclass(frozen=True)
class Finding:
    """One thing that was seen: a stable ``code``, what was seen and why it matters, and what to try next.

    ``kind`` tells a requirement that holds (``passed``), one that does not (``failed``), a remark on style
    that costs nothing (``note``) and an exercise nobody has started (``todo``) apart.
    """

    code: str
    kind: FindingKind
    message: str
    hint: str = ""

    @property
    def ok(self) -> bool:
        """Whether this finding leaves the exercise solved."""
        return self.kind in ("passed", "note")


@dataclass(frozen=True)
class Place:
    """A line of somebody's own code: the file, the line's number from 1, and what stands there."""

    file: str
    line: int
    source: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def shown(self) -> str:
        """The line, and what stands there."""
        source = self.source.replace("`", "'")
        return f"{self}  `{source}`" if source else f"{self}"


@dataclass(frozen=True)
class Sighting(Finding):
    """A finding in somebody's own training: how sure it is, where it was seen, and when.

    ``likely`` says why a finding is only probable; it is empty where what the message says has happened.
    ``count`` is how often it was seen, ``first_step`` before which optimizer step, from 0, it was first;
    ``lesson`` is the number of the lesson that explains it, ``ranks`` are those that saw it, of several;
    ``count`` is then that of the rank that saw it most often.
    """

    JSON_KEYS: ClassVar = (
        "code", "kind", "message", "hint", "certainty", "likely", "place", "count", "first_step", "lesson",
        "ranks",
    )  # fmt: skip

    likely: str = ""
    place: Place | None = None
    count: int = 1
    first_step: int = 0
    lesson: str = ""
    ranks: tuple[int, ...] = ()

    @property
    def certainty(self) -> Literal["seen", "likely"]:
        """Say ``seen`` of what has happened, ``likely`` of what the signs speak for."""
        return "likely" if self.likely else "seen"


def passed(code: str, message: str) -> Finding:
    """Make the finding of a requirement that holds."""
    return Finding(code, "passed", message)


def failed(code: str, message: str, hint: str) -> Finding:
    """Make the finding of a requirement that does not hold."""
    return Finding(code, "failed", message, hint)


def note(code: str, message: str, hint: str = "") -> Finding:
    """Make a remark that does not stop the exercise from being solved."""
    return Finding(code, "note", message, hint)


def todo(message: str) -> Finding:
    """Make the finding of an exercise that has not been started."""
    return Finding("not_attempted", "todo", message)


def first(mistakes: Iterable[Finding]) -> Finding | None:
    """Return the first of ``mistakes``, the root cause, None when there is none.

    They are looked for one after another: whoever looks later may take for granted that nothing was found
    before.
    """
    return next(iter(mistakes), None)
