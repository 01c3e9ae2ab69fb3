"""Pieces of HTML that views are put together of, and what is folded in markdown."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from amp_lessons._base.drawing.picture import CAPTION_STYLE


def block(*parts: str) -> Markup:
    """Return ``parts`` one after the other, in the letters of a caption."""
    return Markup('<div style="{}">{}</div>').format(CAPTION_STYLE, Markup("").join(parts))


def live_region(*parts: str) -> Markup:
    """Return a ``block`` that a screen reader speaks when it changes."""
    return Markup('<div aria-live="polite" style="{}">{}</div>').format(CAPTION_STYLE, Markup("").join(parts))


def paragraphs(texts: Iterable[str]) -> Markup:
    """Return a paragraph for each of some texts."""
    return Markup("").join(map(Markup("<p>{}</p>").format, texts))


def details(summary: str, *parts: str) -> Markup:
    """Return ``parts`` folded below ``summary``."""
    folded = Markup("<details><summary>{}</summary>{}</details>")
    return folded.format(summary, Markup("").join(parts))


def markdown_details(summary: str, text: str) -> str:
    """Return some markdown folded below ``summary``."""
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"
