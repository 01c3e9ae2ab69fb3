"""The controls that views share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets


class Slider(anywidget.AnyWidget):
    """A slider over whole numbers with a label, a readout in words and a name for screen readers."""

    _esm = Path(__file__).with_name("slider.js")
    _css = Path(__file__).with_name("slider.css")
    label = traitlets.Unicode().tag(sync=True)
    min = traitlets.Int(0).tag(sync=True)
    max = traitlets.Int(100).tag(sync=True)
    value = traitlets.Int(0).tag(sync=True)
    readout = traitlets.Unicode().tag(sync=True)
    disabled = traitlets.Bool(False).tag(sync=True)

    def __init__(
        self, label: str, minimum: int, maximum: int, value: int, words: Callable[[int], str] = str
    ) -> None:
        """Make a slider from ``minimum`` to ``maximum``; ``words`` turns a position into the readout."""
        self._words = words
        super().__init__(label=label, min=minimum, max=maximum, value=value, readout=words(value))

    @traitlets.validate("value")
    def _keep_inside(self, proposal: dict[str, Any]) -> int:
        return max(self.min, min(self.max, proposal["value"]))

    @traitlets.observe("value")
    def _say(self, change: dict[str, Any]) -> None:
        self.readout = self._words(change["new"])


def text_field(label: str, value: str, placeholder: str = "") -> ipywidgets.Text:
    """Return a field for typing, which reports when the learner presses Enter or leaves it."""
    return ipywidgets.Text(
        value=value,
        description=label,
        placeholder=placeholder,
        continuous_update=False,
        style={"description_width": "initial"},
        layout={"width": "230px"},
    )


def dropdown(label: str, options: list[Any], value: Any) -> ipywidgets.Dropdown:
    """Return a labelled dropdown, as wide as its label and options need."""
    return ipywidgets.Dropdown(
        options=options,
        value=value,
        description=label,
        style={"description_width": "initial"},
        layout={"width": "auto"},
    )


def button(text: str, hint: str = "") -> ipywidgets.Button:
    """Return a push button that is as wide as its text."""
    return ipywidgets.Button(description=text, tooltip=hint, layout={"width": "auto"})
