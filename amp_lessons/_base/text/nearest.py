"""What somebody may have meant who named something that is not there."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MOST = 3  # names that are offered
_ALIKE = 0.5  # how much of two names must agree, from 0 to 1
_FEW = 60  # so many names can be listed instead
_TELLING = 4  # so many letters in common are no chance


def did_you_mean(wrong: object, known: Iterable[str]) -> str:
    """Return what ends a sentence that refuses a name: ``did you mean log or log2?``.

    Offered are the names spelt most alike, then the shortest that contain ``wrong``. Where nothing is near,
    the end is ``there are: ...`` with all names, or that there is none like it, if that would be a long list.
    """
    names, text = list(known), str(wrong)
    alike = get_close_matches(text, names, n=_MOST, cutoff=_ALIKE)
    containing = [name for name in names if len(text) >= _TELLING and text in name]
    near = list(dict.fromkeys([*alike, *sorted(containing, key=len)]))[:_MOST]
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"there are: {', '.join(names)}" if len(names) <= _FEW else "none is spelt like it"
