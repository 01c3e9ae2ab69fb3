"""Drills, one after the other: fifty seconds each, and a score."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import ipywidgets
from markupsafe import Markup

from amp_lessons._base.drawing.picture import picture_html, sentence_html
from amp_lessons.course import clinic
from amp_lessons.course.interview import Drill, drills
from amp_lessons.course.interview.drilling import score
from amp_lessons.course.quizzes import Choice, Question
from amp_lessons.course.views.base.controls import Countdown, button, focus, row
from amp_lessons.course.views.base.shown import Shown
from amp_lessons.course.views.widgets.loss_curves import describe, loss_curve_picture
from amp_lessons.course.views.widgets.quiz import Quiz, several_standing_in, several_stored


class DrillView(Shown):
    """So many drills of a seed. The first answer to each counts, if it comes in time; none is cut off."""

    def __init__(
        self, seed: int = 0, number: int = 8, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Wait for Start; the clock of each drill begins when it is shown."""
        self._drills = list(drills(seed, number))
        self._clock = clock
        self._first: dict[int, tuple[bool, bool]] = {}  # right, and right in time
        self._picture, self._score = ipywidgets.HTML(), ipywidgets.HTML()
        self._at, self._shown_at = 0, 0.0
        self._quiz: Quiz | None = None
        self._countdown = Countdown(self._left_s, "Time is up: an answer no longer counts.")
        begin = button("Start", "show the first drill, and start its clock", self.start)
        last = "on to the next one, and after the last to the first"
        self._following = button("Next drill", last, self.next)
        first = ipywidgets.HTML(sentence_html(self._what()))
        super().__init__([first, row(begin)], layout={"max_width": "900px"})
        self.add_class("amp-drills")

    @property
    def drill(self) -> Drill:
        """What is asked now."""
        return self._drills[self._at]

    @property
    def score(self) -> str:
        """How many first answers were right, and came in time."""
        right, in_time = (sum(each[i] for each in self._first.values()) for i in range(2))
        return f"{score(right, in_time, len(self._first))} There are {len(self._drills)} in all."

    @property
    def verdict(self) -> str:
        """What is said about the chosen answer; nothing before one is chosen."""
        return self._quiz.verdict if self._quiz else ""

    def start(self) -> None:
        """Ask the first one, as the button does."""
        self._ask(0)

    def choose(self, letter: str) -> None:
        """Choose the answer with that letter, as a click on its button does; ValueError before Start."""
        if self._quiz is None:
            raise ValueError("the drills have not begun: press Start")
        self._quiz.choose(letter)

    def next(self) -> None:
        """Ask the next one, as the button does."""
        self._ask((self._at + 1) % len(self._drills))

    def _ask(self, at: int) -> None:
        self._at = at
        self._quiz = Quiz(self.drill.question, self._answered)
        heading = ipywidgets.HTML(sentence_html(f"Drill {at + 1} of {len(self._drills)}:"))
        if self.drill.curve:  # which may have to be trained first; nobody's seconds run meanwhile
            self._countdown.stop()
            self._picture.value = sentence_html("The curve of this drill: working …")
            self.children = (heading, self._picture)
            curve = clinic.loss_curve(self.drill.curve)
            caption = f"A training: {describe(curve)}"
            alt = f"Loss over training steps. {caption}"
            self._picture.value = picture_html(loss_curve_picture(curve), caption, alt)
        else:
            self._picture.value = ""
        asked = (self._picture, self._quiz, row(self._following), self._score)
        self.children = (heading, self._countdown, *asked)
        self._shown_at = self._clock()
        self._countdown.start()
        focus(self._quiz.children[1])

    def _left_s(self) -> float:
        return max(0.0, self.drill.seconds - (self._clock() - self._shown_at))

    def _answered(self, choice: Choice) -> None:
        self._countdown.stop()
        seconds = self._clock() - self._shown_at
        in_time = seconds <= self.drill.seconds
        self._first.setdefault(self._at, (choice.right, choice.right and in_time))
        self._score.value = sentence_html(f"{seconds:.0f} seconds. {self.score}")

    def _what(self) -> str:
        return (
            f"{len(self._drills)} drills, {self._drills[0].seconds} seconds each. The first answer to each "
            "counts, if it comes in time."
        )

    def stand_in(self) -> Markup:
        """Return the drills that need no picture, one below the other; each answer can be unfolded."""
        return several_standing_in(self._to_read())

    def stored(self) -> dict[str, str]:
        """Return the same as text and markdown."""
        return several_stored(self._to_read())

    def _to_read(self) -> Iterator[Question]:
        return (each.question for each in self._drills if not each.curve)
