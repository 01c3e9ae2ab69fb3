"""What proofs computed is kept as long as nothing changes on which they depend."""

from __future__ import annotations

import json

import pytest

from amp_lessons import interview
from amp_lessons.course.interview import proved, proving
from amp_lessons.course.interview.proving import Proof

WHY = "loss_scaling.why"


@pytest.fixture(autouse=True)
def runs(monkeypatch):
    """Forget what this process knows, as the next one would, and note which proofs run."""
    run = []

    def prove_cell(question_id, seed=None):
        run.append(question_id)
        return Proof(question_id, "", {"total": 1.5, "nothing": None})

    monkeypatch.setattr(proved, "prove_cell", prove_cell)
    proved.proved.cache_clear()
    yield run
    proved.proved.cache_clear()


def again():
    proved.proved.cache_clear()
    return proved.proved(WHY)


def test_another_process_reads_what_was_kept(runs, progress_home):
    assert again().values == again().values == {"total": 1.5, "nothing": None}
    assert runs == [WHY]
    assert [path.name for path in (progress_home / "proofs").iterdir()] == [f"{WHY}.json"]


def test_it_runs_again_where_the_cell_has_changed(runs, monkeypatch):
    again()
    monkeypatch.setattr(proved, "proof_cell", lambda *_: "1 + 1")
    again()
    assert runs == [WHY, WHY]


def test_it_depends_on_the_rooms_below_and_on_no_others():
    cell = proving.proof_cell("many_gpus.bf16_reduce")
    packages = set()
    rooms = {path.relative_to(proved._PACKAGE).parts[0] for path in proved._sources(cell, packages)}
    assert {"parallel", "formats"} <= rooms  # parallel imports formats
    assert not {"views", "commands", "quizzes"} & rooms
    assert "torch" in packages


def test_a_change_in_a_room_below_changes_what_it_depends_on(monkeypatch):
    cell = proving.proof_cell("many_gpus.bf16_reduce")
    before = proved.depends_on(cell)
    assert proved.depends_on(cell) == before
    real = proved._digest
    monkeypatch.setattr(proved, "_digest", lambda p: b"changed" if p.name == "reductions.py" else real(p))
    assert proved.depends_on(cell) != before
    monkeypatch.setattr(proved, "_digest", lambda p: b"changed" if p.name == "sheet.py" else real(p))
    assert proved.depends_on(cell) == before


def test_what_does_not_hold_is_not_kept(runs, monkeypatch, progress_home):
    monkeypatch.setattr(proved, "prove_cell", lambda id, seed=None: Proof(id, "", failure="it is false"))
    assert not again().holds
    assert not (progress_home / "proofs").exists()


def test_a_damaged_file_and_a_home_that_is_none_cost_only_time(runs, progress_home, monkeypatch, tmp_path):
    again()
    for damage in ("{", "[]", json.dumps({"key": "old", "values": {}})):
        (progress_home / "proofs" / f"{WHY}.json").write_text(damage)
        assert again().values["total"] == 1.5
    assert len(runs) == 4
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AMP_LESSONS_HOME", str(tmp_path / "file"))
    assert again().holds


def test_answers_read_what_is_kept_and_a_proof_that_is_asked_for_runs(runs):
    template = interview.question(WHY).answer_template
    assert interview.question(WHY).answer == interview.questions.fill(template, {"total": 1.5})
    assert interview.prove(WHY).values != {"total": 1.5}
