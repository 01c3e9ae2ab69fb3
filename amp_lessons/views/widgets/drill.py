"""Drills, one after the other: fifty seconds each, and a score."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ipywidgets
from markupsafe import Markup

from amp_lessons import clinic
from amp_lessons.interview import Drill, drills
from amp_lessons.quizzes import Choice
from amp_lessons.views.base.controls import button, row
from amp_lessons.views.base.picture import picture_html, sentence_html
from amp_lessons.views.base.shown import Shown
from amp_lessons.views.figures.loss_curves import loss_curve_picture
from amp_lessons.views.widgets.loss_curves import describe
from amp_lessons.views.widgets.quiz import Quiz
from amp_lessons.views.widgets.rubric import focus


class DrillView(Shown):
    """So many drills of a seed. The first answer to each counts, if it comes in time; none is cut off."""

    def __init__(
        self, seed: int = 0, number: int = 8, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Ask the first one; the clock begins when it is shown."""
        self._drills = list(drills(seed, number))
        self._clock = clock
        self._first: dict[int, bool] = {}
        self._picture, self._score = ipywidgets.HTML(), ipywidgets.HTML()
        self._following = button("Next drill", "on to the next one, and after the last to the first")
        self._following.on_click(lambda _: self.next())
        super().__init__([], layout={"max_width": "900px"})
        self._ask(0)

    @property
    def drill(self) -> Drill:
        """What is asked now."""
        return self._drills[self._at]

    @property
    def score(self) -> str:
        """How many first answers were right and came in time."""
        right, tried = sum(self._first.values()), len(self._first)
        return f"Right and in time: {right} of {tried}, of {len(self._drills)} in all."

    @property
    def verdict(self) -> str:
        """What is said about the chosen answer; nothing before one is chosen."""
        return self._quiz.verdict

    def choose(self, letter: str) -> None:
        """Choose the answer with that letter, as a click on its button does."""
        self._quiz.choose(letter)

    def next(self) -> None:
        """Ask the next one, as the button does."""
        self._ask((self._at + 1) % len(self._drills))
        focus(self._quiz.children[1])

    def _ask(self, at: int) -> None:
        self._at = at
        self._quiz = Quiz(self.drill.question, self._answered)
        self._picture.value = _curve_html(self.drill.curve) if self.drill.curve else ""
        heading = f"Drill {at + 1} of {len(self._drills)}, {self.drill.seconds} seconds:"
        self.children = (
            ipywidgets.HTML(sentence_html(heading)),
            self._picture,
            self._quiz,
            row(self._following),
            self._score,
        )
        self._shown_at = self._clock()

    def _answered(self, choice: Choice) -> None:
        seconds = self._clock() - self._shown_at
        in_time = seconds <= self.drill.seconds
        self._first.setdefault(self._at, choice.right and in_time)
        self._score.value = sentence_html(f"{seconds:.0f} seconds. {self.score}")

    def stand_in(self) -> Markup:
        """Return the drills that need no picture, one below the other; each answer can be unfolded."""
        return Markup("").join(Quiz(each.question).stand_in() for each in self._to_read())

    def _to_read(self) -> list[Drill]:
        return [each for each in self._drills if not each.curve]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_(**kwargs)
        quizzes = [Quiz(each.question)._repr_mimebundle_() for each in self._to_read()]
        bundle["text/plain"] = "\n".join(each["text/plain"] for each in quizzes)
        bundle["text/markdown"] = "\n\n".join(each["text/markdown"] for each in quizzes)
        return bundle


def _curve_html(curve_id: str) -> Markup:
    curve = clinic.loss_curve(curve_id)
    picture, caption = loss_curve_picture(curve), f"A training: {describe(curve)}"
    return picture_html(picture.png(), caption, f"Loss over training steps. {caption}", picture.size)
