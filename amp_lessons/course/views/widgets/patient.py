"""A patient: what is seen of a run, a diagnosis to commit to, and then who met the same."""

from __future__ import annotations

import math

import ipywidgets
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from amp_lessons._base.drawing.axes import mark_not_finite
from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import ACCENT, GRID, INK, SMALL, ZONES, house_style
from amp_lessons._base.text.words import MEASURED_MARK, number
from amp_lessons.course import clinic
from amp_lessons.course.clinic import Curve, Observed
from amp_lessons.course.quizzes import Choice, Question
from amp_lessons.course.views.base.html import block, details, live_region
from amp_lessons.course.views.base.view import View
from amp_lessons.course.views.widgets.quiz import Quiz

_LINK = "color:var(--jp-content-link-color,#0060A0);text-decoration:underline"


class Patient(View):
    """One patient. Its broken code is run when the view is made; each diagnosis is answered with a reason."""

    def __init__(self, patient_id: str, seed: int = 0) -> None:
        """Admit the patient with that id, in the variant of ``seed``; ValueError names the nearest ids."""
        self.patient = clinic.patient(patient_id, seed)
        choices = (Choice(each.text, each.because, each.right) for each in self.patient.diagnoses)
        self._quiz = Quiz(Question(patient_id, self.patient.symptom, tuple(choices)), self._diagnosed)
        self._met = ipywidgets.HTML()
        super().__init__([], alt=f"{self.patient.title}: what is seen of a run.")
        observed = self.patient.observe()
        self.show(observed_picture(observed), describe(observed), mark=MEASURED_MARK)
        self.children = (self._page, self._quiz, self._met)

    def diagnose(self, letter: str) -> None:
        """Commit to the diagnosis with that letter, as a click on its button does."""
        self._quiz.choose(letter)

    @property
    def verdict(self) -> str:
        """What is said about the diagnosis; nothing before there is one."""
        return self._quiz.verdict

    @property
    def question(self) -> Question:
        """The symptom, and what it may be."""
        return self._quiz.question

    def stand_in(self) -> Markup:
        """Return picture and question; the diagnosis, and who met it, can be unfolded."""
        met = block(details("Who met it", self._sightings()))
        return self.page_html() + self._quiz.stand_in() + met

    def _diagnosed(self, choice: Choice) -> None:
        """Who met the same gives the diagnosis away: say it when the right one was found."""
        if choice.right:
            self._met.value = live_region("People met it here:", self._sightings())

    def _sightings(self) -> Markup:
        item = Markup(
            '<li><a href="{url}" target="_blank" rel="noopener" style="{style}">{url}</a><br>{told}</li>'
        )
        items = (item.format(url=each.url, told=each.told, style=_LINK) for each in self.patient.seen_at)
        return Markup("<ul>{}</ul>").format(Markup("").join(items))

    def stored(self) -> dict[str, str]:
        """Return picture and text with the question in them, for readers without a kernel."""
        asked = self._quiz.stored()["text/plain"]
        text = f"{MEASURED_MARK} {self.caption}\n{asked}"
        return {"text/plain": text, **self.stored_picture(asked)}


def describe(observed: clinic.Observed) -> str:
    """Describe what is seen of a run: where each curve begins and ends, and each number."""
    curves = [
        f"{each.quantity}, by {each.over}: from {each.values[0]:.4g} to {each.values[-1]:.4g}"
        for each in observed.curves
    ]
    numbers = [f"{name}: {number:.4g}" for name, number in observed.numbers.items()]
    return "; ".join([*curves, *numbers]) + "."


_WIDTH, _CURVES, _LINE, _MARGIN = 9.0, 2.6, 0.3, 0.15  # in inches


def observed_picture(observed: Observed) -> Picture:
    """Draw each curve in a panel of its own, and write the numbers below them."""
    curves = _CURVES if observed.curves else 0.0
    words = _MARGIN + _LINE * len(observed.numbers)
    height = curves + words
    with house_style():
        figure = Figure(figsize=(_WIDTH, height))
        below, above = 0.5 / height, 0.3 / height  # of a panel: for the axis's name, and for the quantity's
        bottom = words / height + below
        for place, curve in enumerate(observed.curves):
            left, width = (0.09, 0.89) if len(observed.curves) == 1 else ((0.09, 0.57)[place], 0.41)
            _draw(figure.add_axes((left, bottom, width, 1 - bottom - above)), curve)
        for line, (name, amount) in enumerate(reversed(observed.numbers.items())):
            y = (0.5 * _MARGIN + _LINE * (line + 0.5)) / height
            figure.text(0.11, y, number(amount), color=ACCENT, weight="bold", ha="right", va="center")
            figure.text(0.125, y, name, color=INK, va="center")
    return Picture(figure)


def _draw(axes: Axes, curve: Curve) -> None:
    steps = range(1, len(curve.values) + 1)
    axes.plot(steps, curve.values, color=ACCENT, lw=1.6, marker="o", ms=4)
    if mark_not_finite(axes, curve.values, 0.04, ms=6, color=ZONES["overflowed"].colour, label="NaN or inf"):
        axes.legend(loc="upper right")
    if curve.at:
        axes.set_xticks(steps, [f"{place:,}" for place in curve.at])
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(0.5, len(curve.values) + 0.5)
    axes.set_xlabel(curve.over)
    axes.set_title(curve.quantity, fontsize=10 if len(curve.quantity) < 45 else SMALL, weight="normal")
    finite = [value for value in curve.values if math.isfinite(value)]
    if finite and max(finite) - min(finite) < 0.025 * max(map(abs, finite)):
        # What hardly changes is to look so: a twentieth of its size is shown at least.
        middle, span = (max(finite) + min(finite)) / 2, 0.025 * max(map(abs, finite))
        axes.set_ylim(middle - span, middle + span)
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.grid(axis="y", color=GRID)
