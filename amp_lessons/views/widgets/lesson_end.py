"""The strip at a lesson's end: what was solved and answered, what is due, and what comes next."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ipywidgets
from markupsafe import Markup

from amp_lessons.exercises import overviews
from amp_lessons.exercises.overviews import Score
from amp_lessons.keeping.progress import ProgressError
from amp_lessons.lessons import shipped
from amp_lessons.lessons.shipped import FIRST
from amp_lessons.text.words import counted, listed
from amp_lessons.views.base import shown
from amp_lessons.views.base.picture import CAPTION_STYLE
from amp_lessons.views.base.shown import Shown
from amp_lessons.views.base.style import ACCENT, GRID

MAP = f"{FIRST}#The-map"
_MOST_NAMED = 4  # exercises that are due; `amp-lessons progress` names them all
_STYLE = Markup(
    f"<style>.amp-strip {{ border: 1px solid var(--jp-border-color2, {GRID}); border-left: 5px "
    f"solid {ACCENT}; border-radius: 4px; "
    "padding: 4px 14px 8px } .amp-strip .widget-html, .amp-strip .widget-html-content { margin: 0 } "
    ".amp-strip ul { display: flex; flex-wrap: wrap; gap: 4px 32px; list-style: none; margin: 4px 0; "
    "padding: 0 } .amp-strip strong { font-size: 18px } .amp-strip p { margin: 4px 0 }</style>"
)
_LINE = Markup("<p>{}</p>").format


class LessonEnd(Shown):
    """The end of one lesson. It counts anew whenever an exercise is checked or a question answered."""

    def __init__(self, number: str) -> None:
        """End the lesson with that number, ``"03"``; ValueError names the lessons that there are."""
        self.lesson = shipped.head_of(number)
        self._next = shipped.head_after(self.lesson)
        self._counts = ipywidgets.HTML()
        super().__init__([self._counts], layout={"max_width": "900px"})
        self.add_class("amp-strip")
        self.refresh()
        _OPEN.add(self)

    @property
    def said(self) -> str:
        """What the strip says this learner has done, as plain sentences."""
        return " ".join([*(f"{number} {what}." for number, what in self._facts()), *self._below()])

    def refresh(self) -> None:
        """Count again what was solved and answered."""
        try:
            self._score = overviews.score(self.lesson.number)
        except ProgressError as error:
            self._score = replace(overviews.untouched(self.lesson.number), message=str(error))
        self._counts.value = self._html()

    def _facts(self) -> Iterator[tuple[str, str]]:
        """Yield each number with what it counts."""
        score = self._score
        if score.exercises:
            yield f"{score.solved} of {score.exercises}", "exercises solved"
        if score.questions:
            yet = f", {score.unanswered} not answered yet" if score.unanswered else ""
            yield f"{score.right} of {score.questions}", f"questions right at the first answer{yet}"
        yield str(self.lesson.minutes), "minutes planned for this lesson"

    def _below(self) -> list[str]:
        return [_due(self._score), *filter(None, [self._score.message])]

    def _html(self) -> Markup:
        item = Markup("<li><strong>{}</strong> {}</li>")
        facts = Markup("").join(item.format(*fact) for fact in self._facts())
        below = Markup("").join(map(_LINE, self._below()))
        live = Markup('{}<div aria-live="polite" style="{}"><ul>{}</ul>{}</div>')
        return live.format(_STYLE, CAPTION_STYLE, facts, below)

    def stand_in(self) -> Markup:
        """Return what the lesson holds: what this learner did of it is known to the kernel alone."""
        return Markup('<div style="{}">{}</div>').format(CAPTION_STYLE, self._holds())

    def _holds(self) -> str:
        held = [(self._score.exercises, "exercise"), (self._score.questions, "question")]
        named = listed([counted(*each) for each in held if each[0]])
        return f"Lesson {self.lesson.number} has {named}, and takes about {self.lesson.minutes} minutes."

    def way_on(self) -> str:
        """Return the links to the next lesson and back to the map of all, in markdown."""
        here = self.lesson.file == FIRST
        back = "the map of all lessons is above" if here else f"[back to the map of all lessons]({MAP})"
        if self._next is None:
            return f"That was the last lesson · {back}"
        on = f"lesson {self._next.number} · {self._next.title}"
        return f"**Next: [{on}]({self._next.file})** ({self._next.minutes} minutes) · {back}"

    def _ipython_display_(self, **kwargs: Any) -> None:
        """Put the links below as an output of their own: there the page knows where they lead."""
        try:
            super()._ipython_display_(**kwargs)
        except NotImplementedError:
            shown.publish(self._repr_mimebundle_())
        shown.publish({"text/markdown": self.way_on(), "text/plain": self.way_on()})

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """Leave the learner's progress out, so that a stored strip is the same for everyone."""
        bundle = super()._repr_mimebundle_(**kwargs)
        return {**bundle, "text/plain": self._holds(), "text/markdown": self._holds()}


def _due(score: Score) -> str:
    """Describe what is due for repetition, of all lessons."""
    due = [f"{each.title} (lesson {each.lesson})" for each in score.due]
    named, others = due[:_MOST_NAMED], len(due[_MOST_NAMED:])
    named += [f"{others} more"] if others else []
    named += [f"{counted(score.due_cards, 'interview card')} (lesson 10)"] if score.due_cards else []
    return f"Due for repetition: {listed(named)}." if named else "Nothing is due for repetition now."


_OPEN: weakref.WeakSet[LessonEnd] = weakref.WeakSet()


def refresh_strips() -> None:
    """Have every open strip count again."""
    for strip in list(_OPEN):
        strip.refresh()
