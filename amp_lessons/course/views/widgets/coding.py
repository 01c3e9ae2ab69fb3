"""A code round in a notebook: what is asked for, the time that is left, hints, and a report."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ipywidgets
from markupsafe import Markup

from amp_lessons._base.drawing.picture import CAPTION_STYLE
from amp_lessons._base.text import prose
from amp_lessons.course.exercises import Report
from amp_lessons.course.exercises.report import rendering
from amp_lessons.course.interview.code_rounds import CodeRound, RoundReport
from amp_lessons.course.interview.code_tasks import TASKS, CodeTask, task
from amp_lessons.course.views.base.code import code_html
from amp_lessons.course.views.base.controls import button, dropdown, focus, row, text_field
from amp_lessons.course.views.base.html import block, details, live_region, paragraphs
from amp_lessons.course.views.widgets.under_a_clock import UnderAClock


class CodingRound(UnderAClock):
    """Begin, write in a cell of your own, and hand it in; the clock shows, and ends nothing."""

    def __init__(
        self,
        minutes: int = 30,
        seed: int = 0,
        task_id: str = "",
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Offer a round, whose clock begins with Start. Raises ValueError for one that cannot be."""
        task(minutes, seed, task_id)  # refuses now what could not begin later
        self._seed, self._task_id, self._clock = seed, task_id, clock
        self.round: CodeRound | None = None
        self._minutes = dropdown("minutes", list(TASKS), minutes)
        self._page, self._causes, self._hints, self._judged = (ipywidgets.HTML() for _ in range(4))
        self._hint = button("Hint", "the next one of three", self.hint)
        self._pointed = text_field("a bug: line and cause", "", "12 c")
        self._pointed.observe(lambda change: self.point(change["new"]), "value")
        # The code needs the whole width; where one points stands between it and what may be wrong.
        answered = (self._page, self._pointed, self._judged, self._causes, row(self._hint), self._hints)
        self._work = ipywidgets.VBox(answered)
        end = "End the round", "End the round, and see good code?"
        over = "Time is up, but nothing ends: the report will say how much longer it took."
        super().__init__([self._minutes], [self._work], end=end, over=over)
        self._show_work(False)

    @property
    def report(self) -> RoundReport:
        """How it went, so far. Raises ValueError before it has begun."""
        return self._running().report

    @property
    def _begun(self) -> CodeRound | None:
        return self.round

    def begin(self) -> None:
        """Begin, as the button does, or go on with a round that was left."""
        self._anew.hide()
        self.round = CodeRound(self._minutes.value, self._seed, self._task_id, self._clock)
        self._hints.value = self._judged.value = self._pointed.value = self._pointed.error = ""
        self._show_work(True)
        self._run_clock(True)
        self._said.value = live_region(_asked(self.round))
        self._page.value, self._causes.value = _page(self.round), _causes(self.round.task)
        if self.round.resumed:
            self._judge(self.round.standing)
        focus(self._hint)

    def hint(self) -> None:
        """Show the next hint, as the button does."""
        said = Markup('<p style="{}">{}</p>').format(CAPTION_STYLE, prose.as_html(self._running().hint()))
        self._hints.value = live_region(said)

    def point(self, answer: str) -> None:
        """Point at bugs of a review, ``12 c``, as typing into the field does."""
        if not answer or self.round is None:
            return
        self._pointed.error = ""
        try:
            self._judge(self.round.point(answer), self.round.standing)
        except ValueError as error:
            self._pointed.error = f"{error}."

    def hand_in(self, *attempt: Any) -> Report:
        """Check what was written, one object or several in the order of the stub; passed, the round ends.

        A review goes on until every bug was pointed at, or it is ended. Raises ValueError before it begins.
        """
        running = self._running()
        report = running.hand_in(*attempt)
        if running.passed and running.all_found:
            self._finish()  # the keyboard stays where it is: in the cell that has handed in
        elif running.passed:
            self._judge(running.standing)
        return report

    def end(self) -> None:
        """End it here, as the button does once it is sure: with a report, and with good code."""
        self._finish()
        focus(self._begin)

    def _finish(self) -> None:
        report = self._running().end()
        self._run_clock(False)
        self._show_work(False)
        code = code_html(report.task.answer, "Good code"), paragraphs([prose.as_html(report.task.why)])
        self._said.value = live_region(report.as_html(), details("Good code", *code))

    def _judge(self, *sentences: str) -> None:
        """Say what there is at the places that were pointed at, and how the review stands."""
        self._judged.value = live_region(paragraphs(sentences))

    def _running(self) -> CodeRound:
        if self.round is None:
            raise ValueError("the round has not begun: press Start")
        return self.round

    def _show_work(self, running: bool) -> None:
        reviewing = running and self.round is not None and self.round.task.review is not None
        self._work.layout.display = "" if running else "none"
        for each in (self._pointed, self._judged, self._causes):
            each.layout.display = "" if reviewing else "none"

    def _what(self) -> str:
        return (
            f"A code round, seed {self._seed}: a blank page, a loop to review, or a training to debug. The "
            "clock shows, and ends nothing. What you hand in is kept."
        )

    def _command(self) -> str:
        chosen = f" --task {self._task_id}" if self._task_id else ""
        return f"amp-lessons interview code --minutes {self._minutes.value} --seed {self._seed}{chosen}"


def _asked(running: CodeRound) -> Markup:
    """Render what is asked for, and how it is handed in."""
    asked = running.task
    names = ", ".join(asked.names)
    how = Markup(
        "<p>Write it in a cell of your own, and hand it in: <code>coding.hand_in({})</code>, where coding is "
        "what this view is called.</p>"
    ).format(names)
    was_left = ["This round was begun before: the clock goes on where it stood."] * running.resumed
    seen = asked.seen
    return Markup('<p style="font-weight:600">{}</p>{}{}{}{}').format(
        asked.title,
        paragraphs(was_left),
        rendering.task_html(asked.text, asked.asks),
        paragraphs(["A run of it shows:"]) + Markup(seen._repr_mimebundle_()["text/html"]) if seen else "",
        how,
    )


def _page(running: CodeRound) -> Markup:
    """Render what there is to begin with; of a review always the loop as it was given, with its lines."""
    if running.task.review is None:
        return code_html(running.page, "The page")
    return code_html(running.task.page, "The page", numbered=True)


def _causes(asked: CodeTask) -> Markup:
    """Render the causes that bugs of a review may have, by their letters."""
    if asked.review is None:
        return Markup("")
    items = Markup("").join(map(Markup("<li>{}</li>").format, asked.review.causes.values()))
    listed = Markup('<ol type="a" style="columns:2 320px;column-gap:40px;line-height:1.35">{}</ol>').format(
        items
    )
    return block(paragraphs(["What may be wrong, and most of it is not:"]), listed)
