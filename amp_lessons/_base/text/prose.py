"""Sentences with ``code`` between backticks, as markdown and HTML. As plain text they stay as they are."""

from __future__ import annotations

import re

from markupsafe import Markup

from amp_lessons._base.text.words import superscripts

_CODE = re.compile(r"`([^`]+)`")
_MEANS_SOMETHING = re.compile(r"([\\`*_<])")


def as_html(text: str) -> Markup:
    """Render for HTML: what stands between backticks is code, and nothing else is markup."""
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if is_code else piece for is_code, piece in _pieces(text)
    )


def blocks_as_html(text: str) -> Markup:
    """Render for HTML paragraphs that blank lines part, and lists, whose items begin with ``- ``."""
    return Markup("").join(map(_block, re.split(r"\n{2,}", text)))


def _block(text: str) -> Markup:
    if not text.startswith("- "):
        return Markup("<p>{}</p>").format(as_html(text))
    items = re.split(r"^- ", text, flags=re.MULTILINE)[1:]
    return Markup("<ul>{}</ul>").format(
        Markup("").join(Markup("<li>{}</li>").format(as_html(each)) for each in items)
    )


def as_markdown(text: str) -> str:
    """Render for markdown: ``2**n`` outside backticks is a power, and not the beginning of bold type."""
    return "".join(
        f"`{piece}`" if is_code else _MEANS_SOMETHING.sub(r"\\\1", piece) for is_code, piece in _pieces(text)
    )


def _pieces(text: str) -> list[tuple[bool, str]]:
    """Split a sentence into words, exponents raised, and code, in turn; say of each whether it is code."""
    return [(bool(i % 2), piece) for i, piece in enumerate(_CODE.split(superscripts(text)))]
