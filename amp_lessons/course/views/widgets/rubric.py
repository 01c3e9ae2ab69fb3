"""What a good answer covers, point by point: a learner ticks what was covered."""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets
from markupsafe import Markup

from amp_lessons._base.text import prose
from amp_lessons.course.views.base.controls import checkbox, focus
from amp_lessons.course.views.base.html import live_region
from amp_lessons.course.views.widgets.quiz import STYLE


class Rubric(ipywidgets.VBox):
    """A box to tick for each point, announced when it appears; above it the answer, if that comes first."""

    def __init__(self) -> None:
        """Show nothing yet."""
        self._answer = ipywidgets.HTML()
        self._points = ipywidgets.VBox()
        super().__init__([self._answer, self._points], layout={"display": "none"})
        self.add_class("amp-quiz")

    @property
    def covered(self) -> tuple[int, ...]:
        """The places of the points that are ticked, from 0."""
        return tuple(i for i, box in enumerate(self._points.children) if box.value)

    def show(self, points: Sequence[str], answer: str = "", weak_answer: str = "") -> None:
        """Show points, none of them ticked, and answers if there are any; move the keyboard to the first."""
        weak = Markup("<p><em>A weak answer:</em> {}</p>").format(prose.as_html(weak_answer))
        model = Markup("<p>{}</p>").format(prose.as_html(answer))
        said = Markup("{}{}<p>A good answer covers this. Tick what you said:</p>")
        said = said.format(model if answer else "", weak if weak_answer else "")
        self._answer.value = STYLE + live_region(said)
        self._points.children = tuple(map(checkbox, points))
        self.layout.display = ""
        focus(self._points.children[0])

    def hide(self) -> None:
        """Put answer and points away."""
        self.layout.display = "none"
        self._answer.value, self._points.children = "", ()
