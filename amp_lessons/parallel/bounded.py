"""The output of a rank: all of a little, the beginning and the end of much."""

from __future__ import annotations

_KEPT_AT_EACH_END = 8_000  # bytes


class BoundedOutput:
    """Bytes that a rank printed: as many as fit, from both ends, however many there are."""

    def __init__(self, kept_at_each_end: int = _KEPT_AT_EACH_END) -> None:
        self._most = kept_at_each_end
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def add(self, chunk: bytes) -> None:
        """Take what comes next."""
        room = self._most - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        excess = max(0, len(self._tail) - self._most)
        del self._tail[:excess]
        self._left_out += excess

    def text(self) -> str:
        """Return what was kept; a line says how much is missing where something is."""
        head, tail = (part.decode("utf-8", "replace") for part in (self._head, self._tail))
        gap = f"\n… {self._left_out:,} bytes left out …\n" if self._left_out else ""
        return head + gap + tail
