"""Search that needs no server: the words of every section, in a script that its page alone loads."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator

from markupsafe import Markup

from amp_lessons.course.site.shell import Page, as_script

_BODY = Markup(
    """<h1>Search</h1>
<p><label for="words">Words that a section holds, or what PyTorch has said</label><br>
<input type="search" id="words" autocomplete="off" spellcheck="false"></p>
<p id="count" aria-live="polite"></p>
<ol id="found"></ol>
<noscript><p>The search is a script of this page, and scripts are off.</p></noscript>"""
)
_SCRIPTS = ("search-data.js", "explain-data.js", "search.js")
# a heading with an id, or at the top of a section that has one; h3 without belongs to what is above it
_HEADING = re.compile(r'(?:<section id="([^"]*)">)?<h(?!3>)([1-3])(?: id="([^"]*)")?>(.*?)</h\2>', re.DOTALL)
_WITHIN_WORDS = re.compile(r"</?(?:a|b|code|em|span|strong)\b[^>]*>")  # as around each token of code
_UNSEEN = re.compile(
    r'<(style|script|noscript|button)\b.*?</\1>|<details class="(outcome|imports)".*?</summary>|<[^>]*>',
    re.DOTALL,
)


def search_page() -> Page:
    """Return the page with the field to search in."""
    return Page("search.html", "Search", _BODY, scripts=_SCRIPTS, listed="Search")


def search_script(pages: Iterable[Page]) -> str:
    """Return the script that brings what is searched: address, page, heading and text of each section."""
    return as_script("window.ampSections", [section for page in pages for section in _sections(page)])


def _sections(page: Page) -> Iterator[tuple[str, str, str, str]]:
    """Yield the sections of a page; what has no heading with an id belongs to the one above it."""
    _, *pieces = _HEADING.split(f'<h1 id="">{page.title}</h1>{page.body}')
    for of, id, heading, text in zip(pieces[::5], pieces[2::5], pieces[3::5], pieces[4::5], strict=True):
        words = _text(text)
        if words:
            place = f"#{id or of}" if id or of else ""
            to = page.file + place.replace("#walk-", "?walk=")  # a symptom's place in its tree
            yield to, page.title, _text(heading), words


def _text(made: str) -> str:
    return " ".join(html.unescape(_UNSEEN.sub(" ", _WITHIN_WORDS.sub("", made))).split())
