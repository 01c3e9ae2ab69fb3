"""Frames packed: states of one view have most of their text in common, and each line of it is kept once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amp_lessons.course.views.base.states import State

LONG = 100  # characters from which on a text is worth a place of its own
Frame = dict[str, State]  # what is shown, by the number of the widget


class Pack:
    """Texts and frames of one file: ``{lines, texts, frames}``.

    A long text is what its lines are joined by and their numbers; in a frame stands ``{"#": its number}``. Of
    an outline the lines are its points.
    """

    def __init__(self) -> None:
        self._lines: dict[str, int] = {}
        self._texts: dict[tuple[str | int, ...], int] = {}
        self._frames: dict[str, Any] = {}

    def add(self, name: str, frame: Any) -> None:
        """Add a frame."""
        self._frames[name] = self._packed(frame)

    def packed(self) -> dict[str, Any]:
        """Return what the page unpacks (``views.js``)."""
        return {"lines": list(self._lines), "texts": list(self._texts), "frames": self._frames}

    def _packed(self, value: Any) -> Any:
        if isinstance(value, str) and len(value) > LONG:
            return {"#": self._text(str(value))}
        if isinstance(value, Mapping):
            return {key: self._packed(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._packed(each) for each in value]
        return value

    def _text(self, text: str) -> int:
        between = "\n" if "\n" in text else "L"
        lines = (self._lines.setdefault(line, len(self._lines)) for line in text.split(between))
        return self._texts.setdefault((between, *lines), len(self._texts))


def differences(frame: Frame, base: Frame) -> Frame:
    """Return what of a frame is not as in ``base``."""
    changed = {
        number: {name: value for name, value in state.items() if base[number].get(name) != value}
        for number, state in frame.items()
    }
    return {number: state for number, state in changed.items() if state}
