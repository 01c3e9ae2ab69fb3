"""What one message means to somebody who trains in mixed precision."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

# By where one meets them, in files of these names in the folder `messages`; no two match the same message.
ABOUT = (
    "scaler", "autocast", "optimizers", "dtypes", "kernels", "numbers", "float8", "tf32", "sharding",
    "compiling", "frameworks", "apple", "trainers", "attention", "quantized", "logs", "jax",
)  # fmt: skip


@dataclass(frozen=True)
class Message:
    """An error or a warning of PyTorch's or a framework's, what it means and what to change.

    ``patterns`` are regular expressions, any of which is searched for in the text, where every run of white
    space is one blank. ``lesson`` is the number of the lesson that explains it, ``source`` the file of
    PyTorch's, or of a framework's, that says it, or ``C++``; ``seen_at`` a public place where somebody met
    it. Where one of ``unless`` is found too, in another line of a traceback mostly, the text says something
    else. Sentences have ``code`` between backticks. Raises ValueError for what is no regular expression.
    """

    name: str
    patterns: tuple[str, ...]
    meaning: str
    cure: str
    lesson: str
    source: str
    seen_at: str = ""
    unless: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for each in (*self.patterns, *self.unless):
            try:
                re.compile(each)
            except re.error as error:
                raise ValueError(f"{each!r} is no regular expression: {error}") from error

    def matches(self, text: str) -> bool:
        """Whether ``text``, whose white space may be anything, says this."""
        return self.place(" ".join(text.split())) is not None

    def place(self, said: str) -> tuple[bool, int] | None:
        """Return where ``said``, with single blanks, says this last: whether as an error, and at which place.

        The place counts letters; None if it does not. In a log the error that ended it comes behind
        warnings of another kind.
        """
        places = [found.start() for each in self.patterns for found in re.finditer(each, said)]
        if not places or any(re.search(each, said) for each in self.unless):
            return None
        kinds = _KIND.findall(said, 0, max(places))
        return not (kinds and kinds[-1] == "Warning"), max(places)


_KIND = re.compile(r"\w(Error|Exception|Warning):")  # what Python says before each message


@functools.cache
def all_messages() -> tuple[Message, ...]:
    """Return all that are known; they are read when the first text is explained."""
    from amp_lessons._base.entries import read_entries  # a report that is read back has its explanation

    return read_entries("amp_lessons.audit.explaining", (f"messages/{name}.yaml" for name in ABOUT), Message)
