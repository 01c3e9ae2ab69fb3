"""What a learner's hands do to a view, without a page."""

from __future__ import annotations

from collections.abc import Iterator

import ipywidgets


def press(view: ipywidgets.Widget, label: str) -> None:
    """Press the view's one button with this label."""
    (found,) = (each for each in _within(view) if getattr(each, "description", None) == label)
    found.click()


def _within(widget: ipywidgets.Widget) -> Iterator[ipywidgets.Widget]:
    for child in getattr(widget, "children", ()):
        yield child
        yield from _within(child)
