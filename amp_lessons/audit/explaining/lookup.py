"""Which of the known messages an exception says, and what is handed back of it."""

from __future__ import annotations

import re
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from amp_lessons._base.render import terms_html
from amp_lessons._base.text import prose
from amp_lessons._base.text.tables import Shown
from amp_lessons._base.text.words import listed
from amp_lessons.audit.explaining.message import Message, all_messages, plain

_WIDTH = 100
# a line that names one, behind the rank that says it
_ERROR = re.compile(r"(\[rank\d+\]: )?([\w.]+\.)?\w*(Error|Exception|Unsupported|Warning)\b.*: ")
_WORD = re.compile(r"[A-Za-z_]{4,}")
_NEAREST = 3  # messages that are named where none says it
_MOST_READ = 10_000  # letters, to find them
_TOLD = ("meaning", "cure", "lesson", "name", "source", "seen_at")  # of a message


@dataclass(frozen=True, repr=False)
class Explanation(Shown):
    """What a message means (``meaning``), what to change (``cure``), and the number of the ``lesson`` on it.

    ``known`` is False where nothing is known of it; then ``lesson`` is empty and ``cure`` says how to go on
    looking. ``said`` is the line that is explained, ``name`` what it is called here, ``source`` the file of
    PyTorch's, or of a framework's, that says it, or ``C++``; ``seen_at`` the address of a public place where
    somebody met it, or empty.
    """

    known: bool
    said: str
    meaning: str
    cure: str
    lesson: str
    name: str = ""
    source: str = ""
    seen_at: str = ""

    def items(self) -> Iterator[tuple[str, str]]:
        """Yield each sentence that helps with its heading."""
        yield "means", self.meaning
        yield "cure" if self.known else "look", self.cure
        if self.lesson:
            yield "lesson", f"{self.lesson} explains it"

    def _parts(self) -> Iterator[tuple[str, str]]:
        yield from self.items()
        if self.source:
            yield "from", " · ".join(filter(None, [_owner(self.source) + f"`{self.source}`", self.seen_at]))

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

    def as_markdown(self) -> str:
        """Render the message as a quotation and a list of what is said of it."""
        items = [f"- *{heading}:* {prose.as_markdown(sentence)}" for heading, sentence in self._parts()]
        # it may hold backticks of its own, single ones too: nothing of it is code or markup
        said = prose.as_markdown((self.said or "(no message)").replace("`", "'"))
        return "\n".join([f"> {said}", "", *items])

    def as_html(self) -> Markup:
        """Render the same as HTML; what the message says is never taken for markup."""
        return Markup(
            '<section class="amp-explanation" aria-label="Explanation"><p><code>{}</code></p>{}</section>'
        ).format(self.said or "(no message)", terms_html(self._parts()))


def _owner(source: str) -> str:
    """Say that a file is PyTorch's; the path of another library's says whose it is."""
    return "PyTorch, " if source == "C++" or source.startswith("torch/") else ""


def texts(problem: Any) -> Iterator[str]:
    """Yield what a message, an exception or a recorded warning says, the last raised first.

    A string says itself. Raises TypeError for anything else.
    """
    if isinstance(problem, str):
        yield problem
    elif isinstance(problem, warnings.WarningMessage):
        yield str(problem.message)
    elif isinstance(problem, BaseException):
        yield from map(_text, _chain(problem))
    else:
        from amp_lessons._base.text.describing import describe  # it loads PyTorch

        raise TypeError(
            f"an exception, a warning or the text of one can be explained, not {describe(problem)}"
        )


def _chain(exception: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its group's members, then what it was raised from or during; each once."""
    seen: set[int] = set()
    waiting = [exception]
    while waiting:
        each = waiting.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        # `raise ... from None` hides the context from readers of a traceback; it may say the cause even so.
        came_from = (*getattr(each, "exceptions", ()), each.__cause__, each.__context__)
        waiting += [other for other in came_from if isinstance(other, BaseException)]


def _text(exception: BaseException) -> str:
    """Return what an exception says, its notes too; an exception of somebody's own may fail to say it."""
    try:
        return "\n".join([str(exception), *map(str, getattr(exception, "__notes__", ()))])
    except Exception:
        return ""


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
    during is searched too, after the exception itself, and so are the members of a group. Of a text that says
    several things, such as a log, the last error is explained, or the last warning. Where nothing is
    known of it, the explanation says so: ``known`` is False, and ``cure`` says how to go on looking.
    Raises TypeError for anything else.
    """
    said = list(texts(problem))
    for text in said:
        line = plain(text)
        places = {message: place for message in all_messages() if (place := message.place(line)) is not None}
        if places:
            message = max(places, key=places.__getitem__)
            told = {each: getattr(message, each) for each in _TOLD}
            return Explanation(known=True, said=_telling_line(message, text), **told)
    return Explanation(
        known=False,
        said=_error_line(said[0]),
        meaning=f"{_MEANING}{_nearest(said[0])}",
        cure=_CURE,
        lesson="",
    )


def _error_line(text: str) -> str:
    """Return the last line that looks like an error's, before hints that follow it; else the first line."""
    lines = list(_lines(text))
    return next((each for each in reversed(lines) if _ERROR.match(each)), lines[0] if lines else "")


def _nearest(text: str) -> str:
    """Name in a sentence the messages that have most words in common with a text; rare words count more."""
    words = {each: _words(" ".join((each.name.replace("_", " "), *each.patterns))) for each in all_messages()}
    often = Counter(word for of in words.values() for word in of)
    said = _words(text[:_MOST_READ])
    scores = {each.name: sum(1 / often[word] for word in of & said) for each, of in words.items()}
    best = [name for name in sorted(scores, key=lambda name: -scores[name])[:_NEAREST] if scores[name] > 0]
    return f" Nearest by their words are {listed([f'`{name}`' for name in best])}." if best else ""


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)}


def _telling_line(message: Message, text: str) -> str:
    """Return the line that says it, of a whole traceback for instance; an error's where it takes several."""
    return next(filter(message.matches, _lines(text)), _error_line(text))


def _lines(text: str) -> Iterator[str]:
    return (line.strip() for line in text.splitlines() if line.strip())
