"""A lesson as a page: its notebook as it is stored, the core open, what is deeper folded.

nbconvert turns cells into HTML (``template``); what a cell shows that asks something of a reader, or could be
played with, is replaced before (``substitutes``).
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Iterable
from pathlib import Path

import nbformat
from markupsafe import Markup
from nbconvert import HTMLExporter

from amp_lessons.audit.rules.rows import EXPLAINED_AT
from amp_lessons.course.lessons import shipped
from amp_lessons.course.lessons.shipped import Cell, Head
from amp_lessons.course.site.float_page import BOX, SCRIPTS
from amp_lessons.course.site.questions import behind_questions
from amp_lessons.course.site.shell import REPOSITORY, Page, address, link
from amp_lessons.course.site.substitutes import Shelf, Shown, substituted

_HEADING = re.compile(r'<h([1-6]) id="(.*?)">(.*?)</h\1>', re.DOTALL)
_ANCHOR = re.compile(r'<a class="anchor-link".*?</a>')
_LESSON = re.compile(r'href="(\d\d_\w+)\.ipynb')
_ABOVE = re.compile(r'href="\.\./')
_EXPLAINED = re.compile(re.escape(EXPLAINED_AT.partition("explain.html")[0]))
_CODE = re.compile("<pre>")
_TABLE = re.compile(r"(?<!nowrap\">)<table.*?</table>", re.DOTALL)  # those of text.tables scroll already
SCROLLING_TABLE = Markup('<div class="amp-scroll" role="group" aria-label="Table" tabindex="0">{}</div>')
_LINK = re.compile(r"</?a\b[^>]*>")
_GAP = re.compile(r"\S {2,}(?=\S)")
_FOR_WHOM = re.compile(r"<p>(.*?)</p>", re.DOTALL)


@functools.cache
def _exporter() -> HTMLExporter:
    return HTMLExporter(
        extra_template_basedirs=[str(Path(__file__).parent)],
        template_name="template",
        filters={"is_columns": is_columns},
    )


def is_columns(text: str) -> bool:
    """Whether what was printed is a table, which wrapped lines would tear: two rows have two gaps each."""
    return sum(len(_GAP.findall(line)) > 1 for line in text.splitlines()) > 1


def lesson_page(head: Head, shelf: Shelf) -> Page:
    """Return the page of a lesson; its pictures, and what its views need, are put on ``shelf``."""
    notebook = nbformat.read(shipped.numbered(shipped.originals(), head.number), as_version=4)
    core, deeper = shipped.parted(behind_questions(substituted(cell, head, shelf) for cell in notebook.cells))
    head_html, _, to_run = _html(core[:1]).rpartition("<p>")
    opening, core_html = Markup(head_html + _READ + to_run), Markup(_html(core[1:]))
    sections = [_folded(section) for section in deeper]
    return Page(
        file=address(head.file),
        title=f"{head.number} · {head.title}",
        body=opening
        + _contents(core_html, Markup("").join(sections))
        + core_html
        + Markup('<p id="answered" class="how" aria-live="polite"></p>')
        + Markup("\n").join(sections)
        + _ways_on(head),
        description=f"{head.title}: lesson {head.number} of a course on mixed precision with PyTorch",
        scripts=("questions.js", "widgets.js", "views.js", *(SCRIPTS[1:] if BOX in core_html else ())),
        kind="lesson",
        under="index.html",
    )


_READ = (  # in front of the links that a lesson's head ends with
    '<p class="how">Outputs stand below each cell; after a question they stay hidden until you answer. To '
    "run the code, open the notebook: "
)


def _html(cells: Iterable[Cell]) -> str:
    made, _ = _exporter().from_notebook_node(nbformat.v4.new_notebook(cells=list(cells)))
    return linked(made)


def linked(made: str) -> str:
    """Return HTML whose links lead to pages and to the repository, and whose tables and code can scroll."""
    for pattern, instead in (
        (_ANCHOR, ""),
        (_LESSON, r'href="\1.html'),
        (_ABOVE, f'href="{REPOSITORY}/blob/main/'),
        (_EXPLAINED, ""),  # the page beside, also of a copy without the network
        (_CODE, '<pre tabindex="0">'),
        (_TABLE, SCROLLING_TABLE.format(Markup(r"\g<0>"))),
    ):
        made = pattern.sub(instead, made)
    return made


def _folded(cells: list[Cell]) -> Markup:
    """Fold a deeper section: its heading, its minutes and whom it is for stay in sight."""
    heading, rest = _html(cells[:1]), _html(cells[1:])
    _, id, title = _HEADING.search(heading).groups()  # type: ignore[union-attr]  # its first cell begins with it
    cell = f' id="cell-{cells[0]["id"]}"'
    below = _HEADING.sub("", heading, count=1).replace(cell, "")
    told = _FOR_WHOM.search(below)
    return Markup(
        '<details class="deeper"{}><summary><h2 id="{}">{}</h2> <span>{}</span></summary>{}{}</details>'
    ).format(
        Markup(cell),
        Markup(id),
        Markup(title),
        Markup(_LINK.sub("", told[1] if told else "")),  # no link inside of what is pressed to unfold
        Markup(_FOR_WHOM.sub("", below, count=1)),
        Markup(rest),
    )


def headings(made: str) -> list[tuple[int, str, str]]:
    """Return level, id and words of each heading of a page, as text."""
    return [
        (int(level), html.unescape(id), html.unescape(re.sub("<.*?>", "", words)))
        for level, id, words in _HEADING.findall(made)
    ]


def _contents(core: str, deeper: str) -> Markup:
    listed = "<summary>In this lesson</summary><ol>{}</ol><p>Deeper</p><ul>{}</ul>"
    folded = Markup(f'<div class="beside"><details class="contents">{listed}</details></div>')
    return folded.format(_headed(core), _headed(deeper)) if _headed(core) else Markup("")


def _headed(made: str) -> Markup:
    """List the second headings of a part of a page, as links."""
    item = Markup("<li>{}</li>").format
    found = [(id, words.removeprefix("Deeper: ")) for level, id, words in headings(made) if level == 2]
    return Markup("").join(item(link(f"#{id}", words)) for id, words in found)


def _ways_on(head: Head) -> Markup:
    """Return the links to the lessons before and after."""
    heads = shipped.heads()
    place = heads.index(head)
    before, after = heads[place - 1] if place else None, shipped.head_after(head)
    way = Markup('<a rel="{}" href="{}">{}</a>').format
    ways = [
        way("prev", address(before.file), f"← {before.number} · {before.short_title}") if before else "",
        way("next", address(after.file), f"{after.number} · {after.short_title} →") if after else "",
    ]
    nav = '<nav class="ways-on" aria-label="Lessons before and after">{}</nav>'
    return Markup(nav).format(Markup(" ").join(filter(None, ways)))


# --- what is live

_ABOUT_LIVE = Markup(
    """<h1>What is live here, and what is a picture</h1>
<p>In a notebook Python answers each move of a control. On a page a view is live where its states
could be computed beforehand, by the same Python; bits are computed by the page. Elsewhere a picture shows one
state. Questions are the same in both; the check of an exercise needs the notebook: it runs your code.</p>"""
)


def live_page(shelf: Shelf) -> Page:
    """Return the page that says of each view of the lessons how it is shown."""
    head = Markup("<thead><tr>{}</tr></thead>").format(
        Markup("").join(map(Markup('<th scope="col">{}</th>').format, ("lesson", "view", "on its page")))
    )
    rows = Markup("").join(map(_live_row, shelf.shown))
    table = SCROLLING_TABLE.format(Markup("<table>{}<tbody>{}</tbody></table>").format(head, rows))
    return Page("live.html", "What is live here", _ABOUT_LIVE + table)


def _live_row(shown: Shown) -> Markup:
    to = link(f"{address(shown.lesson.file)}#cell-{shown.cell}", shown.lesson.short_title)
    return Markup("<tr><td>{} {}</td><td>{}</td><td>{}</td></tr>").format(
        shown.lesson.number, to, shown.view, shown.how
    )
