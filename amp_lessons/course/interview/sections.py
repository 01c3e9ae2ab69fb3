"""A report in sections, each a heading with sentences, as text of 80 columns, markdown and HTML."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from amp_lessons._base.text import prose

_WIDTH = 80


class ToldInSections:
    """What shows itself as a heading, sections of sentences, and a message on the progress file, if any."""

    message: str

    @property
    def title(self) -> str:
        """What a page of it is called."""
        raise NotImplementedError

    @property
    def heading(self) -> str:
        """What it is about, and how it went, in one sentence."""
        raise NotImplementedError

    def sections(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each section's heading with its sentences."""
        raise NotImplementedError

    def appendix(self, level: str = "h4") -> Markup:
        """Render what a page to print has beside the report, below headings of ``level``; nothing, mostly."""
        return Markup("")

    def __str__(self) -> str:
        parts = [_wrapped(self.heading)]
        for title, sentences in self.sections():
            parts += [f"\n{title}", *(_wrapped(each, "- ", "  ") for each in sentences)]
        return "\n".join([*parts, *([f"\n{self.message}"] if self.message else [])])

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": str(self), "text/markdown": self.as_markdown(), "text/html": self.as_html()}

    def as_markdown(self) -> str:
        """Render headings and lists."""
        parts = [f"**{prose.as_markdown(self.heading)}**"]
        for title, sentences in self.sections():
            parts += [f"**{title}**", "\n".join(f"- {prose.as_markdown(each)}" for each in sentences)]
        return "\n\n".join([*parts, *([prose.as_markdown(self.message)] if self.message else [])])

    def as_html(self, level: str = "h4") -> Markup:
        """Render headings of ``level`` and lists."""
        parts = [Markup("<p><strong>{}</strong></p>").format(prose.as_html(self.heading))]
        for title, sentences in self.sections():
            items = Markup("").join(Markup("<li>{}</li>").format(prose.as_html(each)) for each in sentences)
            heading = Markup("<{0}>{1}</{0}>").format(Markup(level), title)
            parts.append(heading + Markup("<ul>{}</ul>").format(items))
        return Markup("\n").join(
            [*parts, *([Markup("<p>{}</p>").format(self.message)] if self.message else [])]
        )


def _wrapped(text: str, first: str = "", then: str = "") -> str:
    return textwrap.fill(text, _WIDTH, initial_indent=first, subsequent_indent=then, break_on_hyphens=False)
