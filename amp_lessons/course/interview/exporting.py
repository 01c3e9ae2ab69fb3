"""The bank for other programs: cards for Anki, and CSV; answers come with what their proofs showed."""

from __future__ import annotations

import csv
import hashlib
import html
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from markupsafe import Markup

from amp_lessons._base import files
from amp_lessons._base.text import prose
from amp_lessons.course.interview.bank import QUESTIONS, FollowUp, Question, follow_ups, in_words

# The fields of a question's note in Anki. They stay: a note whose fields change loses its schedule.
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
COLUMNS = (*FIELDS, "wrong_beliefs", "follow_ups")  # of the table
_WHERE = "<p><small>{{topic}}, {{level}}</small></p>"
_WHOLE = "<details><summary>The whole answer</summary><p>{{answer}}</p>"
_FRONT = f"{_WHERE}<p>{{{{question}}}}</p>"
_BACK = (
    f"{{{{FrontSide}}}}<hr id=answer><p>{{{{points}}}}</p>{_WHOLE}"
    "<p><b>A weak answer:</b> {{weak_answer}}</p></details>"
    "<details><summary>The proof</summary><pre>{{proof}}</pre><pre>{{output}}</pre></details>"
    "<p><small>{{id}}, lesson {{lesson}}. {{source}}</small></p>"
)
# Cards that ask for one thing: a point among the others, what follows one question alone.
_ONE_THING = ("id", "topic", "level", "front", "back", "answer")
_ONE_FRONT = f"{_WHERE}<p>{{{{front}}}}</p>"
_POINTS_FRONT = f"{_ONE_FRONT}{{{{cloze:back}}}}"
_ONE_END = f"{_WHOLE}</details><p><small>{{{{id}}}}</small></p>"
_POINTS_BACK = _POINTS_FRONT + _ONE_END
_ONE_BACK = f"{{{{FrontSide}}}}<hr id=answer><p>{{{{back}}}}</p>{_ONE_END}"
_CSS = ".card { font: 18px/1.5 sans-serif; text-align: left; } pre { overflow-x: auto; font-size: 14px; }"


class MissingExtraError(RuntimeError):
    """What the export needs is not installed; the message says how to install it."""


def as_csv(questions: Iterable[Question] = QUESTIONS) -> str:
    """Return a table with a row per question; the first time that runs all proofs, which takes minutes."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(_row, questions))
    return text.getvalue()


def write_anki(path: str | Path, questions: Iterable[Question] = QUESTIONS) -> int:
    """Write an Anki package (``.apkg``), and return how many notes it holds; it takes as long as ``as_csv``.

    A note keeps its identity from export to export, so that Anki keeps its schedule. Raises MissingExtraError
    where genanki is not installed, and OSError, before anything is computed, where nothing can be written.
    """
    _genanki()
    files.try_writing(Path(path))
    decks = _decks(questions)
    files.replace(Path(path), _packed(decks))
    return sum(len(deck.notes) for deck in decks)


def as_anki(questions: Iterable[Question] = QUESTIONS) -> bytes:
    """Return an Anki package as ``write_anki`` writes it. Raises MissingExtraError without genanki."""
    return _packed(_decks(questions))


def _packed(decks: list[Any]) -> bytes:
    buffer = io.BytesIO()
    _genanki().Package(decks).write_to_file(buffer)
    return buffer.getvalue()


def _decks(questions: Iterable[Question]) -> list[Any]:
    """Make a deck for each topic's questions, one for their points, and one for what follows them alone."""
    genanki = _genanki()
    whole = _model("model", "amp-lessons", FIELDS, _FRONT, _BACK)
    points = _model("points", "amp-lessons points", _ONE_THING, _POINTS_FRONT, _POINTS_BACK, cloze=True)
    one = _model("one thing", "amp-lessons follow-ups", _ONE_THING, _ONE_FRONT, _ONE_BACK)
    decks: dict[str, Any] = {}

    def add(name: str, of: Question, model: Any, id: str, fields: Iterable[str]) -> None:
        deck = decks.setdefault(name, genanki.Deck(_number(name), name))
        guid = genanki.guid_for("amp-lessons", id)
        deck.add_note(genanki.Note(model, list(fields), guid=guid, tags=[of.topic, of.level]))

    for each in questions:
        name = f"amp-lessons::{in_words(each.topic)}"
        add(name, each, whole, each.id, _html_row(each).values())
        add(f"{name}::points", each, points, f"{each.id} points", _points(each))
        for id, fields in _followed(each):
            add(f"{name}::follow-ups", each, one, id, fields)
    return list(decks.values())


def _genanki() -> Any:
    try:
        import genanki
    except ImportError as error:
        raise MissingExtraError(
            "Anki packages are written by genanki, which is not installed: pip install 'amp-lessons[anki]'"
        ) from error
    return genanki


def _model(id: str, name: str, fields: Iterable[str], front: str, back: str, *, cloze: bool = False) -> Any:
    genanki = _genanki()
    return genanki.Model(
        _number(id),
        name,
        fields=[{"name": each} for each in fields],
        templates=[{"name": "Question", "qfmt": front, "afmt": back}],
        css=_CSS,
        model_type=genanki.Model.CLOZE if cloze else genanki.Model.FRONT_BACK,
    )


def _points(of: Question) -> tuple[str, ...]:
    """Hide one point of an answer on each card; the others stand there."""
    hidden = (f"<li>{{{{c{i}::{prose.as_html(each)}}}}}</li>" for i, each in enumerate(of.points, start=1))
    return _fields(of, f"{of.id} points", of.question, Markup(f"<ul>{''.join(hidden)}</ul>"), of.answer)


def _followed(of: Question) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield id and fields of a card for each question that follows this one alone."""
    own = [each for each in of.follow_ups if isinstance(each, FollowUp)]
    for number, each in enumerate(own, start=1):
        id = f"{of.id} follow-up {number}"
        back = prose.as_html("; ".join(each.points))
        yield id, _fields(of, id, f"{of.question} {each.question}", back, each.answer)


def _fields(of: Question, id: str, front: str, back: Markup, answer: str) -> tuple[str, ...]:
    """Return the fields of a card that asks for one thing, as HTML."""
    said = (prose.as_html(front), back, prose.as_html(answer))
    return (id, in_words(of.topic), of.level, *map(str, said))


def _row(of: Question) -> dict[str, str]:
    proof = of.proved
    said = ("id", "topic", "level", "lesson", "question", "answer", "weak_answer")
    return {
        **{name: getattr(of, name) for name in said},
        "points": "; ".join(of.points),
        "proof": proof.cell,
        "output": proof.output,
        "source": "; ".join(of.source),
        "wrong_beliefs": " ".join(of.wrong_beliefs),
        "follow_ups": " ".join(each.question for each in follow_ups(of.id)),
    }


def _html_row(of: Question) -> dict[str, str]:
    """Escape what Anki would take for markup; code in sentences becomes code.

    What people wrongly believe stands with the weak answer: a field of its own would be another kind of note.
    """
    row, code = _row(of), ("proof", "output")
    row["topic"] = in_words(of.topic)
    believed = " ".join(f"“{belief}”" for belief in of.wrong_beliefs)
    row["weak_answer"] += f" People believe wrongly: {believed}"
    return {
        name: html.escape(row[name]) if name in code else str(prose.as_html(row[name])) for name in FIELDS
    }


def _number(name: str) -> int:
    """Return an id as Anki wants them: below 2^31, and always the same for a name."""
    return int.from_bytes(hashlib.sha256(f"amp-lessons {name}".encode()).digest()[:4], "big") >> 1
