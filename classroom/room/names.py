"""Names that learners choose: anything people are called, nothing that plays tricks on a page."""

from __future__ import annotations

import unicodedata

LONGEST = 40
_JOINERS = "\u200c\u200d"  # Persian, Indic scripts and emoji are spelt with them
_MOST_MARKS = 3  # in a row: Vietnamese and Hebrew get by with them; a tower of them covers the lines above


class NameRefusedError(ValueError):
    """A name cannot be shown; the message says why."""


def chosen(name: object) -> str:
    """Return a name as the room shows it: spaces tidied. Raises NameRefusedError."""
    if not isinstance(name, str):
        raise NameRefusedError(f"a name is text, not {type(name).__name__}")
    tidy = " ".join(unicodedata.normalize("NFC", name).split())
    if not tidy.strip(_JOINERS + " "):
        raise NameRefusedError("a name needs at least one letter; join without one to stay unnamed")
    if len(tidy) > LONGEST:
        raise NameRefusedError(f"a name has at most {LONGEST} characters, this one has {len(tidy)}")
    if any(unicodedata.category(each)[0] == "C" and each not in _JOINERS for each in tidy):
        raise NameRefusedError("a name has no control characters")
    if _longest_tower(tidy) > _MOST_MARKS:
        raise NameRefusedError("a name has at most three accents on one letter")
    return tidy


def same(one: str, other: str) -> bool:
    """Return whether people would take two names for one."""
    return _folded(one) == _folded(other)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold().strip(_JOINERS)


def _longest_tower(name: str) -> int:
    longest = height = 0
    for each in name:
        height = height + 1 if unicodedata.combining(each) else 0
        longest = max(longest, height)
    return longest
