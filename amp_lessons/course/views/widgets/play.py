"""A slider around a function that the learner has just read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import INK, dtype_colour, house_style
from amp_lessons._base.text.words import MEASURED_MARK, percent, superscripts
from amp_lessons.course.views.base.controls import Slider, row
from amp_lessons.course.views.base.view import View

Panels = Mapping[str, Mapping[str, float]]


class Play(View):
    """Draw what a function returns for each value of a slider, as bars beside that of the first precision."""

    def __init__(
        self,
        function: Callable[[Any], Panels],
        name: str,
        values: Sequence[Any],
        start: Any,
        *,
        measured: bool = False,
    ) -> None:
        """Call ``function``, whose one argument is called ``name``, with all ``values``; stand at ``start``.

        It returns ``{quantity: {precision: number}}``: one panel for each quantity, in which a bar is as long
        as its number is beside the first one. What its ValueError or TypeError says is a value's caption.
        ``measured`` says that the numbers are this machine's.
        """
        self._name, self._values = name, list(values)
        self._mark_of_numbers = MEASURED_MARK if measured else ""
        self._answers = {value: _answer(function, value) for value in self._values}
        at = self._values.index(start)
        self._slider = Slider(name, 0, len(self._values) - 1, at, words=lambda i: f"{self._values[i]:,}")
        super().__init__([row(self._slider)], alt="Bars for each precision.")
        self._refresh()
        self.follow(self._refresh, self._slider)

    @property
    def value(self) -> Any:
        """The value that the slider stands on."""
        return self._values[self._slider.value]

    @value.setter
    def value(self, value: Any) -> None:
        if value not in self._values:
            raise ValueError(f"{self._name} is one of {', '.join(map(str, self._values))}, not {value!r}")
        self._slider.value = self._values.index(value)

    def _refresh(self) -> None:
        panels = self._answers[self.value]
        if isinstance(panels, str):
            self.say(panels)
        else:
            picture = Picture(_figure(panels), narrow=lambda: Picture(_figure(panels, for_a_phone=True)))
            self.show(picture, f"{self._mark_of_numbers} {self._describe(panels)}".lstrip())

    def _describe(self, panels: Panels) -> str:
        said = "; ".join(
            f"{quantity}: "
            + ", ".join(f"{precision} {words}" for precision, words in _in_words(bars).items())
            for quantity, bars in panels.items()
        )
        return f"{self._name} {self.value:,}. {said}."


def _answer(function: Callable[[Any], Panels], value: Any) -> Panels | str:
    try:
        return function(value)
    except (ValueError, TypeError) as error:
        return str(error)


def _in_words(bars: Mapping[str, float]) -> dict[str, str]:
    """Return each number in three digits, which tell 101 % from 100 %, and its share of the first."""
    first, *others = bars
    words = {precision: superscripts(f"{float(f'{value:.3g}'):,.10g}") for precision, value in bars.items()}
    for precision in others:
        words[precision] += f" ({percent(bars[precision], bars[first])})"
    return words


def _figure(panels: Panels, *, for_a_phone: bool = False) -> Figure:
    """Draw one panel for each quantity, beside each other, or ``for_a_phone`` one below the other."""
    rows, columns = (len(panels), 1) if for_a_phone else (1, len(panels))
    height = 0.75 + 0.42 * max(len(bars) for bars in panels.values())
    with house_style():
        figure = Figure(figsize=(3.5 if for_a_phone else 9, height * rows))
        every_axes = figure.subplots(rows, columns, squeeze=False).flat
        sides = {"left": 0.14 if for_a_phone else 0.07, "right": 0.985}
        figure.subplots_adjust(**sides, top=1 - 0.2 / rows, bottom=0.06 / rows, wspace=0.28, hspace=0.35)
        for axes, (quantity, bars) in zip(every_axes, panels.items(), strict=True):
            _draw_panel(axes, quantity, bars, beside=1.6 if for_a_phone else 1.4)
    return figure


def _draw_panel(axes: Axes, quantity: str, bars: Mapping[str, float], beside: float) -> None:
    """Draw bars; the axes are so many times as long as the longest, for the words at its end."""
    names, first = list(bars), next(iter(bars.values()))
    lengths = [value / first if first else 0.0 for value in bars.values()]
    axes.barh(names, lengths, color=[dtype_colour(name) for name in names], height=0.62)
    for place, (length, words) in enumerate(zip(lengths, _in_words(bars).values(), strict=True)):
        axes.text(length, place, f" {words}", va="center", color=INK)
    axes.set_xlim(0, beside * max(1.0, *lengths))
    axes.invert_yaxis()
    axes.set_title(quantity)
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xticks([])
