"""The strip at the end of a lesson's core: what was solved and answered, what is due, and what comes next."""

from __future__ import annotations

from collections.abc import Iterator

import ipywidgets
from markupsafe import Markup

from amp_lessons._base.drawing.style import ACCENT, GRID
from amp_lessons._base.text.words import counted, listed
from amp_lessons.course.exercises import scores
from amp_lessons.course.exercises.scores import Part, Score
from amp_lessons.course.lessons import shipped, tasks
from amp_lessons.course.lessons.shipped import FIRST
from amp_lessons.course.progress import Learner
from amp_lessons.course.routes import following, overview
from amp_lessons.course.routes.catalogue import IN_ORDER
from amp_lessons.course.views.base.html import live_region, paragraphs
from amp_lessons.course.views.widgets.counting import Counting, kept_or_message

MAP = f"{FIRST}#The-map"
_STYLE = Markup(
    f"<style>.amp-strip {{ border: 1px solid var(--jp-border-color2, {GRID}); border-left: 5px "
    f"solid {ACCENT}; border-radius: 4px; "
    "padding: 4px 14px 8px } .amp-strip .widget-html, .amp-strip .widget-html-content { margin: 0 } "
    ".amp-strip ul { display: flex; flex-wrap: wrap; gap: 4px 32px; list-style: none; margin: 4px 0; "
    "padding: 0 } .amp-strip strong { font-size: 18px } .amp-strip p { margin: 4px 0 }</style>"
)


class LessonEnd(Counting):
    """The end of one lesson's core. It counts anew whenever an exercise is checked or a question answered.

    The core is done when this was run, each of its questions answered and each of its exercises tried.
    """

    def __init__(self, number: str) -> None:
        """End the lesson with that number, ``"03"``; ValueError names the lessons that there are."""
        self.lesson = shipped.head_of(number)
        self._counts = ipywidgets.HTML()
        super().__init__([self._counts], layout={"max_width": "900px"})
        self.add_class("amp-strip")
        self.refresh_from_now_on()

    @property
    def said(self) -> str:
        """What the strip says this learner has done, as plain sentences."""
        return " ".join([*(f"{number} {what}." for number, what in self._facts()), *self._below()])

    def refresh(self) -> None:
        """Count again what was solved and answered."""
        self._kept, unread = kept_or_message()
        self._score, unwritten = scores.end_core(self.lesson.number, self._kept)
        if self._score.done_at and self.lesson.number not in self._kept.cores:  # since a moment ago
            self._kept, unread = kept_or_message()
        self._message = " ".join(filter(None, (self._kept.message, unread, unwritten)))
        self._counts.value = self._html(self._below())

    def _facts(self) -> Iterator[tuple[str, str]]:
        """Yield each number with what it counts of the core."""
        core = self._score.core
        if core.exercises:
            one = core.exercises == 1
            yield f"{core.solved} of {core.exercises}", "exercise solved" if one else "exercises solved"
        if core.questions:
            yet = f", {core.unanswered} not answered yet" if core.unanswered else ""
            yield f"{core.right} of {core.questions}", f"questions right at the first answer{yet}"
        yield str(self.lesson.minutes), f"minutes planned for {self._what()}"

    def _what(self) -> str:
        return "the core of this lesson" if self.lesson.deeper else "this lesson"

    def _below(self) -> list[str]:
        return [*self._done(), *filter(None, [overview.due(self._kept), self._message])]

    def _done(self) -> list[str]:
        done = _done(self._score, self._what(), self._kept)
        return list(filter(None, [done, _of_deeper(self._score.deeper, self.lesson.deeper)]))

    def _html(self, said: list[str]) -> Markup:
        item = Markup("<li><strong>{}</strong> {}</li>")
        facts = Markup("").join(item.format(*fact) for fact in self._facts())
        return _STYLE + live_region(Markup("<ul>{}</ul>").format(facts), paragraphs(said))

    def stand_in(self) -> Markup:
        """Return what was done, as it was counted last; what is due is another on another day."""
        return self._html(self._done())

    def _holds(self) -> str:
        parts = self._score.core, self._score.deeper
        core, deeper = (_held(each.exercises, each.questions) for each in parts)
        number = self.lesson.number
        if not self.lesson.deeper:
            return f"Lesson {number} has {core}."
        below = deeper or "more to read"
        return f"The core of lesson {number} has {core}. What is folded below it has {below}."

    def way_on(self) -> str:
        """Return in markdown the links to the next step, to what is behind this lesson, and to the map."""
        number, here = self.lesson.number, self.lesson.file == FIRST
        back = "the map of all lessons is above" if here else f"[back to the map of all lessons]({MAP})"
        route, step = following.chosen(self._kept), following.next_step(self._kept)
        behind = route.behind(number, self._kept) or IN_ORDER.behind(number, self._kept)
        on = following.link_to(behind) if behind else ""
        if (
            tasks.stopped_at(self._kept) is None
        ):  # nothing is known but that somebody reads this, as it is stored
            return f"**Next: {on}** · {back}" if on else f"That was the last lesson · {back}"
        links = [following.said_of(route, self._kept, linked=True).removesuffix(".")]
        if on and (step is None or step.stop != behind):
            links.append(f"or go on with {on}")
        return " · ".join([*links, back])

    def linked(self) -> str:
        """Return where what is not right yet stands, and the way on."""
        return "\n\n".join(filter(None, [self._not_right(), self.way_on()]))

    def _not_right(self) -> str:
        """Return links to the sections with something not right yet; "" before the core is done."""
        left: dict[str, str] = {}
        for task in tasks.of_lesson(self.lesson.number) if self._score.done_at else ():
            if not task.part and not task.right(self._kept):
                words = f"“{task.heading}”" if task.heading else "the lesson's beginning"
                left.setdefault(words, following.link(words, task))
        again = "The course does not ask again: follow a link, and answer again."
        return f"**Not right yet:** {', '.join(left.values())}. {again}" if left else ""

    def stored(self) -> dict[str, str]:
        """Leave the learner's progress out, so that a stored strip is the same for everyone."""
        return dict.fromkeys(("text/plain", "text/markdown"), self._holds())


def _held(exercises: int, questions: int) -> str:
    """Count exercises and questions in words; nothing where there are none."""
    held = [counted(n, what) for n, what in ((exercises, "exercise"), (questions, "question")) if n]
    return listed(held) if held else ""


def _done(score: Score, what: str, kept: Learner) -> str:
    """Say whether the core is done, what of it is not right yet, and what it takes to be done."""
    core = score.core
    if score.done_at:
        left = _held(core.exercises - core.solved, core.questions - core.found)
        return f"You have been through {what}; not right yet: {left}." if left else f"You have done {what}."
    tried = " and every exercise tried" if core.exercises else ""
    needed = f"once every question is answered{tried}"
    to_go = _held(core.untried, core.unanswered)
    asked = [each for each in tasks.of_lesson(score.lesson) if not each.part]
    first = next((each for each in asked if not each.done(kept)), asked[-1])
    where = f"under “{first.heading}”" if first.heading else "at the lesson's beginning"
    return f"{what.capitalize()} counts as done {needed}: {to_go} to go, the first {where}."


def _of_deeper(part: Part, minutes: int) -> str:
    """Say what stands below the core, and what of it was done; nothing where nothing stands there."""
    if not minutes:
        return ""
    counts = (
        (part.solved, part.exercises, "exercise", "solved"),
        (part.answered, part.questions, "question", "answered"),
    )
    held = [f"{done} of {counted(all_, what)} {how}" for done, all_, what, how in counts if all_]
    return f"Folded below: sections for another {minutes} minutes{''.join(f', {each}' for each in held)}."
