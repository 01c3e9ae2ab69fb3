"""What grading comes to: for each learner and exercise a grade, as a table, as CSV, and as a page.

All of a page was written by somebody else: every word is escaped, and the page forbids the browser whatever
is not on it.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from amp_lessons._base.text.page import whole_page
from amp_lessons._base.text.tables import Table
from amp_lessons.course.exercises.report.results import Report

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_UNSHOWN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_NO_TEXT = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Grade:
    """What one exercise came to: ``points`` from 0.0 to 1.0, a word of ``status``, and why.

    ``source`` is the code that was judged, ``report`` what the check says of it, if it ran; ``remarks`` are
    what a teacher should look at, and cost nothing by themselves.
    """

    exercise_id: str
    title: str
    status: str
    points: float = 0.0
    report: Report | None = None
    remarks: tuple[str, ...] = ()
    source: str = ""

    @property
    def mark(self) -> str:
        """The cell of the table: points, or a word for none; ``!`` where there is something to look at."""
        word = {"passed": "1", "not passed": "0", "not attempted yet": "·"}
        return word.get(self.status, "–") + ("!" if self.remarks else "")


@dataclass(frozen=True)
class Graded:
    """The grades of one learner, an exercise each, and what is wrong with what was handed in."""

    learner: str
    grades: tuple[Grade, ...]
    problems: tuple[str, ...] = ()

    @property
    def points(self) -> float:
        """The sum of the points."""
        return sum(grade.points for grade in self.grades)


@dataclass(frozen=True)
class Grades:
    """The grades of all learners; ``about`` says under which conditions they came about."""

    learners: tuple[Graded, ...]
    about: str = ""

    def as_table(self) -> Table:
        """Return a row for each learner, with a column for each exercise."""
        ids = [grade.exercise_id for grade in self.learners[0].grades] if self.learners else []
        rows = [
            [shown(each.learner), *(grade.mark for grade in each.grades), f"{each.points:g} of {len(ids)}"]
            for each in self.learners
        ]
        return Table(("learner", *ids, "points"), rows)

    def as_csv(self) -> str:
        """Return a line for each learner and exercise; no spreadsheet takes a cell of it for a formula."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("learner", "exercise", "points", "status", "finding", "remarks"))
        for each in self.learners:
            for grade in each.grades:
                finding = grade.report.findings[0].code if grade.report and grade.report.findings else ""
                remarks = "; ".join((*grade.remarks, *each.problems))
                row = (each.learner, grade.exercise_id, f"{grade.points:g}", grade.status, finding, remarks)
                writer.writerow([_no_formula(shown(cell)) for cell in row])
        return text.getvalue()

    def remarks(self) -> list[str]:
        """Return what a teacher should look at, a line each."""
        lines = [f"{each.learner}: {problem}" for each in self.learners for problem in each.problems]
        lines += [
            f"{each.learner}, {grade.exercise_id}: {remark}"
            for each in self.learners
            for grade in each.grades
            for remark in grade.remarks
        ]
        return [shown(line) for line in lines]


def shown(text: str) -> str:
    """Return a text on one line, without what moves a terminal's cursor or turns the line around."""
    return _UNSHOWN.sub("\N{REPLACEMENT CHARACTER}", writable(text)).replace("\n", " ")


def writable(text: str) -> str:
    """Return a text that a file can hold: halves of characters, which JSON lets through, are replaced."""
    return _NO_TEXT.sub("\N{REPLACEMENT CHARACTER}", text)


def _no_formula(cell: str) -> str:
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


_STYLE = Path(__file__).with_name("grades.css")
_GRADE = Markup(
    '<section><h2 id="{id}">{title}</h2><p><strong>{status}</strong>, {points:g} of 1</p>'
    "{remarks}{report}{source}</section>"
)
_SOURCE = Markup("<details><summary>The code that was judged</summary><pre><code>{}</code></pre></details>")
_LOOK_AT = Markup('<div class="look"><p><strong>To look at</strong></p><ul>{}</ul></div>')
_ITEM = Markup("<li>{}</li>")


def page(graded: Graded, about: str) -> str:
    """Return a whole HTML page of one learner's grades."""
    rows = [(each.title, each.status, f"{each.points:g}") for each in graded.grades]
    total = f"{graded.points:g} of {len(graded.grades)} points"
    parts = [Markup("<p>{}</p>").format(total), _look_at(graded.problems)]
    parts.append(Table(("exercise", "verdict", "points"), rows).as_html() if rows else Markup(""))
    parts += map(_section, graded.grades)
    parts.append(Markup("<p><small>{}</small></p>").format(about))
    return writable(whole_page(shown(graded.learner), Markup("").join(parts), _STYLE))


def file_name(graded: Graded, number: int) -> str:
    """Return a name that is a plain one on any system, and nobody else's in this folder."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", graded.learner).strip("_")[:60]
    return f"{number:03d}_{plain or 'learner'}.html"


def _section(grade: Grade) -> Markup:
    return _GRADE.format(
        id=grade.exercise_id,
        title=grade.title,
        status=grade.status,
        points=grade.points,
        remarks=_look_at(grade.remarks),
        report=grade.report.as_html() if grade.report else Markup(""),
        source=_SOURCE.format(grade.source) if grade.source else Markup(""),
    )


def _look_at(remarks: tuple[str, ...]) -> Markup:
    items = Markup("").join(_ITEM.format(shown(each)) for each in remarks)
    return _LOOK_AT.format(items) if remarks else Markup("")
