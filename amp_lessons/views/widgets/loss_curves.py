"""Twelve loss curves: all of them side by side, and one after the other to be diagnosed."""

from __future__ import annotations

from typing import Any

import ipywidgets
from markupsafe import Markup

from amp_lessons import clinic
from amp_lessons.quizzes import Choice, question
from amp_lessons.text.marks import MEASURED_MARK
from amp_lessons.text.words import power_of_two
from amp_lessons.views.base.controls import button, dropdown, row
from amp_lessons.views.base.picture import sentence_html
from amp_lessons.views.base.still import Still
from amp_lessons.views.base.view import View
from amp_lessons.views.figures.loss_curves import gallery_picture, loss_curve_picture
from amp_lessons.views.widgets.quiz import Quiz


def loss_curves() -> Still:
    """Show all twelve, numbered, without a word about what they are; training them takes some seconds."""
    curves = [clinic.loss_curve(each) for each in clinic.LOSS_CURVES]
    caption = (
        f"{len(curves)} trainings: the loss of each step, and dashed, where there is one, its loss scale "
        "(right-hand axis). A dotted black curve was logged beside the loss."
    )
    return Still(gallery_picture(curves), caption, "Numbered loss curves.", mark=MEASURED_MARK)


class CurveQuiz(View):
    """One curve at a time, with what may be behind it; only the first answer to each counts."""

    def __init__(self) -> None:
        """Begin with the first curve."""
        self._questions = [question(f"curves.{each}") for each in clinic.LOSS_CURVES]
        self._first: dict[int, bool] = {}
        self._choice = dropdown("curve", [(str(i + 1), i) for i in range(len(self._questions))], 0)
        following = button("Next curve", "on to the next one, and after the last to the first")
        following.on_click(lambda _: self.next())
        self._score = ipywidgets.HTML()
        controls = row(self._choice, following)
        super().__init__([controls], alt="Loss and loss scale over training steps.")
        self._controls = controls
        self._choice.observe(self._turn, "value")
        self._turn()

    @property
    def number(self) -> int:
        """The number of the curve that is shown, from 1."""
        return int(self._choice.value) + 1

    @number.setter
    def number(self, number: int) -> None:
        if number not in range(1, len(self._questions) + 1):
            raise ValueError(f"the curves are numbered from 1 to {len(self._questions)}; got {number!r}")
        self._choice.value = number - 1

    def next(self) -> None:
        """Show the next curve, as the button does."""
        self._choice.value = (self._choice.value + 1) % len(self._questions)

    def choose(self, letter: str) -> None:
        """Choose the answer with that letter, as a click on its button does."""
        self._quiz.choose(letter)

    @property
    def verdict(self) -> str:
        """What is said about the chosen answer; nothing before one is chosen."""
        return self._quiz.verdict

    @property
    def score(self) -> str:
        """How many curves were named rightly at the first try."""
        right, tried = sum(self._first.values()), len(self._first)
        return f"Named at the first try: {right} of {tried} tried, of {len(self._questions)} in all."

    def turn_page(self) -> None:
        """Bring the page up to date: the question stands below it."""
        self._page.value = View.stand_in(self)

    def stand_in(self) -> Markup:
        """Return the questions one below the other; each answer can be unfolded."""
        return Markup("").join(Quiz(each).stand_in() for each in self._questions)

    def _turn(self, _change: object = None) -> None:
        at = int(self._choice.value)
        self.begin_work(f"Curve {at + 1}, a training")
        curve = clinic.loss_curve(clinic.LOSS_CURVES[at])
        self._quiz = Quiz(self._questions[at], lambda choice: self._answered(at, choice))
        self.show(loss_curve_picture(curve), f"Curve {at + 1}: {describe(curve)}", mark=MEASURED_MARK)
        self.children = (self._controls, self._page, self._quiz, self._score)

    def _answered(self, at: int, choice: Choice) -> None:
        self._first.setdefault(at, choice.right)
        self._score.value = sentence_html(self.score)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """Show without a kernel every question; the pictures are those of ``loss_curves``."""
        bundle = super()._repr_mimebundle_(**kwargs)
        bundle.pop("image/png", None)
        quizzes = [Quiz(each)._repr_mimebundle_() for each in self._questions]
        bundle["text/markdown"] = "\n\n".join(each["text/markdown"] for each in quizzes)
        bundle["text/plain"] = "\n".join(each["text/plain"] for each in quizzes)
        return bundle


def describe(curve: clinic.LossCurve) -> str:
    """Say in words what is drawn: losses by epoch, what was logged beside them, and the loss scale."""
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
