"""The bank for other programs: cards for Anki, and CSV; answers come with what their proofs showed."""

from __future__ import annotations

import csv
import hashlib
import html
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from amp_lessons.interview.bank import QUESTIONS
from amp_lessons.interview.questions import Question
from amp_lessons.text import prose

FIELDS = (
    "id",
    "topic",
    "level",
    "lesson",
    "question",
    "answer",
    "points",
    "weak_answer",
    "proof",
    "output",
    "source",
)
_FRONT = "<p><small>{{topic}}, {{level}}</small></p><p>{{question}}</p>"
_BACK = (
    "{{FrontSide}}<hr id=answer><p>{{answer}}</p><p><b>Points:</b> {{points}}</p>"
    "<p><b>A weak answer:</b> {{weak_answer}}</p>"
    "<details><summary>The proof</summary><pre>{{proof}}</pre><pre>{{output}}</pre></details>"
    "<p><small>{{id}}, lesson {{lesson}}. {{source}}</small></p>"
)
_CSS = ".card { font: 18px/1.5 sans-serif; text-align: left; } pre { overflow-x: auto; font-size: 14px; }"


class MissingExtraError(RuntimeError):
    """What the export needs is not installed; the message says how to install it."""


def as_csv(questions: Iterable[Question] = QUESTIONS) -> str:
    """Return a table with a row per question; running all of the bank's proofs takes a minute or two."""
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(_row, questions))
    return text.getvalue()


def write_anki(path: str | Path, questions: Iterable[Question] = QUESTIONS) -> int:
    """Write an Anki package (``.apkg``), and return how many cards it holds; it takes as long as ``as_csv``.

    A card keeps its identity from export to export, so that Anki keeps its schedule. Raises MissingExtraError
    where genanki is not installed.
    """
    try:
        import genanki
    except ImportError as error:
        raise MissingExtraError(
            "Anki packages are written by genanki, which is not installed: pip install 'amp-lessons[anki]'"
        ) from error
    model = genanki.Model(
        _number("model"),
        "amp-lessons",
        fields=[{"name": name} for name in FIELDS],
        templates=[{"name": "Question", "qfmt": _FRONT, "afmt": _BACK}],
        css=_CSS,
    )
    decks: dict[str, Any] = {}
    for question in questions:
        name = f"amp-lessons::{question.topic}"
        deck = decks.setdefault(name, genanki.Deck(_number(name), name))
        fields = list(_html_row(question).values())
        guid = genanki.guid_for("amp-lessons", question.id)
        deck.add_note(genanki.Note(model, fields, guid=guid, tags=[question.topic, question.level]))
    genanki.Package(list(decks.values())).write_to_file(str(path))
    return sum(len(deck.notes) for deck in decks.values())


def _row(question: Question) -> dict[str, str]:
    proof = question.prove()
    return {
        "id": question.id,
        "topic": question.topic,
        "level": question.level,
        "lesson": question.lesson,
        "question": question.question,
        "answer": question.answer,
        "points": "; ".join(question.points),
        "weak_answer": question.weak_answer,
        "proof": proof.cell,
        "output": proof.output,
        "source": "; ".join(question.source),
    }


def _html_row(question: Question) -> dict[str, str]:
    """Escape what Anki would take for markup; code in sentences becomes code."""
    code = ("proof", "output")
    return {
        name: html.escape(text) if name in code else str(prose.as_html(text))
        for name, text in _row(question).items()
    }


def _number(name: str) -> int:
    """Return an id as Anki wants them: below 2^31, and always the same for a name."""
    return int.from_bytes(hashlib.sha256(f"amp-lessons {name}".encode()).digest()[:4], "big") >> 1
