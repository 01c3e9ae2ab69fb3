"""A slider around a function that the learner has just read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amp_lessons.text.marks import MEASURED_MARK
from amp_lessons.views.base.controls import Slider
from amp_lessons.views.base.view import View
from amp_lessons.views.figures.play import Panels, panels_picture


class Play(View):
    """Call a function with each value that the slider reaches, and draw what it returns as bars."""

    def __init__(
        self, function: Callable[[Any], Panels], name: str, values: Sequence[Any], start: Any
    ) -> None:
        """Play with ``function``, whose one argument, called ``name``, takes ``values``.

        It returns ``{quantity: {precision: number}}``: one panel for each quantity.
        """
        self._function, self._name, self._values = function, name, list(values)
        at = self._values.index(start)
        self._slider = Slider(name, 0, len(self._values) - 1, at, words=lambda i: f"{self._values[i]:,}")
        super().__init__([self._slider], alt="Bars for each precision.")
        self._refresh()
        self._slider.observe(self._refresh, "value")

    @property
    def value(self) -> Any:
        """The value that the slider stands on."""
        return self._values[self._slider.value]

    @value.setter
    def value(self, value: Any) -> None:
        if value not in self._values:
            raise ValueError(f"{self._name} is one of {', '.join(map(str, self._values))}, not {value!r}")
        self._slider.value = self._values.index(value)

    def _refresh(self, _change: object = None) -> None:
        with self.answering():
            panels = self._function(self.value)
            self.show(panels_picture(panels), self._describe(panels), mark=MEASURED_MARK)

    def _describe(self, panels: Panels) -> str:
        said = "; ".join(
            f"{quantity}: " + ", ".join(f"{precision} {number:,.4g}" for precision, number in bars.items())
            for quantity, bars in panels.items()
        )
        return f"{self._name} {self.value:,}. {said}."
