"""A slider around a function that the learner has just read, and the tour that leads through its controls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from amp_lessons.text.words import MEASURED_MARK, superscripts
from amp_lessons.views.base.controls import Slider, button, row
from amp_lessons.views.base.picture import CAPTION_STYLE, Picture
from amp_lessons.views.base.style import ACCENT, INK, dtype_colour, house_style
from amp_lessons.views.base.view import View

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

    needs_a_kernel = True

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
        """Return a tour of slider, picture and sentence; what they show is left for the learner to find."""
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


Panels = Mapping[str, Mapping[str, float]]


def panels_picture(panels: Panels, most: Mapping[str, float]) -> Picture:
    """Draw one panel for each quantity, whose name carries its unit, with a bar for each precision.

    The axis of a quantity has room for the number that it has in ``most``: pictures with the same one can be
    compared.
    """
    with house_style():
        figure = Figure(figsize=(9, 0.75 + 0.42 * max(len(bars) for bars in panels.values())))
        every_axes = figure.subplots(1, len(panels), squeeze=False)[0]
        figure.subplots_adjust(left=0.07, right=0.985, top=0.80, bottom=0.06, wspace=0.28)
        for axes, (quantity, bars) in zip(every_axes, panels.items(), strict=True):
            _draw_panel(axes, quantity, bars, most[quantity])
    return Picture(figure)


def _draw_panel(axes: Axes, quantity: str, bars: Mapping[str, float], most: float) -> None:
    names, values = list(bars), list(bars.values())
    axes.barh(names, values, color=[dtype_colour(name) for name in names], height=0.62)
    for place, value in enumerate(values):
        axes.text(value, place, superscripts(f" {value:,.4g}"), va="center", color=INK)
    axes.set_xlim(0, 1.3 * max(most, 1e-12))
    axes.invert_yaxis()
    axes.set_title(quantity)
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xticks([])
