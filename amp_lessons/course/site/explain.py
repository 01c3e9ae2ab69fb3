"""What PyTorch says of mixed precision, as a page: paste an error, read what it means."""

from __future__ import annotations

import re

from markupsafe import Markup

from amp_lessons._base.text import prose
from amp_lessons.audit.explaining.message import Message, all_messages
from amp_lessons.audit.rules import ROWS, Row
from amp_lessons.course.site.shell import Page, as_script, lesson_link

_BODY = Markup(
    """<h1>What does this error mean?</h1>
<p>Paste what PyTorch has said, with its whole traceback if you like, or the code of a finding, such as
<code>clip_before_unscale</code>. It is looked up in this page, and goes nowhere. In a terminal
<code>amp-lessons explain</code> does the same.</p>
<p><label for="said">Error, warning or code</label><br>
<textarea id="said" rows="6" spellcheck="false"></textarea></p>
<p><button type="button" id="explain">Explain</button></p>
<div id="meaning" aria-live="polite"></div>
<noscript><p>Without scripts: look for it in the list.</p></noscript>
<details><summary>All {count} messages, and the {codes} codes</summary>{messages}{rows}</details>"""
)
_SECTION = Markup('<section id="{}-{}"><h2>{} <small><code>{}</code></small></h2>{}</section>')


def explain_page() -> Page:
    """Return the page that explains messages; what it knows stands on it, and can be linked to."""
    said = (_section("message", each.name, wording(each.patterns[0]), _told(each)) for each in all_messages())
    rows = (_section("code", code, prose.as_html(row.means), _row(row)) for code, row in ROWS.items())
    return Page(
        "explain.html",
        "What does this error mean?",
        _BODY.format(
            count=len(all_messages()),
            codes=len(ROWS),
            messages=Markup("").join(said),
            rows=Markup("").join(rows),
        ),
        scripts=("explain-data.js", "explain.js"),
        listed="Errors",
    )


def explain_script() -> str:
    """Return the script that brings the patterns by which a text is known: Python's are JavaScript's, too."""
    return as_script(
        "window.ampMessages", [[each.name, each.patterns, each.unless] for each in all_messages()]
    )


# What a pattern leaves open is three dots in its wording, which of several words has the first.
_WORDED = [
    (re.compile(pattern), instead)
    for pattern, instead in (
        (r"\\b|\(\?![^()]*\)|(?<=\()\?:|(?<!\[)\^|\$", ""),
        (r"(\\[wdSW]|\[\^[^]]*\]|\.(?=[*+{]))([*+]|\{[^}]*\})?|(?<!\w)\w\?\w+", "…"),
        (r"\[(.)[^]]*\]", r"\1"),
        (r"[^()]\?", ""),
    )
]
_GROUP = re.compile(r"\(([^()|]*)(\|[^()]*)?\)(\?)?")
_ESCAPED = re.compile(r"\\(\W)")
_SAFE = 0xE000  # where no letters are


def wording(pattern: str) -> str:
    """Return what a pattern looks for, as one reads it: ``Loss is nan`` for ``Loss is (nan|-?inf)``."""
    text = _ESCAPED.sub(lambda found: chr(_SAFE + ord(found[1])), pattern)
    for part, instead in _WORDED:
        text = part.sub(instead, text)
    while text != (shorter := _without_groups(text)):
        text = shorter
    text = re.sub(r"…(\s*…)*", "…", text).strip()
    return re.sub("[\ue000-\ue0ff]", lambda found: chr(ord(found[0]) - _SAFE), text)


def _without_groups(text: str) -> str:
    """Drop groups that may be missing; of others keep the first word, or dots if a group comes twice."""

    def word(found: re.Match[str]) -> str:
        if found[3]:
            return ""
        return "…" if found[2] and text.count(found[0]) > 1 else found[1]

    return _GROUP.sub(word, text)


def _section(kind: str, name: str, says: str, told: Markup) -> Markup:
    return _SECTION.format(kind, name, says, name, told)


def _told(message: Message) -> Markup:
    source = Markup("<p>It comes from <code>{}</code>. {}</p>").format(
        message.source,
        Markup('<a href="{}">Somebody met it here.</a>').format(message.seen_at) if message.seen_at else "",
    )
    also = " · ".join(map(wording, message.patterns[1:]))
    return Markup("{}<p>{}</p><p><b>Cure.</b> {}</p><p>{} explains it.</p>{}").format(
        Markup('<p class="how">Also: {}</p>').format(also) if also else "",
        prose.as_html(message.meaning),
        prose.as_html(message.cure),
        lesson_link(message.lesson),
        source,
    )


def _row(row: Row) -> Markup:
    return Markup("<p>{} explains it.</p>").format(lesson_link(row.lesson))
