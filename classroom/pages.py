"""What of the pages in ``classroom/lessons`` is computed: ``python -m classroom.pages`` writes it again.

With numbers of lessons it writes their pages alone: ``python -m classroom.pages 03``. Without, it also writes
what is computed of README, guide and lesson 00.

The minutes of the core, of what is deeper and of each section, their sums in each plan, and the questions
with their answers. Which sections a plan takes (``●``), and everything else, is written by hand.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from amp_lessons import quizzes
from amp_lessons.course.lessons import shipped
from amp_lessons.course.lessons.shipped import Head
from amp_lessons.course.routes import minutes
from classroom import computed

PAGES = Path(__file__).parent / "lessons"
TAKEN = "●"
TOGETHER = "**together**"
LEFT_FOR_TALK = 0.1  # of a plan: what its sections may not take

_ROW = re.compile(r"^\| .+ \|$")  # the rule below the heading is none
STATED = re.compile(r"(?<=^\[The lesson\]\()(\S+\)), \d.*? for one reader alone\.", re.MULTILINE)
_ASKED = re.compile(r"^- `([\w.]+)`.*$", re.MULTILINE)


def pages() -> list[Path]:
    """Return the pages, in the order of the lessons."""
    return sorted(PAGES.glob("[0-9][0-9]_*.md"))


def minutes_of(number: str) -> dict[str, int]:
    """Return the minutes of each section of a lesson by its heading."""
    return {each.heading: each.minutes for each in minutes.sections(number)}


def refreshed(text: str, head: Head, minutes_of: dict[str, int]) -> str:
    """Return a page with its minutes, sums and answers as they are now.

    Raises ValueError for a section in the table that the lesson does not have, KeyError for a question.
    """
    lines = STATED.sub(rf"\1, {_stated(head)} for one reader alone.", text).splitlines()
    rows = [place for place, line in enumerate(lines) if _ROW.match(line)][1:]  # below the heading
    table = [_cells(lines[place]) for place in rows]
    unknown = [row[0] for row in table if row[0] not in {*minutes_of, TOGETHER}]
    if unknown:
        raise ValueError(f"no section of the lesson is called {', '.join(unknown)}")
    for place, row in zip(rows, table, strict=True):
        lines[place] = _row(row, table, minutes_of)
    return _ASKED.sub(_with_answer, "\n".join(lines) + "\n")


def _stated(head: Head) -> str:
    core = f"{head.minutes} minutes"
    return f"{core} for the core and {head.deeper} for what is deeper," if head.deeper else core


def plans(text: str) -> dict[int, list[str]]:
    """Return the sections that each plan takes, by its minutes."""
    heading, *table = [_cells(line) for line in text.splitlines() if _ROW.match(line)]
    return {
        int(minutes): [row[0] for row in table if row[column] == TAKEN]
        for column, minutes in enumerate(heading[2:], start=2)
    }


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def _row(row: list[str], table: list[list[str]], minutes_of: dict[str, int]) -> str:
    if row[0] != TOGETHER:
        return f"| {' | '.join([row[0], str(minutes_of[row[0]]), *row[2:]])} |"
    sums = [sum(minutes_of.values())]
    sums += [sum(minutes_of[each[0]] for each in table if each[at] == TAKEN) for at in range(2, len(row))]
    return f"| {' | '.join([TOGETHER, *(f'**{total}**' for total in sums)])} |"


def _with_answer(asked: re.Match[str]) -> str:
    question = quizzes.question(asked[1])
    return f"- `{question.id}` {question.text} **{question.answer.text}.**"


def main(numbers: list[str]) -> None:
    """Write what is computed in the pages of these lessons; without numbers in all, and elsewhere."""
    if not numbers:
        computed.refresh()  # first, for the minutes of lesson 00 count the words there
    for page in pages():
        number, text = page.name[:2], page.read_text("utf-8")
        if number in (numbers or number):
            page.write_text(refreshed(text, shipped.head_of(number), minutes_of(number)), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
