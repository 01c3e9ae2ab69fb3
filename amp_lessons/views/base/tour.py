"""Leading a newcomer by the hand through the controls of a view, one stop at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets
from markupsafe import Markup

from amp_lessons.views.base.controls import button, row
from amp_lessons.views.base.picture import CAPTION_STYLE
from amp_lessons.views.base.style import ACCENT

HERE = "amp-tour-here"
# Inside the box: what reaches beyond its edge is cut off by JupyterLab.
STYLE = Markup(
    f"<style>.{HERE} {{ outline: 3px solid {ACCENT}; outline-offset: -3px; padding: 6px }}</style>"
)


@dataclass(frozen=True)
class Stop:
    """One stop of a tour: the widget to look at, and what to do or see there.

    Where something is to be done, ``done`` says of the value of ``control`` whether it was; then the tour
    goes on by itself. Elsewhere the learner presses Next. What is outlined, ``at``, is not ``control`` but a
    box around it: the page of a widget ignores new classes that answer its own change.
    """

    at: ipywidgets.DOMWidget
    text: str
    control: ipywidgets.Widget | None = None
    done: Callable[[Any], bool] | None = None


class Tour(ipywidgets.VBox):
    """A sentence at a time, with an outline around what it is about.

    The sentences are announced to a screen reader. Everything is a button: Tab and Enter are enough, and the
    tour stands above what it leads through, so that Tab goes from it to the control in question.
    """

    def __init__(self, stops: Sequence[Stop], farewell: str) -> None:
        """Stand at the first of ``stops``; ``farewell`` is said after the last."""
        self._stops, self._farewell = list(stops), farewell
        self._at = 0
        self._sentence = ipywidgets.HTML()
        self._next = button("Next", "the next stop of the tour")
        self._leave = button("End the tour", "you can take it again")
        self._next.on_click(lambda _: self._go_to(self._at + 1))
        self._leave.on_click(lambda _: self._go_to(len(self._stops)))
        super().__init__([self._sentence, row(self._next, self._leave)])
        for stop in self._stops:
            if stop.control is not None:
                stop.control.observe(self._something_done, "value")
        self._go_to(0)

    @property
    def sentence(self) -> str:
        """What the tour says now."""
        if self._at == len(self._stops):
            return self._farewell
        return f"{self._at + 1} of {len(self._stops)}. {self._stops[self._at].text}"

    def _go_to(self, at: int) -> None:
        """Go to a stop; behind the last, Next begins again."""
        self._at = at if at <= len(self._stops) else 0
        over = self._at == len(self._stops)
        self._next.description = "Show me around again" if over else "Next"
        self._leave.layout.display = "none" if over else ""
        for stop in self._stops:
            stop.at.remove_class(HERE)
        if not over:
            self._stops[self._at].at.add_class(HERE)
        self._sentence.value = Markup('{}<p aria-live="polite" style="margin:0;{}">{}</p>').format(
            STYLE, CAPTION_STYLE, self.sentence
        )

    def _something_done(self, change: dict[str, Any]) -> None:
        if self._at == len(self._stops):
            return
        stop = self._stops[self._at]
        if stop.control is change["owner"] and stop.done is not None and stop.done(change["new"]):
            self._go_to(self._at + 1)
