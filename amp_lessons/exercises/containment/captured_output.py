"""What learner's code prints: counted, kept up to a limit, and never mixed with the notebook's own output."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator

_PRINTED_CHARACTERS = 2000


class BoundedText(io.TextIOBase):
    """A text stream that counts everything and keeps the first ``limit`` characters."""

    def __init__(self, limit: int = _PRINTED_CHARACTERS) -> None:
        self._limit = limit
        self._kept: list[str] = []
        self._room = limit
        self.characters = 0

    def writable(self) -> bool:
        """Say that this stream takes text."""
        return True

    def write(self, text: str) -> int:
        """Take ``text``, keeping only what still fits."""
        self.characters += len(text)
        if self._room > 0:
            self._kept.append(text[: self._room])
            self._room -= len(text)
        return len(text)

    def text(self) -> str:
        """Return what was kept, saying how much was not."""
        kept = "".join(self._kept).rstrip("\n")
        dropped = self.characters - self._limit
        return f"{kept}\n… and {dropped:,} more characters" if dropped > 0 else kept


@contextlib.contextmanager
def captured(output: BoundedText) -> Iterator[None]:
    """Send what is printed to ``output``; reading from the keyboard finds nothing."""
    stdin = sys.stdin
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            sys.stdin = io.StringIO()
            yield
        finally:
            sys.stdin = stdin
