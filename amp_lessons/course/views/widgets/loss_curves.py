"""Twelve loss curves: some of them side by side, and one after the other to be diagnosed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import ipywidgets
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from amp_lessons._base.drawing.picture import Picture, sentence_html
from amp_lessons._base.drawing.style import ACCENT, GRID, INK, QUIET, SMALL, ZONES, house_style
from amp_lessons._base.text.words import MEASURED_MARK, counted, power_of_two
from amp_lessons.course import clinic
from amp_lessons.course.clinic import LossCurve
from amp_lessons.course.quizzes import Choice, Question, question
from amp_lessons.course.views.base.controls import button, dropdown, row
from amp_lessons.course.views.base.view import View
from amp_lessons.course.views.widgets.quiz import Quiz, several_standing_in, several_stored
from amp_lessons.course.views.widgets.stills import Still

ALL = range(1, len(clinic.LOSS_CURVES) + 1)


def loss_curves(numbers: Sequence[int] = ALL) -> Still:
    """Show curves by their numbers, without a word about what they are; training them takes some seconds."""
    curves = {number: clinic.loss_curve(clinic.LOSS_CURVES[number - 1]) for number in numbers}
    caption = (
        f"{counted(len(curves), 'training run')}: the loss of each step, and dashed, where there is one, its "
        "loss scale (right-hand axis)."
    )
    if any(curve.beside for curve in curves.values()):
        caption += " A dotted black curve was logged alongside the loss."
    return Still(gallery_picture(curves), caption, "Numbered loss curves.", mark=MEASURED_MARK)


class CurveQuiz(View):
    """One curve at a time, with what may be behind it; only the first answer to each counts."""

    def __init__(self, numbers: Sequence[int] = ALL) -> None:
        """Begin with the first of the curves that ``numbers`` asks for."""
        self._curves = {number: clinic.LOSS_CURVES[number - 1] for number in numbers}
        self._first: dict[int, bool] = {}
        self._choice = dropdown("curve", [(str(number), number) for number in numbers], numbers[0])
        last = "on to the next one, and after the last to the first"
        following = button("Next curve", last, self.next)
        self._score = ipywidgets.HTML()
        controls = row(self._choice, following)
        super().__init__([controls], alt="Loss and loss scale over training steps.")
        self._controls = controls
        self.follow(self._turn, self._choice)
        self._turn()

    @property
    def number(self) -> int:
        """The number of the curve that is shown, from 1."""
        return int(self._choice.value)

    @number.setter
    def number(self, number: int) -> None:
        if number not in self._curves:
            first, *_, last = self._curves
            raise ValueError(f"the curves are numbered from {first} to {last}; got {number!r}")
        self._choice.value = number

    def next(self) -> None:
        """Show the next curve, as the button does."""
        numbers = [*self._curves, *self._curves]
        self._choice.value = numbers[numbers.index(self.number) + 1]

    def choose(self, letter: str) -> None:
        """Choose the answer with that letter, as a click on its button does."""
        self._quiz.choose(letter)

    @property
    def verdict(self) -> str:
        """What is said about the chosen answer; nothing before one is chosen."""
        return self._quiz.verdict

    @property
    def score(self) -> str:
        """How many curves were diagnosed at the first try."""
        right, tried = sum(self._first.values()), len(self._first)
        return f"Right at the first try: {right} of {tried} tried, of {len(self._curves)} in all."

    def stand_in(self) -> Markup:
        """Return the questions one below the other; each answer can be unfolded."""
        return several_standing_in(self._questions())

    def stored(self) -> dict[str, str]:
        """Return every question; the pictures are those of ``loss_curves``."""
        return several_stored(self._questions())

    def _questions(self) -> Iterator[Question]:
        return (question(f"curves.{each}") for each in self._curves.values())

    def _turn(self) -> None:
        number, id = self.number, self._curves[self.number]
        self.begin_work(f"Curve {number}, a training")
        curve = clinic.loss_curve(id)
        self._quiz = Quiz(question(f"curves.{id}"), lambda choice: self._answered(number, choice))
        self.show(loss_curve_picture(curve), f"Curve {number}: {describe(curve)}", mark=MEASURED_MARK)
        self.children = (self._controls, self._page, self._quiz, self._score)

    def _answered(self, number: int, choice: Choice) -> None:
        self._first.setdefault(number, choice.right)
        self._score.value = sentence_html(self.score)


def describe(curve: clinic.LossCurve) -> str:
    """Describe what is drawn: losses by epoch, what was logged beside them, and the loss scale."""
    steps = curve.epoch_steps
    said = [f"{len(curve.losses)} steps in {len(curve.losses) // steps} epochs"]
    said.append(f"mean loss of the first epoch {_mean(curve.losses[:steps])}")
    said.append(f"of the last {_mean(curve.losses[-steps:])}")
    said += [f"{name} {_mean(values[-steps:])}" for name, values in curve.beside.items()]
    if curve.scales:
        said.append(f"loss scale {power_of_two(curve.scales[0])} to {power_of_two(curve.scales[-1])}")
    else:
        said.append("no loss scaling")
    return ", ".join(said) + "."


def _mean(losses: tuple[float, ...]) -> str:
    return f"{sum(losses) / len(losses):.4g}"


_COLUMNS = 3
_SCALE_COLOUR = ZONES["underflowed"].colour


def loss_curve_picture(curve: LossCurve) -> Picture:
    """Draw the loss over the steps, and below it the loss scale, where there is one."""
    with house_style():
        figure = Figure(figsize=(9, 4.0))
        above, below = figure.subplots(
            2,
            1,
            sharex=True,
            gridspec_kw={"height_ratios": [3, 1], "left": 0.1, "right": 0.985, "top": 0.97}
            | {"bottom": 0.12, "hspace": 0.12},
        )
        _draw_losses(above, curve)
        above.set_ylabel("loss")
        _draw_scales(below, curve)
        below.set(ylabel="loss scale", xlabel="training step")
        if curve.beside:
            above.legend(loc="center right")
    return Picture(figure)


def gallery_picture(curves: Mapping[int, LossCurve]) -> Picture:
    """Draw curves small, by rows, each below its number: the loss, and its scale as a thin dashed line."""
    rows = math.ceil(len(curves) / _COLUMNS)
    with house_style():
        figure = Figure(figsize=(9, 1.55 * rows + 0.2))
        axes = figure.subplots(rows, _COLUMNS, squeeze=False)
        inches = {"top": 1 - 0.22 / figure.get_figheight(), "bottom": 0.29 / figure.get_figheight()}
        figure.subplots_adjust(left=0.06, right=0.94, hspace=0.42, wspace=0.42, **inches)
        for each in axes.flat[len(curves) :]:
            each.remove()
        for each, (number, curve) in zip(axes.flat, curves.items(), strict=False):
            _draw_losses(each, curve)
            each.set_title(str(number), pad=3)
            if curve.scales:
                _draw_scales(each.twinx(), curve, small=True)
        for each in figure.axes:
            each.tick_params(labelsize=SMALL, length=2)
    return Picture(figure)


def _draw_losses(axes: Axes, curve: LossCurve) -> None:
    steps = range(1, len(curve.losses) + 1)
    axes.plot(steps, curve.losses, color=ACCENT, lw=1.3, label="this run")
    for name, values in curve.beside.items():
        axes.plot(steps, values, color=INK, lw=1.3, ls=(0, (2, 2)), label=name)
    broken = [step for step, loss in zip(steps, curve.losses, strict=True) if not math.isfinite(loss)]
    if broken:
        axes.axvspan(broken[0], broken[-1], color=GRID, lw=0)
        # In the upper corner: from there the loss scale, which a gallery draws over it, has long fallen.
        corner = (broken[-1], 1)
        place = axes.get_xaxis_transform()
        axes.annotate("NaN", corner, (-4, -3), place, "offset points", ha="right", va="top", color=INK)
    axes.set_xlim(0, len(curve.losses) + 1)
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))


def _draw_scales(axes: Axes, curve: LossCurve, small: bool = False) -> None:
    if not curve.scales:
        axes.text(
            0.5, 0.5, "no loss scaling", transform=axes.transAxes, ha="center", va="center", color=QUIET
        )
        axes.set_yticks([])
        return
    steps = range(1, len(curve.scales) + 1)
    stroke = {"lw": 1.0, "ls": (0, (4, 2))} if small else {"lw": 1.6}
    axes.plot(steps, curve.scales, color=_SCALE_COLOUR, drawstyle="steps-post", **stroke)
    axes.set_yscale("log", base=2)
    if max(curve.scales) == min(curve.scales):
        axes.set_ylim(curve.scales[0] / 4, curve.scales[0] * 4)
    axes.minorticks_off()
    # ticks at three powers of two at most: the highest scale, the lowest, and one between
    low, high = (math.floor(math.log2(found(curve.scales))) for found in (min, max))
    axes.yaxis.set_major_locator(FixedLocator([2.0**each for each in sorted({low, (low + high) // 2, high})]))
    axes.tick_params(axis="y", colors=_SCALE_COLOUR)
    axes.spines["right"].set_visible(False)
