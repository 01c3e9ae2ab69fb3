"""The table of what is live on the pages, and what stands there as a picture, and why."""

from __future__ import annotations

from markupsafe import Markup

from amp_lessons.course.site.lesson import SCROLLING_TABLE
from amp_lessons.course.site.shell import Page, address, link
from amp_lessons.course.site.substitutes import Shelf, Shown

_TOLD = Markup(
    """<h1>What is live here, and what is a picture</h1>
<p>In a notebook Python answers each move of a control. On a page a view is live where its states
could be computed beforehand, by the same Python. Elsewhere a picture shows one state. Questions are the same in
both; the check of an exercise needs the notebook, for it runs your code.</p>"""  # noqa: E501
)


def live_page(shelf: Shelf) -> Page:
    """Return the page that says of each view of the lessons how it is shown."""
    head = Markup("<thead><tr>{}</tr></thead>").format(
        Markup("").join(map(Markup('<th scope="col">{}</th>').format, ("lesson", "view", "on its page")))
    )
    rows = Markup("").join(map(_row, shelf.shown))
    table = SCROLLING_TABLE.format(Markup("<table>{}<tbody>{}</tbody></table>").format(head, rows))
    return Page("live.html", "What is live here", _TOLD + table)


def _row(shown: Shown) -> Markup:
    to = link(f"{address(shown.lesson.file)}#cell-{shown.cell}", shown.lesson.short_title)
    return Markup("<tr><td>{} {}</td><td>{}</td><td>{}</td></tr>").format(
        shown.lesson.number, to, shown.view, shown.how
    )
