"""One finding as text, markdown and HTML: of a check, or of an audit with place and count."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from markupsafe import Markup

from amp_lessons._base.text import prose
from amp_lessons.audit.findings import Finding, Sighting
from amp_lessons.audit.report.steps import ranks_in_words
from amp_lessons.audit.rules import ROWS
from amp_lessons.audit.rules.rows import EXPLAINED_AT

MARK = {"passed": "✓", "failed": "✗", "note": "!", "todo": "·"}
_WORD = {"passed": "holds", "failed": "mistake", "note": "note", "todo": "to do"}
_WIDTH = 80


def text_lines(finding: Finding) -> list[str]:
    """Render a finding for a terminal."""
    head = f"{MARK[finding.kind]} {f'{finding.code}: ' if _has_a_name(finding) else ''}{finding.message}"
    lines = textwrap.wrap(head, _WIDTH, initial_indent="  ", subsequent_indent="    ")
    for heading, sentence in _parts(finding):
        if heading == "at":  # a line of code stays one
            lines.append(f"    at: {sentence}")
        else:
            lines += textwrap.wrap(
                f"{heading}: {sentence}", _WIDTH, initial_indent="    ", subsequent_indent="    "
            )
    return lines


def as_markdown(finding: Finding) -> str:
    """Render a finding as an item of a list."""
    name = f"`{finding.code}` " if _has_a_name(finding) else ""
    item = f"- {MARK[finding.kind]} {name}{prose.as_markdown(finding.message)}"
    parts = [f"*{heading.capitalize()}:* {prose.as_markdown(said)}" for heading, said in _parts(finding)]
    return "\\\n  ".join([item, *parts])


def as_html(finding: Finding) -> Markup:
    """Render a finding as an item of a list, whose meaning never rests on colour alone."""
    part = Markup("<br><em>{}:</em> {}")
    return Markup(
        '<li class="amp-{kind}" style="margin:.4em 0"><span aria-hidden="true">{mark}</span> '
        "<strong>{word}</strong> {name}{message}{parts}</li>"
    ).format(
        kind=finding.kind,
        mark=MARK[finding.kind],
        word=_WORD[finding.kind],
        name=_code(finding) if _has_a_name(finding) else "",
        message=prose.as_html(finding.message),
        parts=Markup("").join(
            part.format(heading.capitalize(), prose.as_html(said)) for heading, said in _parts(finding)
        ),
    )


def _code(finding: Finding) -> Markup:
    """Return the code; of somebody's training, as a link to what it means. An exercise says that itself."""
    code = Markup("<code>{}</code> ").format(finding.code)
    if not isinstance(finding, Sighting) or finding.code not in ROWS:
        return code
    return Markup('<a href="{}{}">{}</a> ').format(EXPLAINED_AT, finding.code, code.rstrip())


def _has_a_name(finding: Finding) -> bool:
    """Whether the code helps a reader, who can look it up: what is still to do says all there is to say."""
    return finding.kind != "todo"


def _parts(finding: Finding) -> Iterator[tuple[str, str]]:
    """Yield what is said of a finding beside its message, each sentence with its heading."""
    if not isinstance(finding, Sighting):
        if finding.hint:
            yield "try", finding.hint
        return
    if finding.place is not None:
        source = finding.place.source.replace("`", "'")
        yield "at", f"{finding.place}" + (f"  `{source}`" if source else "")
    yield finding.certainty, "; ".join(filter(None, [finding.likely, _how_often(finding)]))
    if finding.hint:
        yield "cure", finding.hint
    if finding.lesson:
        yield "lesson", f"{finding.lesson} explains it"


def _how_often(finding: Sighting) -> str:
    """Say when a mistake was seen; people count steps from 1."""
    on = f", on {ranks_in_words(finding.ranks)}" if finding.ranks else ""
    if finding.count == 1:
        return f"once, at step {finding.first_step + 1}{on}"
    return f"{finding.count} times, first at step {finding.first_step + 1}{on}"
