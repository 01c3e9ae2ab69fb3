"""The glossary as a page: each term can be linked to."""

from __future__ import annotations

import re
from pathlib import Path

from markupsafe import Markup
from nbconvert.filters import markdown2html_mistune

from amp_lessons.course.lessons import shipped
from amp_lessons.course.site.lesson import linked
from amp_lessons.course.site.shell import Page

_TERM = re.compile(r"<tr>\s*<td>(.+?)</td>")


def glossary_page() -> Page:
    """Return the page of the glossary, made of the one that authors keep to."""
    return Page("glossary.html", "Glossary", Markup(glossary_html(_text())), listed="Glossary")


def glossary_html(text: str) -> str:
    """Return the glossary as HTML, in which the row of each term has an id."""
    made = linked(markdown2html_mistune(text))
    return _TERM.sub(lambda found: f'<tr id="{term_id(found[1])}"><td>{found[1]}</td>', made)


def term_id(term: str) -> str:
    """Return the id of a term's row: its letters and digits, with a dash for whatever lies between."""
    return "term-" + re.sub(r"\W+", "-", re.sub("<.*?>", "", term).lower()).strip("-")


def _text() -> str:
    """Return the glossary's file: with the lessons in an installed package, in ``docs`` in a checkout."""
    folder = shipped.originals()
    found: list[Path] = [folder / "glossary.md", folder.parent / "docs" / "glossary.md"]
    return next(path for path in found if path.is_file()).read_text("utf-8")
