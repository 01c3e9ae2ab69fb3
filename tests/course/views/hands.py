"""What a learner's hands do to a view, and what eyes find there, without a page."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import ipywidgets
from matplotlib.axes import Axes


def press(view: ipywidgets.Widget, label: str) -> None:
    """Press the view's one button with this label."""
    (found,) = (each for each in within(view) if getattr(each, "description", None) == label)
    assert not found.disabled
    found.click()


def within(widget: ipywidgets.Widget) -> Iterator[ipywidgets.Widget]:
    """Yield all widgets that a widget shows, its own children first."""
    for child in getattr(widget, "children", ()):
        yield child
        yield from within(child)


def written(axes: Axes) -> list[str]:
    """Return the words on axes, but for ticks and titles."""
    return [text.get_text().strip() for text in axes.texts]


def readable(page: str) -> str:
    """Return the text of some HTML, without tags and style sheets."""
    return " ".join(html.unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)).split())


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at
