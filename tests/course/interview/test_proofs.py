"""Every answer's proof holds, says what it showed, and fills the answer; what it computed is kept."""

from __future__ import annotations

import ast
import importlib
import inspect
import json

import pytest
import torch

from amp_lessons import interview
from amp_lessons.course import progress
from amp_lessons.course.interview import proofs
from amp_lessons.course.interview.proofs import Proof, fill
from tests.course.interview.test_bank import MOST_WORDS

QUESTIONS = interview.QUESTIONS
WHY = interview.question("loss_scaling.why")
asked = pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.id)


@asked
def test_the_proof_holds_and_fills_the_answer(question):
    proof = question.prove()
    assert proof.holds, proof.failure
    json.dumps(proof.values)  # so it can be kept
    for follow_up in question.follow_ups:
        if isinstance(follow_up, interview.FollowUp):
            assert "…" not in follow_up.answer
    assert "…" not in question.answer.replace("…", "", question.answer_template.count("…"))
    assert 40 <= len(question.answer.split()) <= MOST_WORDS


@pytest.mark.parametrize(
    "question", [each for each in QUESTIONS if "exercises" in each.proof], ids=lambda question: question.id
)
def test_running_a_proof_is_no_look_at_a_solution(question):
    proofs.run(question.proof, question.id)
    assert progress.read().records == {}


@pytest.mark.parametrize("topic", [*interview.TOPICS, "designs"])
def test_every_proof_has_its_question_and_computes_nothing_that_is_not_said(topic):
    asked = interview.DESIGNS if topic == "designs" else [each for each in QUESTIONS if each.topic == topic]
    said = {each.id.removeprefix(f"{topic}."): {name.split(".")[0] for name in each.names} for each in asked}
    source = inspect.getsource(importlib.import_module(f"amp_lessons.course.interview.proofs.{topic}"))
    functions = [each for each in ast.parse(source).body if isinstance(each, ast.FunctionDef)]
    proofs = {each.name: each for each in functions if not each.name.startswith("_")}  # which help them
    assert said.keys() == proofs.keys()
    for name, proof in proofs.items():
        used = [node for node in ast.walk(proof) if isinstance(node, ast.Name)]
        stored, read = (
            {node.id for node in used if isinstance(node.ctx, how)} for how in (ast.Store, ast.Load)
        )
        of_classes = {"_", "forward", "backward"}
        assert stored - read <= {part.split("[")[0] for part in said[name]} | of_classes, name


def test_the_proof_asserts_something():
    for question in QUESTIONS:  # an estimate is a calculation
        assert question.asks_for_a_number or "assert " in question.proof, question.id


def test_proving_twice_gives_the_same_and_leaves_the_random_state():
    before = torch.get_rng_state()
    first = interview.prove("loss_scaling.powers_of_two")
    assert torch.equal(before, torch.get_rng_state())
    proofs.prove.cache_clear()
    torch.manual_seed(1)
    assert interview.prove("loss_scaling.powers_of_two").values == first.values


def test_a_proof_shows_its_cell_which_runs_anywhere_and_what_it_came_to():
    proof = interview.prove("loss_scaling.walk_through")
    assert "scaler = _scaler()" in proof.cell
    assert str(proof) == proof.shown == f"{proof.cell}\n\n{proof.output}"
    shown = proof._repr_mimebundle_()
    assert shown["text/plain"] == str(proof)
    assert shown["text/markdown"].count("```") == 4
    assert "backed_off  32768" in shown["text/html"]
    namespace = {}
    exec(proof.cell, namespace)
    assert namespace["backed_off"] == 2**15


def _false():
    """Say something that is not true."""
    total = 1 + 1
    assert total == 3


def _raising():
    """Raise."""
    assert {}["missing"]


@pytest.mark.parametrize(
    ("proof", "said"), [(_false, "`assert total == 3`"), (_raising, "KeyError: 'missing'")]
)
def test_a_proof_that_fails_says_where(proof, said, monkeypatch):
    monkeypatch.setattr(proofs, "proof_cell", lambda *_: proofs.cell_of(proof))
    failed = proofs.prove.__wrapped__("tests.a_false_one", ("total",))
    assert not failed.holds
    assert said in failed.failure
    assert said in str(failed)
    assert fill("It is {total:.2f}.", failed.values) == "It is …."


@pytest.fixture
def runs(monkeypatch):
    """Note which proofs run, and let each come to the same; what this process knows is forgotten."""
    run = []

    def prove(question_id, names, seed=None):
        run.append(question_id)
        return Proof(question_id, "", {"floor": 1.5, "nothing": None})

    monkeypatch.setattr(proofs, "prove", prove)
    proofs.proved.cache_clear()
    yield run
    proofs.proved.cache_clear()


def again():
    """Return what is kept, as another process reads it."""
    proofs.proved.cache_clear()
    return WHY.proved


def test_another_process_reads_what_was_kept_and_so_does_an_answer(runs, progress_home):
    assert again().values == again().values == {"floor": 1.5, "nothing": None}
    assert runs == [WHY.id]
    assert [path.name for path in (progress_home / "proofs").iterdir()] == [f"{WHY.id}.json"]
    assert "at or below 1.5·10⁰" in WHY.answer


@pytest.mark.parametrize("changed", ["proof_cell", "_here"])
def test_it_runs_again_where_the_cell_or_the_package_has_changed(changed, runs, monkeypatch):
    again()
    monkeypatch.setattr(proofs, changed, lambda *_: "1 + 1")
    again()
    assert runs == [WHY.id, WHY.id]


def test_a_changed_file_of_the_package_is_another_place(tmp_path, monkeypatch):
    here = proofs._here()
    (tmp_path / "one.py").write_text("x = 1")
    monkeypatch.setattr(proofs, "_PACKAGE", tmp_path)
    proofs._here.cache_clear()
    assert proofs._here() != here
    proofs._here.cache_clear()


def test_what_does_not_hold_is_not_kept(runs, monkeypatch, progress_home):
    monkeypatch.setattr(proofs, "prove", lambda id, *_: Proof(id, "", failure="it is false"))
    assert not again().holds
    assert not (progress_home / "proofs").exists()


def test_a_damaged_file_and_a_home_that_is_none_cost_only_time(runs, progress_home, monkeypatch, tmp_path):
    again()
    for damage in ("{", "[]", json.dumps({"key": "old", "values": {}})):
        (progress_home / "proofs" / f"{WHY.id}.json").write_text(damage)
        assert again().values["floor"] == 1.5
    assert len(runs) == 4
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AMP_LESSONS_HOME", str(tmp_path / "file"))
    assert again().holds
