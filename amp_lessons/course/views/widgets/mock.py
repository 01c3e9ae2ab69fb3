"""A mock interview in a notebook: one question at a time, the time that is left, and a report."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets
from markupsafe import Markup

from amp_lessons._base.text import prose
from amp_lessons.course import exercises
from amp_lessons.course.exercises import Report
from amp_lessons.course.exercises.report import rendering
from amp_lessons.course.interview import LEVELS, Asked, Mock, MockReport
from amp_lessons.course.interview.estimates import read_number, verdict
from amp_lessons.course.interview.mock import Interview, time_left
from amp_lessons.course.views.base.code import code_html
from amp_lessons.course.views.base.controls import AreYouSure, button, dropdown, focus, row, text_field
from amp_lessons.course.views.base.countdown import Countdown
from amp_lessons.course.views.widgets.rubric import Rubric, told
from amp_lessons.course.views.widgets.under_a_clock import UnderAClock


class InterviewRoom(UnderAClock):
    """Begin, and answer; whatever ends the interview, ``report`` says how it went.

    What is chosen before it begins, and how it begins, is said by the room of each kind of interview.
    """

    def __init__(self, choices: Sequence[ipywidgets.Widget], clock: Callable[[], float]) -> None:
        """Offer an interview, whose clock begins with Start."""
        self._clock = clock
        self.mock: Interview | None = None
        self._offer_start()
        self._end = button("End it here", "show the report")
        self._sure = AreYouSure("End the interview?", "Yes", "Go on", self.end)
        self._end.on_click(lambda _: self._sure.ask(self._end))
        self._countdown = Countdown(
            lambda: self.mock.left_s if self.mock else 0.0, "The time is over: this answer is the last one."
        )
        self._said = ipywidgets.HTML()
        self._reveal = button("Show what a good answer covers", "after you have said yours aloud")
        self._reveal.on_click(lambda _: self.reveal())
        self._rubric = Rubric()
        self._next = button("Next question", "go on, with the points that you have ticked")
        self._next.on_click(lambda _: self.answer())
        self._number = text_field("your number", "", width="460px")
        self._number.observe(lambda change: self._guessed(change["new"]), "value")
        self._give_up = button("Give up on the code", "go on without it")
        self._give_up.on_click(lambda _: self._handed_in(False))
        self._more = button("Another question", "there is time left beside what was planned")
        self._more.on_click(lambda _: self.ask_another())
        self._back = button("Take the last answer back", "be asked the question before again")
        self._back.on_click(lambda _: self.take_back())
        answering = (self._reveal, self._rubric, self._next, self._number, self._give_up)
        started = row(*choices, self._begin, self._end)
        super().__init__(
            [
                *(started, self._sure, self._anew, self._countdown, self._said),
                *(*answering, self._more, self._back, self._file),
            ],
            layout={"max_width": "900px"},
        )
        self._show_only()
        self._end.disabled = True
        self._say(Markup("<p>{}</p>").format(self._what()))

    @property
    def asked(self) -> Asked | None:
        """What is asked now; None before it begins and after it is over."""
        return self.mock.asked if self.mock else None

    @property
    def report(self) -> MockReport:
        """How it went, so far. Raises ValueError before it has begun."""
        if self.mock is None:
            raise ValueError("the interview has not begun: press Start")
        return self.mock.report

    @property
    def _has_begun(self) -> bool:
        return self.mock is not None

    def begin(self) -> None:
        """Begin, as the button does once it is sure; what was asked before is over."""
        self._anew.hide()
        self.mock = self._begun()
        self._ask()

    def reveal(self) -> None:
        """Show what a good answer covers, as the button does."""
        assert self.asked is not None
        self._show_only(self._next)
        sentence = self.asked.sentence
        said = f"The model answer says of it: “{sentence}”" if sentence else ""
        self._rubric.show(self.asked.points, said)

    def answer(self) -> None:
        """Go on with the points that are ticked, as the button does."""
        assert self.mock is not None
        self.mock.answer(*self._rubric.covered)
        self._ask()

    def ask_another(self) -> None:
        """Ask one question more than was planned, as the button does."""
        assert self.mock is not None
        self.mock.ask_another()
        self._ask()

    def take_back(self) -> None:
        """Ask again what was answered last, as the button does."""
        assert self.mock is not None
        self.mock.take_back()
        self._anew.hide()
        self._ask()

    def hand_in(self, attempt: Any) -> Report:
        """Check an attempt at the code that is asked for; the interview goes on once it passes.

        The keyboard stays in the cell that has handed in.
        """
        if self.mock is None or self.mock.exercise is None:
            raise ValueError("no code is asked for now")
        report = exercises.check(self.mock.exercise.id, attempt)
        self._handed_in(report, keyboard=False)
        return report

    def end(self) -> None:
        """End it here, as the button does once it is sure."""
        assert self.mock is not None
        self.mock.end()
        self._ask()

    @abstractmethod
    def _begun(self) -> Interview:
        """Begin the interview that is chosen."""

    def _handed_in(self, passed: bool | Report, *, keyboard: bool = True) -> None:
        assert self.mock is not None
        self.mock.hand_in(passed)
        if self.asked is None or self.asked.kind != "code":
            self._ask(keyboard=keyboard)

    def _guessed(self, text: str) -> None:
        if not text or self.mock is None or self.asked is None or self.asked.kind != "estimate":
            return
        drawn = self.asked.estimate
        assert drawn is not None
        try:
            number = read_number(text, drawn.unit)
        except ValueError as error:
            self._number.error = f"{error}."
            return
        self._ask(verdict(drawn, number, self.mock.guess(number)))

    def _ask(self, said: str = "", *, keyboard: bool = True) -> None:
        """Show what is asked now, below what is left to say about what was asked before; or the report.

        The keyboard moves to what answers it, unless it is to stay where it is.
        """
        assert self.mock is not None
        self._rubric.hide()
        before = (Markup("<p>{}</p>").format(said) if said else Markup("")) + _answers(self.mock)
        control = self._end_it(before) if self.asked is None else self._ask_for(self.asked, before)
        if keyboard:
            focus(control)

    def _end_it(self, before: Markup) -> ipywidgets.Widget:
        """Show the report, and return what the keyboard goes to: one more question, or a new start."""
        assert self.mock is not None
        self._countdown.stop()
        self._sure.hide()
        more = self.mock.has_another
        self._show_only(*([self._more] if more else []))
        self._file.show(True)
        self._begin.disabled, self._end.disabled = False, True
        planned = Markup("<p>That was all that was planned, and there are {}.</p>")
        time = planned.format(time_left(self.mock.left_s)) if more else Markup("")
        self._say(before + time + self.report.as_html())
        return self._more if more else self._begin

    def _ask_for(self, asked: Asked, before: Markup) -> ipywidgets.Widget:
        """Show a question, and return the control that answers it."""
        self._begin.disabled, self._end.disabled = True, False
        self._countdown.start()
        self._say(before + self._question(asked))
        control = {"question": self._reveal, "estimate": self._number, "code": self._give_up}[asked.kind]
        self._number.value = self._number.error = ""
        self._number.label = f"your number, {asked.estimate.wanted}" if asked.estimate else "your number"
        self._show_only(control)
        self._file.show(False)
        return control

    def _question(self, asked: Asked) -> Markup:
        assert self.mock is not None
        when = f"{asked.heading}, asked with {time_left(self.mock.left_s)}"
        known = Markup("").join(map(Markup("<p>{}</p>").format, map(prose.as_html, asked.before)))
        text = prose.as_html(asked.text)
        html = Markup('<p>{}</p>{}<p style="font-weight:600">{}</p>').format(when, known, text)
        if asked.exercise is None:
            return html
        how = Markup(
            "{}{}<p>Write it in a cell of your own, and hand it in: <code>room.hand_in(…)</code>, "
            "where room is what this view is called.</p>"
        )
        return html + how.format(
            rendering.task_html(asked.exercise.task, asked.exercise.asks),
            code_html(asked.stub, "The stub"),
        )

    def _show_only(self, *controls: ipywidgets.Widget) -> None:
        """Show these controls of all that answer, and the one that takes an answer back if there is one."""
        answered = self._back if self.mock is not None and self.mock.turns else None
        for each in (self._reveal, self._next, self._number, self._give_up, self._more, self._back):
            each.layout.display = "" if each in (*controls, answered) else "none"

    def _say(self, html: Markup) -> None:
        self._said.value = told(html)


class MockInterview(InterviewRoom):
    """Choose level and minutes, begin, and answer; whatever ends it, ``report`` says how it went."""

    def __init__(
        self,
        level: str = "senior",
        minutes: int = 45,
        seed: int = 0,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Offer an interview, whose clock begins with Start. Raises ValueError for one that cannot be."""
        Mock(level, minutes, seed)  # refuses now what could not begin later
        self._seed = seed
        self._level = dropdown("level", list(LEVELS), level)
        self._minutes = dropdown("minutes", sorted({20, 30, 45, 60, 90, minutes}), minutes)
        super().__init__([self._level, self._minutes], clock)

    def _begun(self) -> Interview:
        return Mock(self._level.value, self._minutes.value, self._seed, self._clock)

    def _what(self) -> str:
        return (
            f"A mock interview, seed {self._seed}: one question at a time, against a clock, and a report at "
            "the end. What is asked next depends on what you say you covered; the model answer comes last."
        )

    def _command(self) -> str:
        return f"amp-lessons interview mock --level {self._level.value} --seed {self._seed}"


def _answers(interview: Interview) -> Markup:
    """Show the model answers that may be read now, below what they answer: the next question follows."""
    said = Markup("<p><em>{}:</em> {}</p>")
    told = Markup("").join(said.format(head, prose.as_html(text)) for head, text in interview.answers)
    asked = interview.closed[0].asked if interview.closed else None
    if asked is None or asked.stage:
        return told
    return Markup("<p><em>You were asked:</em> {}</p>{}").format(prose.as_html(asked.text), told)
