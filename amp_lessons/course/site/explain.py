"""What PyTorch says of mixed precision, as a page: paste an error, read what it means."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from markupsafe import Markup

from amp_lessons._base.text import prose
from amp_lessons.audit.explaining.message import PASTED, QUOTES, Message, all_messages
from amp_lessons.audit.rules import ROWS, Row
from amp_lessons.audit.rules.rows import COSTS
from amp_lessons.course.site.shell import Page, as_script, lesson_link

try:
    from re import _parser  # type: ignore[attr-defined]  # what a pattern consists of, only it knows
except ImportError:  # Python 3.10
    import sre_parse as _parser

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
_TOLD = Markup(
    """<h3>What it means</h3><p>{means}</p><h3>What to do</h3>{cure}
<p class="how">Read on in {lesson}. It comes from <code>{source}</code>.{met}{also}</p>"""
)


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
    """Return the script that brings the patterns by which a text is known: Python's are JavaScript's, too.

    And how a text is made plain before. Only that capitals do not count is said otherwise.
    """
    messages = [
        [each.name, *([*map(_flagged, some)] for some in (each.patterns, each.unless)), each.gives_way]
        for each in all_messages()
    ]
    quotes = {chr(one): chr(other) for one, other in QUOTES.items()}
    return as_script("window.ampPasted", [[PASTED.pattern, "gm"], quotes]) + as_script(
        "window.ampMessages", messages
    )


def _flagged(pattern: str) -> tuple[str, str]:
    """Return a pattern with the flags that a ``RegExp`` takes."""
    return pattern.removeprefix("(?i)"), "gi" if pattern.startswith("(?i)") else "g"


def wording(pattern: str) -> str:
    """Return what a pattern looks for, as one reads it: ``Loss is nan`` for ``Loss is (nan|-?inf)``.

    What may be missing is left out; of several words the first stands; what is left open is three dots.
    """
    return re.sub(r"…(\s*…)*", "…", _worded(_parser.parse(pattern))).strip()


def _worded(pattern: Iterable[tuple[Any, Any]]) -> str:
    return "".join(_WORDED.get(str(kind), _nothing)(value) for kind, value in pattern)


def _nothing(value: Any) -> str:
    """Return nothing for what takes up no characters: an anchor, or what must not stand there."""
    return ""


def _one_of(values: list[tuple[Any, Any]]) -> str:
    return _worded(values[:1])


def _repeated(value: tuple[int, int, Any]) -> str:
    least, most, repeated = value
    words = _worded(repeated)
    return "…" if words == "…" and most > 1 else words * least


_WORDED: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(("NOT_LITERAL", "ANY", "RANGE", "CATEGORY", "NEGATE", "GROUPREF"), lambda _: "…"),
    "LITERAL": chr,
    "IN": _one_of,
    "BRANCH": lambda value: _worded(value[1][0]),
    "SUBPATTERN": lambda value: _worded(value[3]),
    "MAX_REPEAT": _repeated,
    "MIN_REPEAT": _repeated,
}


def _section(kind: str, name: str, says: str, told: Markup) -> Markup:
    return _SECTION.format(kind, name, says, name, told)


def _told(message: Message) -> Markup:
    also = " · ".join(map(wording, message.patterns[1:]))
    met = Markup(' <a href="{}">Reported here.</a>').format(message.seen_at) if message.seen_at else ""
    return _TOLD.format(
        means=prose.as_html(message.meaning),
        cure=prose.blocks_as_html(steps(message.cure)),
        lesson=lesson_link(message.lesson, message.section),
        source=message.source,
        met=met,
        also=Markup("<br>Also appears as: {}").format(also) if also else "",
    )


def steps(cure: str) -> str:
    """Return what to do as a list, of a point for each sentence, where there are several."""
    sentences = re.split(r"(?<=\.) (?=[A-Z`])", cure)
    return "- " + "\n- ".join(sentences) if len(sentences) > 1 else cure


def _row(row: Row) -> Markup:
    says, cure = row.says
    return Markup("{}<p>What it costs: {}.</p>{}<p>Read on in {}.</p>").format(
        Markup("<p>In a report: {}.</p>").format(prose.as_html(says)) if says else "",
        COSTS[row.costs],
        Markup("<p><b>Cure:</b> {}.</p>").format(prose.as_html(cure.rstrip(":"))) if cure else "",
        lesson_link(row.lesson, row.section),
    )
