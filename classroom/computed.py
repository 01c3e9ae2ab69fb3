"""What of README and guide is computed: tables of lessons, routes, plans made of routes.

Such a block stands between ``<!-- computed: lessons -->`` and ``<!-- /computed -->``, which no reader sees.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from amp_lessons._base.text.words import counted
from amp_lessons.course.lessons import shipped
from amp_lessons.course.lessons.shipped import Head
from amp_lessons.course.routes.catalogue import ABLE_TO, ROUTES, route
from amp_lessons.course.routes.stops import Command, InLesson, Route, Stop

ROOT = Path(__file__).parents[1]
# Where blocks stand, and the folder of the lessons as seen from there.
FILES = {"README.md": "notebooks/", "classroom/guide.md": "../notebooks/"}

_BLOCK = re.compile(r"<!-- computed: (?P<what>[\w ]+) -->\n.*?<!-- /computed -->", re.DOTALL)


def refreshed(text: str, folder: str) -> str:
    """Return a text with each of its blocks as it is now. Raises ValueError for a block that is none."""
    return _BLOCK.sub(lambda found: _block(found["what"], folder), text)


def _block(what: str, folder: str) -> str:
    kind, _, of = what.partition(" ")
    made = {
        "lessons": _lessons,
        "short": _in_short,
        "plan": lambda _: _plan(route(of)),
    }
    if kind not in made:
        raise ValueError(f"nothing called {what!r} is computed; there are {', '.join(made)}")
    return f"<!-- computed: {what} -->\n{made[kind](folder)}\n<!-- /computed -->"


def _lessons(folder: str) -> str:
    heads = shipped.heads()
    rows = ["| lesson | you will be able to | core | with deeper |", "|---|---|---:|---:|"]
    rows += [_lesson(head, folder) for head in heads]
    core, whole = sum(head.minutes for head in heads), sum(head.minutes + head.deeper for head in heads)
    hours = f"{core / 60:.0f} hours for the cores, {whole / 60:.0f} for everything, exercises included"
    return "\n".join([*rows, f"| **minutes together** | {hours} | **{core:,}** | **{whole:,}** |"])


def _lesson(head: Head, folder: str) -> str:
    link = f"[{head.number} {head.short_title}]({folder}{head.file})"
    return f"| {link} | {ABLE_TO[head.number]} | {head.minutes} | {head.minutes + head.deeper} |"


def _in_short(folder: str) -> str:
    """Return the routes as a list, each in a line: which lessons, what of them, which commands."""
    return "\n".join(f"- **{each.title}**{each.takes}: {' → '.join(_steps(each, folder))}" for each in ROUTES)


def _steps(chosen: Route, folder: str) -> Iterator[str]:
    """Yield what a route leads through; four lessons and more of which it takes the same are one step."""
    parts = [(_part(stops), lesson) for lesson, stops in _by_lesson(chosen)]
    for part, same in groupby(parts, key=itemgetter(0)):
        links = [f"[{lesson}]({folder}{shipped.head_of(lesson).file})" for _, lesson in same if lesson]
        steps = [f"{links[0]} to {links[-1]}"] if len(links) > 3 else links
        yield from ([", ".join(filter(None, (step, part))) for step in steps] or [part])


def _part(stops: list[Stop]) -> str:
    """Say what is taken of a lesson: "" for its core, a heading, how many sections; commands as they are."""
    sections = [stop for stop in stops if isinstance(stop, InLesson)]
    commands = [f"`{stop.text}`" for stop in stops if isinstance(stop, Command)]
    if commands or not sections:
        return " → ".join(commands)
    return f"*{sections[0].heading}*" if len(stops) == 1 else counted(len(stops), "section")


def _by_lesson(chosen: Route) -> Iterator[tuple[str, list[Stop]]]:
    """Yield each lesson of a route with the stops in it; "" stands for commands."""
    lessons = groupby(chosen.stops, key=lambda stop: "" if isinstance(stop, Command) else stop.lesson)
    return ((lesson, list(stops)) for lesson, stops in lessons)


def _plan(chosen: Route) -> str:
    """Return a route as a plan: a row for each lesson, with what is taken of it."""
    rows = ["| lesson | sections | minutes |", "|---|---|---:|"]
    for lesson, stops in _by_lesson(chosen):
        if lesson:
            rows.append(
                f"| {lesson} | {'; '.join(map(_taken, stops))} | {sum(each.minutes for each in stops)} |"
            )
    return "\n".join([*rows, f"| | **together** | **{chosen.minutes}** |"])


def _taken(stop: Stop) -> str:
    return stop.heading if isinstance(stop, InLesson) else "the core"


def refresh() -> None:
    """Write every block again."""
    for name, folder in FILES.items():
        text = (ROOT / name).read_text("utf-8")
        (ROOT / name).write_text(refreshed(text, folder), "utf-8")
