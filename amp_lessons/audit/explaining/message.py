"""What one message means to somebody who trains in mixed precision."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """An error or a warning of PyTorch's or a framework's, what it means and what to change.

    ``patterns`` are regular expressions, any of which is searched for in the text, where every run of white
    space is one blank. ``lesson`` is the number of the lesson that explains it, ``source`` the file of
    PyTorch's, or of a framework's, that says it, or ``C++``; ``seen_at`` a public place where somebody met
    it. Sentences have ``code`` between backticks.
    """

    name: str
    patterns: tuple[str, ...]
    meaning: str
    cure: str
    lesson: str
    source: str
    seen_at: str = ""

    def matches(self, text: str) -> bool:
        """Whether ``text``, whose white space may be anything, says this."""
        said = " ".join(text.split())
        return any(re.search(pattern, said) for pattern in self.patterns)
