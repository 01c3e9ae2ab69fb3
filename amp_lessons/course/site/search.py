"""Search that needs no server: the words of every section, in a script that its page alone loads."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from markupsafe import Markup

from amp_lessons.course.clinic.symptoms import SYMPTOMS
from amp_lessons.course.site.shell import Page, as_script

_BODY = Markup(
    """<h1>Search</h1>
<p><label for="words">What you see, a term, or what PyTorch has said</label><br>
<input type="search" id="words" autocomplete="off" spellcheck="false"></p>
<div id="examples"><p>For example: {examples}.</p>
<p><a href="symptoms.html">Symptoms</a> asks about a broken training until it knows the cause,
<a href="explain.html">Errors</a> explains a message that you paste, and Search finds words in all pages.</p>
</div>
<p id="count" aria-live="polite"></p>
<ol id="found"></ol>
<noscript><p>The search is a script of this page, and scripts are off.</p></noscript>"""
)
_EXAMPLE = Markup('<a href="search.html?q={}">{}</a>')
_EXAMPLES = ("loss is NaN", "no speedup", "bf16 or fp16", "gradient accumulation")
_SCRIPTS = ("search-data.js", "explain-data.js", "search.js")
# a heading with an id, or at the top of a section that has one, or a term; h3 belongs to what is above it
_HEADING = re.compile(
    r'(?:<section id="([^"]*)">)?<h(?!3>)([1-3])(?: id="([^"]*)")?>(.*?)</h\2>'
    r'|<tr id="([^"]*)"><td>(.*?)</td>',
    re.DOTALL,
)
_SMALL = re.compile(r"<small>.*?</small>")  # beside a heading, the code of what is headed
_KINDS = {"message": "Message", "code": "Finding", "walk": "Symptom", "term": "Term"}  # by how an id begins
_WITHIN_WORDS = re.compile(r"</?(?:a|b|code|em|span|strong)\b[^>]*>")  # as around each token of code
_CODE = re.compile(r'<div class="highlight.*?</div>', re.DOTALL)
_UNSEEN = re.compile(
    r"<(style|script|noscript|button|label|output)\b.*?</\1>"
    r'|<details class="(outcome|imports)".*?</summary>|<[^>]*>',
    re.DOTALL,
)


def search_page() -> Page:
    """Return the page with the field to search in."""
    body = _BODY.format(examples=Markup(" · ").join(_EXAMPLE.format(quote(each), each) for each in _EXAMPLES))
    return Page("search.html", "Search", body, scripts=_SCRIPTS, listed="Search")


def search_script(pages: Iterable[Page]) -> str:
    """Return the script that brings what is searched: address, kind, heading, code and text of each section.

    The page to search in is not searched. And in which other words people say a symptom, by its address.
    """
    sections = [section for page in pages if page.scripts != _SCRIPTS for section in _sections(page)]
    said = [[f"symptoms.html?walk={place}", each.said] for place, each in enumerate(SYMPTOMS.answers)]
    return as_script("window.ampSections", sections) + as_script("window.ampSaid", said)


def _sections(page: Page) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield the sections of a page; what has no heading with an id belongs to the one above it."""
    _, *pieces = _HEADING.split(f'<h1 id="">{page.title}</h1>{page.body}')
    for of, _, at, headed, row, term, text in zip(*(pieces[place::7] for place in range(7)), strict=True):
        words, id, heading = _text(text), at or of or row, headed or term
        if words:
            place = f"#{id}" if id else ""
            to = page.file + place.replace("#walk-", "?walk=")  # a symptom's place in its tree
            kind = (
                page.title if page.kind == "lesson" else _KINDS.get((id or "").partition("-")[0], page.title)
            )
            code = "".join(_SMALL.findall(heading))
            yield to, kind, _text(_SMALL.sub("", heading)), _text(code), words


def _text(made: str) -> str:
    """Return what is read, code last; after a heading that is none of a section's a sentence begins."""
    made = _CODE.sub(" ", made) + " ".join(_CODE.findall(made))
    made = re.sub(r"(?<![?.!:])</h3>", ":</h3>", made)
    return " ".join(html.unescape(_UNSEEN.sub(" ", _WITHIN_WORDS.sub("", made))).split())
