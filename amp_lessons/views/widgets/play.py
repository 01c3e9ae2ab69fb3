"""A slider around a function that the learner has just read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets

from amp_lessons.text.marks import MEASURED_MARK
from amp_lessons.views.base.controls import Slider, row
from amp_lessons.views.base.tour import Stop, Tour
from amp_lessons.views.base.view import View
from amp_lessons.views.figures.play import Panels, panels_picture


class Play(View):
    """Call a function with each value that the slider reaches, and draw what it returns as bars."""

    def __init__(
        self,
        function: Callable[[Any], Panels],
        name: str,
        values: Sequence[Any],
        start: Any,
        *,
        tour: bool = False,
    ) -> None:
        """Play with ``function``, whose one argument, called ``name``, takes ``values``.

        It returns ``{quantity: {precision: number}}``: one panel for each quantity. With ``tour``, somebody
        who has never seen a view is led through it.
        """
        self._function, self._name, self._values = function, name, list(values)
        at = self._values.index(start)
        self._most: dict[str, float] = {}  # of each quantity so far: axes that only grow
        self._slider = Slider(name, 0, len(self._values) - 1, at, words=lambda i: f"{self._values[i]:,}")
        control = row(self._slider)
        super().__init__([control], alt="Bars for each precision.")
        if tour:  # before the function is called, which takes a while: the tour answers at once
            self.children = (self._tour(control), *self.children)
        self._refresh()
        self._slider.observe(self._refresh, "value")

    def _tour(self, control: ipywidgets.Box) -> Tour:
        """Lead through slider, picture and sentence, and leave what they show for the learner to find."""
        first = self._slider.readouts[0]
        return Tour(
            [
                Stop(
                    control,
                    f"This is a slider. Drag it to {first}, or go to it with Tab (Shift+Tab goes back) and "
                    "press Home.",
                    self._slider,
                    done=lambda position: position == 0,
                ),
                Stop(
                    self._page,
                    "The picture has a panel for each quantity, and in it a bar for each precision. The "
                    "sentence below says the same in numbers.",
                ),
                Stop(
                    control,
                    "Go back to the slider and press the right arrow key. The function runs again, and "
                    "the bars are its answer.",
                    self._slider,
                    done=lambda position: position > 0,
                ),
            ],
            "This is how every view works: a control, a picture, a sentence. Now look for the answer.",
        )

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
        self.begin_work(f"{self._name} {self.value:,}")
        with self.answering():
            panels = self._function(self.value)
            for quantity, bars in panels.items():
                self._most[quantity] = max(self._most.get(quantity, 0.0), *bars.values())
            self.show(panels_picture(panels, self._most), self._describe(panels), mark=MEASURED_MARK)

    def _describe(self, panels: Panels) -> str:
        said = "; ".join(
            f"{quantity}: " + ", ".join(f"{precision} {number:,.4g}" for precision, number in bars.items())
            for quantity, bars in panels.items()
        )
        return f"{self._name} {self.value:,}. {said}."
