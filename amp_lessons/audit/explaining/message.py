"""What one message means to somebody who trains in mixed precision."""

from __future__ import annotations

import functools
import html
import re
from dataclasses import dataclass

# By where one meets them, in files of these names in the folder `messages`; no two match the same message.
ABOUT = (
    "scaler", "autocast", "optimizers", "dtypes", "kernels", "numbers", "float8", "tf32", "sharding",
    "compiling", "frameworks", "apple", "trainers", "attention", "quantized", "logs", "jax",
)  # fmt: skip

SEVERAL = "several libraries"
_compiled = functools.cache(re.compile)  # they are more than the 512 that ``re`` keeps by itself


@dataclass(frozen=True)
class Message:
    """An error or a warning of PyTorch's or a framework's, what it means and what to change.

    ``patterns`` are regular expressions, any of which is searched for in the text, where every run of white
    space is one blank. ``lesson`` is the number of the lesson that explains it, ``section`` the id of the
    heading's cell there, ``source`` the file of PyTorch's, or of a framework's, that says it, or ``C++``;
    ``seen_at`` a public place where somebody met it. Where one of ``unless`` is found too, in another line
    of a traceback mostly, the text says something else. What ``SEVERAL`` say, each in its own words, gives
    way to another message nearby. Sentences have ``code`` between backticks.
    Raises ValueError for what is no regular expression.
    """

    name: str
    patterns: tuple[str, ...]
    meaning: str
    cure: str
    lesson: str
    source: str
    seen_at: str = ""
    unless: tuple[str, ...] = ()
    section: str = ""

    def __post_init__(self) -> None:
        for each in (*self.patterns, *self.unless):
            try:
                _compiled(each)
            except re.error as error:
                raise ValueError(f"{each!r} is no regular expression: {error}") from error

    def matches(self, text: str) -> bool:
        """Whether ``text``, as it was pasted, says this."""
        return self.place(plain(text)) is not None

    def place(self, said: str) -> tuple[bool, int] | None:
        """Return where ``said``, which is plain, says this last: whether as an error, and at which place.

        The place counts letters; None if it does not. In a log the error that ended it comes behind
        warnings of another kind.
        """
        places = [found.start() for each in self.patterns for found in _compiled(each).finditer(said)]
        if not places or any(_compiled(each).search(said) for each in self.unless):
            return None
        kinds = _KIND.findall(said, 0, max(places))
        return not (kinds and kinds[-1] == "Warning"), max(places) - self.gives_way

    @property
    def gives_way(self) -> int:
        """Return how many letters behind it another message may stand, and is what was said."""
        return _NEARBY if self.source == SEVERAL else 0


def plain(text: str) -> str:
    """Return what was pasted in one line: without colours, ranks, frames, and quotes of a word processor."""
    return " ".join(PASTED.sub(" ", html.unescape(text).translate(QUOTES)).split())


PASTED = re.compile(r"\x1b\[[\d;]*m|^(?:\s*(?:[>│┃❱*]|\[\w+\d\]:))+|[│┃]\s*$|\\(?=['\"])", re.MULTILINE)
QUOTES = str.maketrans("‘’“”（）：", "''\"\"():")
_NEARBY = 300  # letters
_KIND = re.compile(r"\w(Error|Exception|Warning):")  # what Python says before each message


@functools.cache
def all_messages() -> tuple[Message, ...]:
    """Return all that are known; they are read when the first text is explained."""
    from amp_lessons._base.entries import read_entries  # a report that is read back has its explanation

    return read_entries("amp_lessons.audit.explaining", (f"messages/{name}.yaml" for name in ABOUT), Message)
