"""What PyTorch says of mixed precision, as a page: paste an error, read what it means."""

from __future__ import annotations

from markupsafe import Markup

from amp_lessons.audit.catalogue import ROWS, Row
from amp_lessons.audit.explaining.lookup import MESSAGES
from amp_lessons.audit.explaining.message import Message
from amp_lessons.site.data import as_script
from amp_lessons.site.shell import Page
from amp_lessons.site.symptoms import lesson_link
from amp_lessons.text import prose

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
_MESSAGE = Markup('<section id="message-{}"><h2>{}</h2>{}</section>')
_ROW = Markup('<section id="code-{}"><h2><code>{}</code></h2><p>{}. {}</p></section>')


def explain_page() -> Page:
    """Return the page that explains messages; what it knows stands on it, and can be linked to."""
    messages = (_MESSAGE.format(each.name, each.name.replace("_", " "), _told(each)) for each in MESSAGES)
    rows = (_ROW.format(code, code, *_row(row)) for code, row in ROWS.items())
    return Page(
        "explain.html",
        "What does this error mean?",
        _BODY.format(
            count=len(MESSAGES),
            codes=len(ROWS),
            messages=Markup("").join(messages),
            rows=Markup("").join(rows),
        ),
        scripts=("explain-data.js", "explain.js"),
        listed="Errors",
    )


def explain_script() -> str:
    """Return the script that brings the patterns by which a text is known: Python's are JavaScript's, too."""
    return as_script("window.ampMessages", [[each.name, each.patterns] for each in MESSAGES])


def _told(message: Message) -> Markup:
    source = Markup("<p>It comes from <code>{}</code>. {}</p>").format(
        message.source,
        Markup('<a href="{}">Somebody met it here.</a>').format(message.seen_at) if message.seen_at else "",
    )
    return Markup("<p>{}</p><p><b>Cure.</b> {}</p><p>{} explains it.</p>{}").format(
        prose.as_html(message.meaning), prose.as_html(message.cure), lesson_link(message.lesson), source
    )


def _row(row: Row) -> tuple[Markup, Markup]:
    return prose.as_html(row.means), Markup("{} explains it.").format(lesson_link(row.lesson))
