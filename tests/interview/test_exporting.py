"""The bank for Anki and as CSV, answers with the outputs of their proofs."""

from __future__ import annotations

import builtins
import csv
import io
import sqlite3
import zipfile

import pytest

from amp_lessons import interview
from amp_lessons.interview import exporting

CHOSEN = [question for question in interview.QUESTIONS if question.topic in ("loss_scaling", "estimation")][
    :8
]


def test_csv_holds_question_answer_and_what_the_proof_showed():
    rows = list(csv.DictReader(io.StringIO(interview.as_csv(CHOSEN))))
    assert [row["id"] for row in rows] == [question.id for question in CHOSEN]
    for row, question in zip(rows, CHOSEN, strict=True):
        assert row["answer"] == question.answer
        assert row["output"] == question.prove().output
        assert row["proof"] == question.prove().cell


def notes(path, folder):
    """Read an Anki package as Anki does: a database in an archive."""
    with zipfile.ZipFile(path) as archive:
        archive.extract("collection.anki2", folder)
    with sqlite3.connect(folder / "collection.anki2") as database:
        return dict(database.execute("select guid, flds from notes").fetchall())


def test_anki_gets_a_card_for_each_and_knows_it_again(tmp_path):
    pytest.importorskip("genanki")
    first, second = tmp_path / "first.apkg", tmp_path / "second.apkg"
    assert interview.write_anki(first, CHOSEN) == len(CHOSEN)
    interview.write_anki(second, CHOSEN)
    found = notes(first, tmp_path)
    assert len(found) == len(CHOSEN)
    assert set(notes(second, tmp_path)) == set(found)
    fields = [dict(zip(exporting.FIELDS, text.split("\x1f"), strict=True)) for text in found.values()]
    why = next(each for each in fields if each["id"] == "loss_scaling.why")
    assert "<code>GradScaler</code>" in why["answer"]
    assert "assert " in why["proof"]


def test_without_genanki_one_reads_how_to_get_it(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name == "genanki":
            raise ModuleNotFoundError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(exporting.MissingExtraError, match=r"pip install 'amp-lessons\[anki\]'"):
        interview.write_anki(tmp_path / "cards.apkg", CHOSEN)
    assert not (tmp_path / "cards.apkg").exists()
