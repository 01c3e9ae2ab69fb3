"""What ``explain`` hands back, which shows itself as text, markdown and HTML."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from amp_lessons.text import prose

_WIDTH = 100


@dataclass(frozen=True)
class Explanation:
    """What a message means (``meaning``), what to change (``cure``), and the number of the ``lesson`` on it.

    ``known`` is False where nothing is known of it; then ``lesson`` is empty and ``cure`` says how to go on
    looking. ``said`` is the line that is explained, ``name`` what it is called here, ``source`` the file of
    PyTorch's that says it, or ``C++``; ``seen_at`` the address of a public place where somebody met it, or
    empty.
    """

    known: bool
    said: str
    meaning: str
    cure: str
    lesson: str
    name: str = ""
    source: str = ""
    seen_at: str = ""

    def _parts(self) -> Iterator[tuple[str, str]]:
        """Yield each sentence with its heading."""
        yield "means", self.meaning
        yield "cure" if self.known else "look", self.cure
        if self.lesson:
            yield "lesson", f"{self.lesson} explains it"
        if self.source:
            yield "from", " · ".join(filter(None, [f"PyTorch, `{self.source}`", self.seen_at]))

    def __str__(self) -> str:
        lines = [self.said or "(no message)"]
        for heading, sentence in self._parts():
            lines += textwrap.wrap(
                f"{heading}: {sentence}",
                _WIDTH,
                initial_indent="  ",
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": str(self), "text/markdown": self.as_markdown(), "text/html": self.as_html()}

    def as_markdown(self) -> str:
        """Render the message as a quotation and a list of what is said of it."""
        items = [f"- *{heading}:* {prose.as_markdown(sentence)}" for heading, sentence in self._parts()]
        return "\n".join([f"> {_plain_markdown(self.said or '(no message)')}", "", *items])

    def as_html(self) -> Markup:
        """Render the same as HTML; what the message says is never taken for markup."""
        item = Markup("<dt><em>{}</em></dt><dd>{}</dd>")
        return Markup(
            '<section class="amp-explanation" aria-label="Explanation"><p><code>{said}</code></p>'
            "<dl>{parts}</dl></section>"
        ).format(
            said=self.said or "(no message)",
            parts=Markup("").join(
                item.format(heading, prose.as_html(sentence)) for heading, sentence in self._parts()
            ),
        )


def _plain_markdown(text: str) -> str:
    """A message may hold backticks of its own, single ones too: nothing of it is code or markup."""
    return prose.as_markdown(text.replace("`", "'"))
