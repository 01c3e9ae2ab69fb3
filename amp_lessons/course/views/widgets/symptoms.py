"""Questions that lead from a symptom to its cause, one press after the other."""

from __future__ import annotations

from functools import partial

import ipywidgets
from IPython.core.getipython import get_ipython
from markupsafe import Markup

from amp_lessons._base.drawing.picture import CAPTION_STYLE
from amp_lessons._base.text import prose
from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.course.clinic.causes import End
from amp_lessons.course.clinic.symptoms import SYMPTOMS, SymptomAnswer, SymptomQuestion, paths
from amp_lessons.course.views.base.code import code_html
from amp_lessons.course.views.base.controls import button, focus, row
from amp_lessons.course.views.base.shown import Shown
from amp_lessons.course.views.widgets.quiz import STYLE, choice_button

_MOST_ANSWERS = max(len(question.answers) for path in paths() for question, _ in path.answered)


class SymptomTree(Shown):
    """Answer what you see until a cause is named, with the lesson on it and a cell that shows if it is so.

    The buttons stay the same and change their words, so that the keyboard stays where it is.
    """

    def __init__(self) -> None:
        """Ask the first question."""
        self._answered: list[tuple[SymptomQuestion, SymptomAnswer]] = []
        self._at: SymptomQuestion | End = SYMPTOMS
        self._said = ipywidgets.HTML()
        self._buttons = [choice_button("", partial(self._choose, place)) for place in range(_MOST_ANSWERS)]
        self._back = button("Back", "to the question before", self.back)
        self._again = button("Start again", "", self.start_again)
        super().__init__([self._said, *self._buttons, row(self._back, self._again)])
        self.layout.max_width = "900px"
        self.add_class("amp-quiz")
        self._refresh()

    @property
    def answers(self) -> tuple[str, ...]:
        """The answers that can be chosen now; none at an end."""
        return () if isinstance(self._at, End) else tuple(each.text for each in self._at.answers)

    @property
    def end(self) -> End | None:
        """The end that was reached, if one was."""
        return self._at if isinstance(self._at, End) else None

    def answer(self, text: str) -> None:
        """Choose an answer by its text, as a press of its button does; ValueError names the nearest."""
        if text not in self.answers:
            nearest = did_you_mean(text, self.answers) if self.answers else "this is an end"
            raise ValueError(f"there is no answer {text!r} here; {nearest}")
        self._choose(self.answers.index(text))

    def back(self) -> None:
        """Take the last answer back, if there is one."""
        if self._answered:
            self._at = self._answered.pop()[0]
            self._refresh()

    def start_again(self) -> None:
        """Go back to the first question."""
        self._answered, self._at = [], SYMPTOMS
        self._refresh()

    def take_over(self, before: SymptomTree) -> None:
        """Stand where the answers have led."""
        self._answered, self._at = [*before._answered], before._at
        self._refresh()

    def next_cell(self) -> str:
        """Write the lines of the end that was reached into a new cell below the one that calls this.

        Return a sentence that says what was done. Elsewhere than in a notebook the lines themselves are
        returned.
        """
        if self.end is None:
            return "answer the questions first: at their end there are lines to run"
        shell = get_ipython()
        if shell is None:
            return self.end.code
        shell.set_next_input(self.end.code)
        return "the new cell below holds the lines; its names are those of the lesson, or yours"

    def _choose(self, place: int) -> None:
        assert isinstance(self._at, SymptomQuestion)
        answer = self._at.answers[place]
        self._answered.append((self._at, answer))
        self._at = answer.then
        self._refresh()
        if place >= len(self.answers):  # a button that is hidden cannot be pressed
            focus(self._buttons[0] if self.answers else self._back)

    def _refresh(self) -> None:
        for place, made in enumerate(self._buttons):
            there = place < len(self.answers)
            made.description = self.answers[place] if there else ""
            made.layout.display = "" if there else "none"
        self._back.disabled = self._again.disabled = not self._answered
        line = Markup("<div>{} <em>{}</em></div>")
        trail = Markup("").join(line.format(asked.text, said.text) for asked, said in self._answered)
        self._said.value = STYLE + Markup('<div style="{}">{}<div aria-live="polite">{}</div></div>').format(
            CAPTION_STYLE, trail, self._now()
        )

    def _now(self) -> Markup:
        if isinstance(self._at, SymptomQuestion):
            return Markup('<p style="font-weight:600;margin:4px 0">{}</p>').format(self._at.text)
        return Markup(
            '<p style="font-weight:600;margin:4px 0">{}</p><p>{}</p><p>Lesson {} explains it. To see whether '
            "it is so:</p>{}"
        ).format(
            prose.as_html(self._at.cause),
            prose.as_html(self._at.cure),
            self._at.lesson,
            code_html(self._at.code, "Lines to run"),
        )

    def stand_in(self) -> Markup:
        """Return every way as a list."""
        item, group = Markup("<li>{} <b>{}</b> {} (Lesson {})</li>"), Markup("<p><b>{}</b></p><ul>{}</ul>")
        return Markup("").join(
            group.format(symptom, Markup("").join(item.format(*way) for way in found))
            for symptom, found in ways().items()
        )

    def stored(self) -> dict[str, str]:
        """Return as text where the answers have led, as markdown every way."""
        answered = [f"{asked.text} {said.text}" for asked, said in self._answered]
        now = [self._at.text] if isinstance(self._at, SymptomQuestion) else [self._at.cause, self._at.cure]
        every_way = (
            "\n".join([f"**{symptom}**\n", *("- {} **{}** {} (Lesson {})".format(*way) for way in found)])
            for symptom, found in ways().items()
        )
        return {
            "text/plain": "\n".join([*answered, *now, *(f"- {each}" for each in self.answers)]),
            "text/markdown": "\n\n".join(every_way),
        }


def ways() -> dict[str, list[tuple[str, str, str, str]]]:
    """Return for each symptom the ways from it: further questions and answers, then cause, cure, lesson."""
    found: dict[str, list[tuple[str, str, str, str]]] = {}
    for path in paths():
        (_, symptom), *more = path.answered
        # of what is asked, without what says how to find the answer
        asked = " · ".join(f"{''.join(each.text.partition('?')[:2])} {said.text}" for each, said in more)
        way = f"{asked}:", path.end.cause, path.end.cure, path.end.lesson
        found.setdefault(symptom.text, []).append(way)
    return found
