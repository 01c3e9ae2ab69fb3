"""Building the site: every page, and the files beside them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from pygments.formatters import HtmlFormatter

from amp_lessons.lessons import shipped
from amp_lessons.site.explain import explain_page, explain_script
from amp_lessons.site.front import front_page
from amp_lessons.site.glossary import glossary_page
from amp_lessons.site.lesson import lesson_page
from amp_lessons.site.live import live_page
from amp_lessons.site.search import search_page, search_script
from amp_lessons.site.shell import Page, html_of
from amp_lessons.site.substitutes import Shelf
from amp_lessons.site.symptoms import symptoms_page, symptoms_script
from amp_lessons.views.base import code
from amp_lessons.views.widgets import quiz

ASSETS = Path(__file__).parent / "assets"
_SCRIPTS = ("site.js", "questions.js", "symptoms.js", "explain.js", "search.js", "views.js")


def build(out: Path) -> list[Path]:
    """Write the site into the folder ``out``, and return the pages. What was there of an older site goes.

    Raises FileNotFoundError where the lessons did not come with the package, and ValueError for a folder that
    holds something else than a site.
    """
    _empty(out)
    shelf = Shelf(out)
    pages = list(_pages(shelf))
    _write_assets(out / "assets", pages)
    for page in pages:
        (out / page.file).write_text(html_of(page, pages), "utf-8")
    return [out / page.file for page in pages]


def _pages(shelf: Shelf) -> Iterator[Page]:
    """Yield every page; a new one is a line here, and stands in the navigation if it is ``listed``."""
    lessons = [lesson_page(head, shelf) for head in shipped.heads()]
    yield front_page(shelf)
    yield glossary_page()
    yield symptoms_page()
    yield explain_page()
    yield search_page()
    yield live_page(shelf)
    yield from lessons


def _empty(out: Path) -> None:
    """Remove an older site; never anything else that somebody may keep in a folder."""
    if out.exists() and any(out.iterdir()):
        if not (out / "assets" / "site.js").is_file():
            raise ValueError(f"{out} holds something else than a site: name a folder that is new, or empty")
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)


def _write_assets(folder: Path, pages: list[Page]) -> None:
    folder.mkdir()
    for name in _SCRIPTS:
        shutil.copy(ASSETS / name, folder)
    made = {
        "site.css": style(),
        "symptoms-data.js": symptoms_script(),
        "explain-data.js": explain_script(),
        "search-data.js": search_script(pages),
    }
    for name, text in made.items():
        (folder / name).write_text(text, "utf-8")


def style() -> str:
    """Return the one style of all pages: the site's own, that of questions, the colours of code."""
    highlighted = HtmlFormatter(style=code.HouseStyle).get_style_defs(".highlight")
    sheets = [(ASSETS / "site.css").read_text("utf-8"), quiz.SHEET.read_text("utf-8"), highlighted]
    return re.sub(r"\n\s+", "\n", "\n".join(sheets))
