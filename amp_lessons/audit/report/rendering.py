"""A report as text, markdown and HTML. Nothing here decides anything."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from markupsafe import Markup

from amp_lessons.audit.report import finding
from amp_lessons.audit.report.document import Document
from amp_lessons.audit.report.sections import Section, headline, sections_of
from amp_lessons.text import prose

_WIDTH = 100
_NOTHING = Markup("")


def as_text(document: Document) -> str:
    """Render a report for a terminal."""
    lines = [headline(document)]
    for section in sections_of(document):
        lines += ["", section.title, *section_lines(section)]
    return "\n".join(lines)


def section_lines(section: Section) -> Iterator[str]:
    """Yield what stands below the title of a section, line by line, for a terminal."""
    for sentence in section.sentences:
        yield from textwrap.wrap(sentence, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    for each in section.findings:
        yield from finding.text_lines(each)
    for heading, said in section.items:
        yield from textwrap.wrap(
            f"{heading}: {said}", _WIDTH, initial_indent="    ", subsequent_indent="    "
        )
    if section.table is not None:
        yield from textwrap.indent(str(section.table), "  ").splitlines()


def as_markdown(document: Document) -> str:
    """Render a report for GitHub, and for notebooks without HTML."""
    parts = [f"**{prose.as_markdown(headline(document))}**"]
    for section in sections_of(document):
        parts += section_markdown(section)
    return "\n\n".join(parts)


def section_markdown(section: Section) -> Iterator[str]:
    """Yield the paragraphs of a section."""
    yield f"**{section.title}**"
    yield from map(prose.as_markdown, section.sentences)
    if section.findings:
        yield "\n".join(map(finding.as_markdown, section.findings))
    if section.items:
        yield "\n".join(
            f"- *{prose.as_markdown(name)}:* {prose.as_markdown(said)}" for name, said in section.items
        )
    if section.table is not None:
        yield section.table.as_markdown()


def as_html(document: Document) -> Markup:
    """Render a report for a notebook, without pictures."""
    sections = Markup("\n").join(section_html(section, "h4") for section in sections_of(document))
    section = '<section class="amp-audit" aria-label="{0}"><p><strong>{0}</strong></p>{1}</section>'
    return Markup(section).format(headline(document), sections)


def section_html(section: Section, heading: str, pictures: Markup = _NOTHING) -> Markup:
    """Render one section; ``pictures`` stand above its table."""
    return Markup("\n").join(_pieces(section, Markup(heading), pictures))


def _pieces(section: Section, heading: Markup, pictures: Markup) -> Iterator[Markup]:
    yield Markup("<{0}>{1}</{0}>").format(heading, section.title)
    for sentence in section.sentences:
        yield Markup("<p>{}</p>").format(prose.as_html(sentence))
    if section.findings:
        items = Markup("").join(map(finding.as_html, section.findings))
        yield Markup('<ul style="list-style:none;padding-left:0">{}</ul>').format(items)
    if section.items:
        item = Markup("<dt><em>{}</em></dt><dd>{}</dd>")
        said = (item.format(prose.as_html(name), prose.as_html(sentence)) for name, sentence in section.items)
        yield Markup("<dl>{}</dl>").format(Markup("").join(said))
    yield pictures
    if section.table is not None:
        yield section.table.as_html()
