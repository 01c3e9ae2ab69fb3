"""What comes next, decided here alone: the map, the ends of lessons, ``amp-lessons progress`` and the line of
the next morning all say what ``next_step`` returns.

Whoever stopped in a stop of the route goes on there: at the exercise that was tried last and is not solved,
else at the first task behind the one that was worked on last that is not done. Once the stop is done, the
route says which follows, and once that is over, the order of the lessons.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from amp_lessons._base.text.words import counted
from amp_lessons.course import progress
from amp_lessons.course.lessons import shipped, tasks
from amp_lessons.course.lessons.tasks import Task
from amp_lessons.course.progress import Learner
from amp_lessons.course.routes.catalogue import IN_ORDER, ROUTES
from amp_lessons.course.routes.stops import Command, Core, InLesson, Route, Stop

_FIRST = "00"  # the lesson in which a learner without a record is
_HEAD = "objective"  # the id of a lesson's first cell
_A_BREAK = timedelta(hours=4)  # whoever goes on sooner knows where that was


@dataclass(frozen=True)
class Step:
    """The next step: a stop of a route, and in one that was begun the task to go on with."""

    route: Route
    stop: Stop
    task: Task | None = None

    def __str__(self) -> str:
        return (
            f"lesson {self.task.lesson}, {_what(self.task)}" if self.task else str(self.stop) + self._takes()
        )

    @property
    def place(self) -> tuple[str, str]:
        """The number of the lesson and the id of the cell to go to; ``("", "")`` for a command."""
        if self.task:
            return self.task.lesson, self.task.cell
        if isinstance(self.stop, Command):
            return "", ""
        return self.stop.lesson, self.stop.section if isinstance(self.stop, InLesson) else _HEAD

    def as_markdown(self) -> str:
        """Return the step as a link to its lesson, section or cell, from a notebook beside it."""
        return link(str(self), self.task) if self.task else link_to(self.stop) + self._takes()

    def _takes(self) -> str:
        """Return how long a lesson takes; for a section the page that it stands on says that."""
        return f" ({counted(self.stop.minutes, 'minute')})" if isinstance(self.stop, Core) else ""


def chosen(kept: Learner) -> Route:
    """Return the route that the learner chose; the order of the lessons before a choice, or if it is gone."""
    return next((each for each in ROUTES if each.id == kept.route), IN_ORDER)


def next_step(kept: Learner) -> Step | None:
    """Return what comes next on the route that was chosen, and behind its end in the order of the lessons."""
    return next_on(chosen(kept), kept) or next_on(IN_ORDER, kept)


def next_on(route: Route, kept: Learner) -> Step | None:
    """Return what comes next on one route; None at its end."""
    found = tasks.stopped_at(kept)
    for stop in route.stops:
        if found and found[0] in stop.tasks() and not stop.done(kept):
            return Step(route, stop, _goes_on(found[0], stop.tasks(), kept))
    following = route.next_stop(kept)
    if following is None:
        return None
    to_do = [each for each in following.tasks() if not each.done(kept)]
    begun = len(to_do) < len(following.tasks()) or getattr(following, "lesson", "") == _FIRST
    return Step(route, following, to_do[0] if to_do and begun else None)


def said_of(route: Route, kept: Learner, *, linked: bool = False) -> str:
    """Say what comes next on a route, in markdown with a link if it shall be ``linked``."""
    step = next_on(route, kept)
    over = f"“{route.title}”: you have been through all of it."
    if step is None:
        if route is IN_ORDER:
            return "You have been through the core of every lesson."
        return over if route != chosen(kept) else f"{over} {said_of(IN_ORDER, kept, linked=linked)}"
    on = "" if route is IN_ORDER else f" on “{route.title}”"
    return f"**Next{on}:** {step.as_markdown()}." if linked else f"Next{on}: {step}."


def of_the_morning(kept: Learner, *, linked: bool = False) -> str:
    """Say where the learner stopped and what is next; "" where nothing was done, or just now."""
    stopped = where_stopped(kept, linked=linked)
    return f"{stopped} {said_of(chosen(kept), kept, linked=linked)}" if stopped else ""


def where_stopped(kept: Learner, *, linked: bool = False) -> str:
    """Say where and on which day the learner stopped; "" where nothing was done, or just now."""
    found = tasks.stopped_at(kept)
    if found is None or progress.utc_now() - found[1] < _A_BREAK:
        return ""
    task, at = found
    place = f"lesson {task.lesson}" + (f", “{task.heading}”" if task.heading else "")
    return f"{_day(at)} you stopped in {link(place, task) if linked else place}."


def link_to(stop: Stop) -> str:
    """Return a link in markdown to the beginning of a stop, from a notebook beside it."""
    if not isinstance(stop, Core):
        return stop.as_markdown("")
    return f"[lesson {shipped.named(stop.lesson)}]({shipped.head_of(stop.lesson).file})"


def link(words: str, task: Task) -> str:
    """Return a link in markdown to the cell of a task, from a notebook beside it."""
    return f"[{words}]({shipped.head_of(task.lesson).file}#cell-id={task.cell})"


def _goes_on(last: Task, all_: list[Task], kept: Learner) -> Task:
    """Return the task to go on with in a stop, of which ``last`` was worked on last and not all is done."""
    if last.stuck(kept):
        return last
    place = all_.index(last) + 1
    to_do = [each for each in (*all_[place:], *all_[:place]) if not each.done(kept)]
    return min(to_do, key=lambda each: each.ends_core)


def _what(task: Task) -> str:
    if task.ends_core:
        return "the cell that ends its core"
    asked = [("exercise", task.exercises), ("question", task.questions)]
    what = next(one + "s" * (len(ids) > 1) for one, ids in asked if ids)
    return f"the {what} in “{task.heading}”" if task.heading else f"the {what} at its beginning"


def _day(at: datetime) -> str:
    """Return the day in words, as the learner's clock has it."""
    day = at.astimezone().date()
    ago = (progress.utc_now().astimezone().date() - day).days
    return {0: "Earlier today", 1: "Yesterday"}.get(ago, f"On {day.isoformat()}")
