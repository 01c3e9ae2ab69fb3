"""Interviews in a notebook, mock or a design in stages: a question at a time, a clock, and a report."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets
from markupsafe import Markup

from amp_lessons._base.text import prose
from amp_lessons.course import exercises, interview
from amp_lessons.course.exercises import Report
from amp_lessons.course.exercises.report import rendering
from amp_lessons.course.interview import LEVELS, Asked, Mock, MockReport
from amp_lessons.course.interview.bank import design
from amp_lessons.course.interview.estimates import read_number, verdict
from amp_lessons.course.interview.mock import Interview, time_left
from amp_lessons.course.views.base.code import code_html
from amp_lessons.course.views.base.controls import button, dropdown, focus, text_field
from amp_lessons.course.views.base.html import live_region, paragraphs
from amp_lessons.course.views.widgets.rubric import Rubric
from amp_lessons.course.views.widgets.under_a_clock import UnderAClock


class InterviewRoom(UnderAClock):
    """Begin, and answer; whatever ends the interview, ``report`` says how it went.

    What is chosen before it begins, and how it begins, is said by the room of each kind of interview.
    """

    def __init__(self, choices: Sequence[ipywidgets.Widget], clock: Callable[[], float]) -> None:
        """Offer an interview, whose clock begins with Start."""
        self._clock = clock
        self.mock: Interview | None = None
        aloud = "after you have said yours aloud"
        self._reveal = button("Show what a good answer covers", aloud, self.reveal)
        self._rubric = Rubric()
        self._next = button("Next question", "go on, with the points that you have ticked", self.answer)
        self._number = text_field("your number", "", width="460px")
        self._number.observe(lambda change: self._guessed(change["new"]), "value")
        self._give_up = button("Give up on the code", "go on without it", lambda: self._handed_in(False))
        more = "there is time left beside what was planned"
        self._more = button("Another question", more, self.ask_another)
        back = "go back to the question before"
        self._back = button("Take the last answer back", back, self.take_back)
        work = (self._reveal, self._rubric, self._next, self._number, self._give_up, self._more, self._back)
        over = "Time is up: this answer is the last one."
        super().__init__(choices, work, end=("End it here", "End the interview?"), over=over)
        self._show_only()

    @property
    def asked(self) -> Asked | None:
        """What is asked now; None before it begins and after it is over."""
        return self.mock.asked if self.mock else None

    @property
    def report(self) -> MockReport:
        """How it went, so far. Raises ValueError before it has begun."""
        return self._held.report

    @property
    def _begun(self) -> Interview | None:
        return self.mock

    @property
    def _held(self) -> Interview:
        if self.mock is None:
            raise ValueError("the interview has not begun: press Start")
        return self.mock

    def begin(self) -> None:
        """Begin, as the button does once it is sure; what was asked before is over."""
        self._anew.hide()
        self.mock = self._interview()
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
        self._held.answer(*self._rubric.covered)
        self._ask()

    def ask_another(self) -> None:
        """Ask one question more than was planned, as the button does."""
        self._held.ask_another()
        self._ask()

    def take_back(self) -> None:
        """Ask again what was answered last, as the button does."""
        self._held.take_back()
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
        self._held.end()
        self._ask()

    @abstractmethod
    def _interview(self) -> Interview:
        """Begin the interview that is chosen."""

    def _handed_in(self, passed: bool | Report, *, keyboard: bool = True) -> None:
        self._held.hand_in(passed)
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
        self._rubric.hide()
        before = paragraphs(filter(None, [said])) + _answers(self._held)
        control = self._end_it(before) if self.asked is None else self._ask_for(self.asked, before)
        if keyboard:
            focus(control)

    def _end_it(self, before: Markup) -> ipywidgets.Widget:
        """Show the report, and return what the keyboard goes to: one more question, or a new start."""
        self._run_clock(False)
        more = self._held.has_another
        self._show_only(*([self._more] if more else []))
        time = [f"That was all that was planned, and there are {time_left(self._held.left_s)}."] * more
        self._said.value = live_region(before, paragraphs(time), self.report.as_html())
        return self._more if more else self._begin

    def _ask_for(self, asked: Asked, before: Markup) -> ipywidgets.Widget:
        """Show a question, and return the control that answers it."""
        self._run_clock(True)
        self._said.value = live_region(before, self._question(asked))
        control = {"question": self._reveal, "estimate": self._number, "code": self._give_up}[asked.kind]
        self._number.value = self._number.error = ""
        self._number.label = f"your number, {asked.estimate.wanted}" if asked.estimate else "your number"
        self._show_only(control)
        return control

    def _question(self, asked: Asked) -> Markup:
        when = f"{asked.heading}, asked with {time_left(self._held.left_s)}"
        known = paragraphs(map(prose.as_html, asked.before))
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

    def _interview(self) -> Interview:
        return Mock(self._level.value, self._minutes.value, self._seed, self._clock)

    def _what(self) -> str:
        return (
            f"A mock interview, seed {self._seed}: one question at a time, against a clock, and a report at "
            "the end. What is asked next depends on what you say you covered; the model answer comes last."
        )

    def _command(self) -> str:
        return f"amp-lessons interview mock --level {self._level.value} --seed {self._seed}"


class DesignRound(InterviewRoom):
    """Constraints in stages: choose what to design, and answer; the model answers come after the last."""

    def __init__(self, design_id: str = "pretrain", *, clock: Callable[[], float] = time.monotonic) -> None:
        """Offer a round, whose clock begins with Start. Raises KeyError for an unknown design."""
        chosen = design(design_id).id
        self._design = dropdown("design", [(each.title, each.id) for each in interview.DESIGNS], chosen)
        super().__init__([self._design], clock)

    def _interview(self) -> Interview:
        return interview.DesignRound(self._design.value, self._clock)

    def _what(self) -> str:
        minutes = design(self._design.value).minutes
        return (
            f"A round of system design, {minutes} minutes: each stage brings a constraint, and you tick what "
            "you said of what a good answer covers. The model answers come after the last stage."
        )

    def _command(self) -> str:
        return f"amp-lessons interview design {self._design.value}"


def _answers(held: Interview) -> Markup:
    """Show the model answers that may be read now, below what they answer: the next question follows."""
    said = Markup("<p><em>{}:</em> {}</p>")
    answers = [*held.answers]
    asked = held.closed[0].asked if held.closed else None
    if asked is not None and not asked.stage:
        answers.insert(0, ("You were asked", asked.text))
    return Markup("").join(said.format(head, prose.as_html(text)) for head, text in answers)
