"""Sentences with `code` between backticks, as markdown and HTML. As plain text they stay as they are."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape

_CODE = re.compile(r"`([^`]+)`")
_MEANS_SOMETHING = re.compile(r"([\\`*_<])")


def as_html(text: str) -> str:
    """Render for HTML: what stands between backticks is code, and nothing else is markup."""
    return _rendered(text, escape, lambda code: f"<code>{escape(code)}</code>")


def as_markdown(text: str) -> str:
    """Render for markdown: ``2**n`` outside backticks is a power, and not the beginning of bold type."""
    return _rendered(text, lambda words: _MEANS_SOMETHING.sub(r"\\\1", words), lambda code: f"`{code}`")


def _rendered(text: str, words: Callable[[str], str], code: Callable[[str], str]) -> str:
    pieces = _CODE.split(text)  # words and code in turn
    return "".join((code if i % 2 else words)(piece) for i, piece in enumerate(pieces))
