"""Reports in sections, as text of 80 columns, as markdown and as HTML. Nothing here decides anything."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from markupsafe import Markup

from amp_lessons._base.text import prose
from amp_lessons._base.text.tables import Shown, Table
from amp_lessons._base.text.words import shortened

WIDTH = 80
_SHORTEST_NAME = 16
_NOTHING = Markup("")
_ENTRIES = Markup('<ul style="list-style:none;padding-left:0">{}</ul>')
_TERM = Markup("<dt><em>{}</em></dt><dd>{}</dd>")


def wrapped(text: str, first: str = "", then: str | None = None, *, hyphens: bool = True) -> list[str]:
    """Break a text into lines, the first and the others indented; ``hyphens`` may end a line."""
    then = first if then is None else then
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=then, break_on_hyphens=hyphens)


@dataclass(frozen=True)
class Entry:
    """One thing that was found: a ``mark``, which the ``word`` says aloud, a code, and a sentence.

    Below it stand ``parts``, each a heading and what is said under it; what is ``at`` a place stays one line.
    HTML gives it the class ``amp-kind``, and leads from its code to an ``address``, if it has one.
    """

    kind: str
    mark: str
    word: str
    message: str
    code: str = ""
    address: str = ""
    parts: tuple[tuple[str, str], ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield it line by line, for a terminal."""
        code = f"{self.code}: " if self.code else ""
        yield from wrapped(f"{self.mark} {code}{self.message}", "  ", "    ")
        for heading, said in self.parts:
            yield from ([f"    at: {said}"] if heading == "at" else wrapped(f"{heading}: {said}", "    "))

    def as_markdown(self) -> str:
        """Render an item of a list."""
        code = f"`{self.code}` " if self.code else ""
        item = f"- {self.mark} {code}{prose.as_markdown(self.message)}"
        parts = [f"*{heading.capitalize()}:* {prose.as_markdown(said)}" for heading, said in self.parts]
        return "\\\n  ".join([item, *parts])

    def as_html(self) -> Markup:
        """Render an item of a list, whose meaning never rests on colour alone."""
        code = Markup("<code>{}</code>").format(self.code)
        if self.address:
            code = Markup('<a href="{}">{}</a>').format(self.address, code)
        part = Markup("<br><em>{}:</em> {}")
        return Markup(
            '<li class="amp-{}" style="margin:.4em 0"><span aria-hidden="true">{}</span> '
            "<strong>{}</strong> {}{}{}</li>"
        ).format(
            self.kind,
            self.mark,
            self.word,
            code + " " if self.code else "",
            prose.as_html(self.message),
            _NOTHING.join(part.format(head.capitalize(), prose.as_html(said)) for head, said in self.parts),
        )


def entries_html(entries: Iterable[Entry]) -> Markup:
    """Render a list of entries."""
    return _ENTRIES.format(_NOTHING.join(entry.as_html() for entry in entries))


@dataclass(frozen=True)
class Section:
    """A title, and below it sentences, ``points`` of a list, entries, ``items`` with headings, a table."""

    title: str
    sentences: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    items: tuple[tuple[str, str], ...] = ()
    table: Table | None = None

    def lines(self) -> Iterator[str]:
        """Yield title and content line by line, for a terminal."""
        yield self.title
        for sentence in self.sentences:
            yield from wrapped(sentence, "  ")
        for point in self.points:
            yield from wrapped(point, "- ", "  ", hyphens=False)
        for entry in self.entries:
            yield from entry.lines()
        for heading, said in self.items:
            yield from wrapped(f"{heading}: {said}", "    ")
        if self.table is not None:
            yield from _table_lines(self.table)

    def paragraphs(self) -> Iterator[str]:
        """Yield the same as paragraphs of markdown."""
        yield f"**{self.title}**"
        yield from map(prose.as_markdown, self.sentences)
        if self.points:
            yield "\n".join(f"- {prose.as_markdown(point)}" for point in self.points)
        if self.entries:
            yield "\n".join(entry.as_markdown() for entry in self.entries)
        if self.items:
            yield "\n".join(
                f"- *{prose.as_markdown(name)}:* {prose.as_markdown(said)}" for name, said in self.items
            )
        if self.table is not None:
            yield self.table.as_markdown()

    def as_html(self, heading: str, pictures: Markup = _NOTHING) -> Markup:
        """Render the same below a ``heading`` such as "h2"; ``pictures`` stand above the table."""
        return Markup("\n").join(self._pieces(Markup(heading), pictures))

    def _pieces(self, heading: Markup, pictures: Markup) -> Iterator[Markup]:
        yield Markup("<{0}>{1}</{0}>").format(heading, self.title)
        for sentence in self.sentences:
            yield Markup("<p>{}</p>").format(prose.as_html(sentence))
        if self.points:
            yield points_html(self.points)
        if self.entries:
            yield entries_html(self.entries)
        if self.items:
            yield terms_html(self.items)
        yield pictures
        if self.table is not None:
            yield self.table.as_html()


def sections_html(
    sections: Iterable[Section], pictures: Callable[[Section], Iterable[Markup]] = lambda _: ()
) -> Markup:
    """Render sections of a page, each with the pictures that belong to it."""
    shown = (section.as_html("h2", Markup("\n").join(pictures(section))) for section in sections)
    return Markup("\n").join(map(Markup("<section>{}</section>").format, shown))


def terms_html(items: Iterable[tuple[str, str]]) -> Markup:
    """Render sentences with a heading each."""
    said = (_TERM.format(prose.as_html(name), prose.as_html(sentence)) for name, sentence in items)
    return Markup("<dl>{}</dl>").format(_NOTHING.join(said))


def points_html(points: Iterable[str]) -> Markup:
    """Render sentences as a list."""
    items = (Markup("<li>{}</li>").format(prose.as_html(point)) for point in points)
    return Markup("<ul>{}</ul>").format(_NOTHING.join(items))


def _table_lines(table: Table) -> Iterator[str]:
    """Yield a table line by line; caption and notes are broken, rows lose the beginning of long names."""
    widths = [max(map(len, column)) for column in zip(table.head, *table.rows, strict=True)]
    room = max(_SHORTEST_NAME, WIDTH - 2 - sum(width + 2 for width in widths[1:]))
    rows = [(shortened(name, room), *cells) for name, *cells in table.rows]
    for line in str(Table(table.head, rows, table.caption, table.notes)).splitlines():
        too_long = len(line) + 2 > WIDTH and line in (table.caption, *table.notes)
        yield from wrapped(line, "  ") if too_long else [f"  {line}"]


class InSections(Shown):
    """What shows itself as opening sentences, the first of which is its headline, and sections below them.

    HTML gives it the class ``html_class``.
    """

    html_class: ClassVar[str]

    def opening(self) -> Iterator[str]:
        """Yield what stands above all sections."""
        raise NotImplementedError

    def all_sections(self) -> Iterator[Section]:
        """Yield all that there is to read; never an empty section."""
        raise NotImplementedError

    def _head_lines(self) -> list[str]:
        return [line for said in self.opening() for line in wrapped(said)]

    def __str__(self) -> str:
        below = [line for section in self.all_sections() for line in ("", *section.lines())]
        return "\n".join([*self._head_lines(), *below])

    def as_markdown(self) -> str:
        """Render for GitHub, and for notebooks without HTML."""
        first, *others = map(prose.as_markdown, self.opening())
        below = (part for section in self.all_sections() for part in section.paragraphs())
        return "\n\n".join([f"**{first}**", *others, *below])

    def as_html(self) -> Markup:
        """Render for a notebook, without pictures."""
        headline, *others = self.opening()
        section = '<section class="{0}" aria-label="{1}"><p><strong>{1}</strong></p>{2}{3}</section>'
        below = Markup("\n").join(section.as_html("h4") for section in self.all_sections())
        return Markup(section).format(self.html_class, headline, paragraphs_html(others), below)


def paragraphs_html(sentences: Iterable[str]) -> Markup:
    """Render sentences as paragraphs."""
    return _NOTHING.join(Markup("<p>{}</p>").format(prose.as_html(said)) for said in sentences)
