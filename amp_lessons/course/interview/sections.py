"""A report in sections, each a list of sentences, with a message on the progress file, if any."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from amp_lessons._base.render import InSections
from amp_lessons._base.text import prose


class ToldInSections(InSections):
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

    def appendix(self, level: str = "h4") -> Markup:
        """Render what a page to print has beside the report, below headings of ``level``; nothing, mostly."""
        return Markup("")

    def opening(self) -> Iterator[str]:
        """Yield the heading."""
        yield self.heading

    def __str__(self) -> str:
        return "\n\n".join(filter(None, [super().__str__(), self.message]))

    def as_markdown(self) -> str:
        """Render headings, lists and the message."""
        return "\n\n".join(filter(None, [super().as_markdown(), prose.as_markdown(self.message)]))

    def as_html(self, level: str = "h4") -> Markup:
        """Render headings of ``level`` and lists."""
        heading = Markup("<p><strong>{}</strong></p>").format(prose.as_html(self.heading))
        below = (section.as_html(level) for section in self.all_sections())
        message = Markup("<p>{}</p>").format(self.message) if self.message else Markup("")
        return Markup("\n").join(filter(None, [heading, *below, message]))
