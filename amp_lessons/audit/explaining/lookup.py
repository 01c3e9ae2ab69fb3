"""Which of the known messages an exception says."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from amp_lessons.audit.explaining.explanation import Explanation
from amp_lessons.audit.explaining.message import Message
from amp_lessons.audit.explaining.messages import MESSAGES
from amp_lessons.audit.explaining.texts import texts

_MEANING = "This is not among the messages about mixed precision that are known here."
_CURE = (
    "Run the same with `enabled=False` for `autocast` and for `GradScaler`. If it fails as before, mixed "
    "precision has no part in it. If not, find the last line of the traceback that is your own code and "
    "print the dtype and device of every tensor in it, and `torch.is_autocast_enabled(device)`; for NaN and "
    "inf, `torch.isfinite(tensor).all()`, from the loss backwards to the first tensor where it is false."
)


def explain(problem: BaseException | warnings.WarningMessage | str) -> Explanation:
    """Return what an error or a warning of PyTorch's means to mixed precision, and what to change.

    ``problem`` is an exception or a warning, as caught, or its text. What an exception was raised from or
    during is searched too, after the exception itself, and so are the members of a group. Where nothing is
    known of it, the explanation says so: ``known`` is False, and ``cure`` says how to go on looking.
    Raises TypeError for anything else.
    """
    said = list(texts(problem))
    for text in said:
        for message in MESSAGES:
            if message.matches(text):
                return _known(message, text)
    first = next(_lines(said[0]), "")
    return Explanation(known=False, said=first, meaning=_MEANING, cure=_CURE, lesson="")


def _known(message: Message, text: str) -> Explanation:
    return Explanation(
        known=True,
        said=_telling_line(message, text),
        meaning=message.meaning,
        cure=message.cure,
        lesson=message.lesson,
        name=message.name,
        source=message.source,
        seen_at=message.seen_at,
    )


def _telling_line(message: Message, text: str) -> str:
    """Return the line that says it, of a whole traceback for instance; the first where it takes several."""
    return next(filter(message.matches, _lines(text)), next(_lines(text)))


def _lines(text: str) -> Iterator[str]:
    return (line.strip() for line in text.splitlines() if line.strip())
