"""The bank for Anki and as CSV, answers with the outputs of their proofs."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
import sys
import zipfile

import pytest

from amp_lessons import interview
from amp_lessons._base.text import prose
from amp_lessons.course.interview import exporting

IDS = ("loss_scaling.why", "loss_scaling.two_optimizers", "many_gpus.bf16_reduce", "estimation.ridge_size")
CHOSEN = list(map(interview.question, IDS))


def test_csv_holds_question_answer_and_what_the_proof_showed():
    rows = list(csv.DictReader(io.StringIO(interview.as_csv(CHOSEN))))
    for row, question in zip(rows, CHOSEN, strict=True):
        proof = question.prove()
        shown = (question.id, question.answer, proof.output, proof.cell)
        assert tuple(row[name] for name in ("id", "answer", "output", "proof")) == shown


def collection(path, folder):
    """Read names of decks, and notes, as Anki does: from a database in an archive."""
    with zipfile.ZipFile(path) as archive:
        archive.extract("collection.anki2", folder)
    with sqlite3.connect(folder / "collection.anki2") as database:
        models, decks = map(json.loads, database.execute("select models, decks from col").fetchone())
        found = database.execute("select guid, mid, flds from notes").fetchall()
    names = {id: [field["name"] for field in model["flds"]] for id, model in models.items()}
    notes = {guid: dict(zip(names[str(mid)], flds.split("\x1f"), strict=True)) for guid, mid, flds in found}
    return {each["name"] for each in decks.values()}, notes


def test_anki_gets_a_card_for_each_and_knows_it_again(tmp_path):
    genanki = pytest.importorskip("genanki")
    first, second = tmp_path / "first.apkg", tmp_path / "second.apkg"
    written = interview.write_anki(first, CHOSEN)
    interview.write_anki(second, CHOSEN)
    decks, notes = collection(first, tmp_path)
    assert collection(second, tmp_path) == (decks, notes)
    assert len(notes) == written
    assert {"amp-lessons::many gpus", "amp-lessons::many gpus::points"} <= decks
    by_id = {each["id"]: each for each in notes.values()}
    why, question = by_id["loss_scaling.why"], CHOSEN[0]
    assert tuple(why) == exporting.FIELDS
    assert "<code>GradScaler</code>" in why["answer"]
    assert "assert " in why["proof"]
    guid = genanki.guid_for("amp-lessons", "loss_scaling.why")
    assert notes[guid] == why, "the note that older exports have written"
    hidden = by_id["loss_scaling.why points"]["back"]
    assert [f"{{{{c{i}::" in hidden for i in range(1, 6)] == [i <= len(question.points) for i in range(1, 6)]
    assert all(str(prose.as_html(belief)) in why["weak_answer"] for belief in question.wrong_beliefs)
    assert "People believe wrongly:" in why["weak_answer"]
    assert not any("belief" in id for id in by_id), "No. is no answer that one learns by heart"
    assert by_id["many_gpus.bf16_reduce"]["topic"] == "many gpus"
    shared = by_id["loss_scaling.two_optimizers follow-up 1"]["front"]
    assert "What if both losses share parameters?" in shared
    assert not any(re.search(r"\d\.\d{7,}", card.get("output", "")) for card in by_id.values())


def test_without_genanki_or_a_path_one_reads_so_before_the_work_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "_decks", None)  # it would work
    pytest.importorskip("genanki")
    with pytest.raises(FileNotFoundError):
        interview.write_anki(tmp_path / "no_such_folder" / "cards.apkg", CHOSEN)
    monkeypatch.setitem(sys.modules, "genanki", None)
    with pytest.raises(exporting.MissingExtraError, match=r"pip install 'amp-lessons\[anki\]'"):
        interview.write_anki(tmp_path / "cards.apkg", CHOSEN)
    assert not (tmp_path / "cards.apkg").exists()
