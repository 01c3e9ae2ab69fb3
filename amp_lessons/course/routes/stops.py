"""What a route is made of: cores of lessons, sections of lessons, and commands."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from amp_lessons._base.text.words import counted
from amp_lessons.course.lessons import shipped, tasks
from amp_lessons.course.lessons.shipped import heading_of
from amp_lessons.course.lessons.tasks import Task
from amp_lessons.course.progress import Learner
from amp_lessons.course.routes import minutes


@dataclass(frozen=True)
class Core:
    """The core of a lesson, by the lesson's number, ``"03"``."""

    lesson: str

    @property
    def minutes(self) -> int:
        """The minutes that the lesson's head states."""
        return shipped.head_of(self.lesson).minutes

    def __str__(self) -> str:
        return f"lesson {self.lesson}, {shipped.head_of(self.lesson).short_title}"

    def as_markdown(self, folder: str) -> str:
        """Return a link to the lesson in ``folder``: "", or a path that ends with a slash."""
        head = shipped.head_of(self.lesson)
        return f"[{self.lesson}, *{head.short_title}*]({folder}{head.file})"

    def done(self, kept: Learner) -> bool:
        """Return whether the core was done."""
        return self.lesson in kept.cores

    def tasks(self) -> list[Task]:
        """Return what the core asks for."""
        return [each for each in tasks.of_lesson(self.lesson) if not each.part]


@dataclass(frozen=True)
class InLesson:
    """A section of a lesson, by the id of its heading's cell, with what stands in it below ``###``."""

    lesson: str
    section: str

    @property
    def heading(self) -> str:
        """The section's heading."""
        heading = heading_of(shipped.section(self.lesson, self.section)[0])
        return heading[1] if heading else ""

    @property
    def minutes(self) -> int:
        """The section's minutes, by the rule. Raises ValueError where the lesson has none of that id."""
        return sum(each.minutes for each in minutes.with_subsections(self.lesson, self.section))

    def __str__(self) -> str:
        return f"lesson {self.lesson}, “{self.heading}”"

    def as_markdown(self, folder: str) -> str:
        """Return a link to the section in the lesson in ``folder``."""
        file = shipped.head_of(self.lesson).file
        return f"[{self.lesson}, *{self.heading}*]({folder}{file}#{anchor(self.heading)})"

    def done(self, kept: Learner) -> bool:
        """Return whether the section asks for something, and all of it was answered or tried."""
        asked = self.tasks()
        return bool(asked) and all(each.done(kept) for each in asked)

    def tasks(self) -> list[Task]:
        """Return what the section asks for."""
        return [each for each in tasks.in_section(self.lesson, self.section) if not each.ends_core]


@dataclass(frozen=True)
class Command:
    """Something to run, or to read, that is no lesson; it takes as long as it takes."""

    text: str
    what: str
    minutes: int = 0

    def __str__(self) -> str:
        return f"{self.text}, {self.what}"

    def as_markdown(self, folder: str) -> str:
        """Return the command as code, with what it does."""
        return f"`{self.text}`, {self.what}"

    def done(self, kept: Learner) -> bool:
        """Return False: nobody notes what is done outside lessons."""
        return False

    def tasks(self) -> list[Task]:
        """Return nothing: it is no part of a lesson."""
        return []


Stop = Core | InLesson | Command


@dataclass(frozen=True)
class Route:
    """A way through the course for somebody whom ``title`` brings here, ``to`` some end."""

    id: str
    title: str
    to: str
    stops: tuple[Stop, ...]

    @property
    def minutes(self) -> int:
        """The minutes of all stops; a command counts none."""
        return sum(stop.minutes for stop in self.stops)

    @property
    def takes(self) -> str:
        """The minutes in words, in brackets behind a blank; "" for a route of commands alone."""
        return f" ({duration(self.minutes)})" if self.minutes else ""

    def behind(self, lesson: str, kept: Learner) -> Stop | None:
        """Return the first stop to do behind what the route holds of a lesson; None where none is left."""
        here = [place for place, stop in enumerate(self.stops) if getattr(stop, "lesson", None) == lesson]
        behind = self.stops[here[-1] + 1 :] if here else ()
        return next((stop for stop in behind if not stop.done(kept)), None)

    def next_stop(self, kept: Learner) -> Stop | None:
        """Return the stop behind the last one that was done, the first at first; None behind the last.

        Not everything leaves a trace: who goes on behind what was done last repeats nothing.
        """
        done = [place for place, stop in enumerate(self.stops) if stop.done(kept)]
        behind = self.stops[done[-1] + 1 if done else 0 :]
        return behind[0] if behind else None

    def steps(self, kept: Learner | None = None, following: Stop | None = None) -> str:
        """Return the stops as a numbered list in markdown; links lead to neighbours.

        With what a learner has ``kept``, what was done is marked, and the stop that is ``following``.
        """
        done = [kept is not None and stop.done(kept) for stop in self.stops]
        return "\n".join(
            f"1. {'✓ ' * was_done}{stop.as_markdown('')}{' ← next' * (stop is following)}"
            for was_done, stop in zip(done, self.stops, strict=True)
        )


def duration(minutes: int) -> str:
    """Put minutes into words, from two hours on to the nearest half hour."""
    return counted(minutes, "minute") if minutes < 120 else f"{round(minutes / 30) / 2:g} hours"


def anchor(heading: str) -> str:
    """Return what JupyterLab and GitHub call a heading in an address."""
    return quote(heading.replace("`", "").replace(" ", "-"), safe="?!$&',:;=@/~")
