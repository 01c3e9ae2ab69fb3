"""What of README, guide and lesson 00 is computed: tables of lessons, routes, plans made of routes.

Such a block stands between ``<!-- computed: lessons -->`` and ``<!-- /computed -->``, which no reader sees.
"""

from __future__ import annotations

import json
import re
from itertools import groupby
from pathlib import Path

from amp_lessons.lessons import shipped
from amp_lessons.lessons.shipped import Head
from amp_lessons.routes.catalogue import ABLE_TO, ROUTES, route
from amp_lessons.routes.stops import Command, Core, InLesson, Route

ROOT = Path(__file__).parents[1]
# Where blocks stand, and the folder of the lessons as seen from there.
FILES = {"README.md": "notebooks/", "classroom/guide.md": "../notebooks/"}
NOTEBOOKS = {f"notebooks/{shipped.FIRST}": ""}

_BLOCK = re.compile(r"<!-- computed: (?P<what>[\w ]+) -->\n.*?<!-- /computed -->", re.DOTALL)


def refreshed(text: str, folder: str) -> str:
    """Return a text with each of its blocks as it is now. Raises ValueError for a block that is none."""
    return _BLOCK.sub(lambda found: _block(found["what"], folder), text)


def _block(what: str, folder: str) -> str:
    kind, _, of = what.partition(" ")
    made = {
        "lessons": _lessons,
        "routes": _routes,
        "short": lambda folder: "\n".join(each.in_short(folder) for each in ROUTES),
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


def _routes(folder: str) -> str:
    return "\n".join(each.as_markdown(folder) for each in ROUTES)


def _plan(chosen: Route) -> str:
    """Return a route as a plan: a row for each lesson, with what is taken of it."""
    rows = ["| lesson | sections | minutes |", "|---|---|---:|"]
    for lesson, stops in groupby(
        chosen.stops, key=lambda stop: "" if isinstance(stop, Command) else stop.lesson
    ):
        taken = list(stops)
        if lesson:
            rows.append(
                f"| {lesson} | {'; '.join(map(_taken, taken))} | {sum(each.minutes for each in taken)} |"
            )
    return "\n".join([*rows, f"| | **together** | **{chosen.minutes}** |"])


def _taken(stop: Core | InLesson | Command) -> str:
    return stop.heading if isinstance(stop, InLesson) else "the core"


def refresh() -> None:
    """Write every block again."""
    for name, folder in FILES.items():
        text = (ROOT / name).read_text("utf-8")
        (ROOT / name).write_text(refreshed(text, folder), "utf-8")
    for name, folder in NOTEBOOKS.items():
        notebook = json.loads((ROOT / name).read_text("utf-8"))
        for cell in notebook["cells"]:
            cell["source"] = refreshed(shipped.source(cell), folder).splitlines(keepends=True)
        (ROOT / name).write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
