"""One page for each learner: what was judged, what the check says, what a teacher should look at.

All of it was written by somebody else: every word is escaped, and the page forbids the browser whatever is
not on it.
"""

from __future__ import annotations

import re
from pathlib import Path

from markupsafe import Markup

from amp_lessons.exercises.report import rendering
from amp_lessons.grading.grades import Grade, Graded, shown, writable
from amp_lessons.text.page import whole_page
from amp_lessons.text.tables import Table

_STYLE = Path(__file__).with_name("pages.css")
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
        report=rendering.report_html(grade.report) if grade.report else Markup(""),
        source=_SOURCE.format(grade.source) if grade.source else Markup(""),
    )


def _look_at(remarks: tuple[str, ...]) -> Markup:
    items = Markup("").join(_ITEM.format(shown(each)) for each in remarks)
    return _LOOK_AT.format(items) if remarks else Markup("")
