"""Every answer's proof holds, says what it showed, and fills the answer."""

from __future__ import annotations

import importlib
import inspect

import pytest
import torch

from amp_lessons import interview
from amp_lessons.course import progress
from amp_lessons.course.interview import proving
from amp_lessons.course.interview.questions import fill, placeholders
from tests.course.interview.test_bank import MOST_WORDS

QUESTIONS = interview.QUESTIONS
asked = pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.id)


@asked
def test_the_proof_holds_and_fills_the_answer(question):
    proof = question.prove()
    assert proof.holds, proof.failure
    wanted = placeholders(question.answer_template) | placeholders(question.question_template)
    for follow_up in question.follow_ups:
        if isinstance(follow_up, interview.FollowUp):
            assert "…" not in follow_up.answer
            wanted |= placeholders(follow_up.answer_template)
    assert wanted <= set(proof.values)
    assert set(proof.values) - wanted <= {"value"}, "values that the answer does not say"
    assert "…" not in question.answer.replace("…", "", question.answer_template.count("…"))
    assert 40 <= len(question.answer.split()) <= MOST_WORDS
    for name in wanted:
        assert proving._shown(proof.values[name]) in proof.output


@pytest.mark.parametrize(
    "question", [each for each in QUESTIONS if "exercises" in each.proof], ids=lambda question: question.id
)
def test_running_a_proof_is_no_look_at_a_solution(question):
    proving.run(question.proof, question.id)
    assert progress.read().records == {}


def test_the_proof_asserts_something():
    for question in QUESTIONS:
        if not question.asks_for_a_number:  # an estimate is a calculation
            assert question.proof.count("assert ") + question.proof.count("raises(") >= 1, question.id


@pytest.mark.parametrize("topic", interview.TOPICS)
def test_every_proof_has_its_question(topic):
    module = importlib.import_module(f"amp_lessons.course.interview.proofs.{topic}")
    written = {
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }
    assert {f"{topic}.{name}" for name in written} == {q.id for q in QUESTIONS if q.topic == topic}


def test_proving_twice_gives_the_same_and_leaves_the_random_state():
    before = torch.get_rng_state()
    first = interview.prove("loss_scaling.powers_of_two")
    assert torch.equal(before, torch.get_rng_state())
    proving.prove_cell.cache_clear()
    torch.manual_seed(1)
    assert interview.prove("loss_scaling.powers_of_two").values == first.values


def test_a_proof_shows_its_cell_and_what_it_came_to():
    proof = interview.prove("loss_scaling.walk_through")
    assert "scaler = _scaler()" in proof.cell
    assert "return" not in proof.cell
    assert str(proof) == proof.shown == f"{proof.cell}\n\n{proof.output}"
    shown = proof._repr_mimebundle_()
    assert shown["text/plain"] == str(proof)
    assert shown["text/markdown"].count("```") == 4
    assert "32768" in shown["text/html"]


def test_the_cell_runs_anywhere():
    namespace = {}
    exec(interview.prove("loss_scaling.walk_through").cell, namespace)
    assert namespace["backed_off"] == 2**15


def _false():
    """Say something that is not true."""
    total = 1 + 1
    assert total == 3
    return {"total": total}


def _raising():
    """Raise."""
    nothing = {}
    return {"total": nothing["missing"]}


@pytest.mark.parametrize(
    ("proof", "said"), [(_false, "`assert total == 3`"), (_raising, "KeyError: 'missing'")]
)
def test_a_proof_that_fails_says_where(proof, said, monkeypatch):
    monkeypatch.setattr(proving, "proof_cell", lambda *_: proving.cell_of(proof))
    failed = proving.prove_cell("tests.a_false_one", None)
    proving.prove_cell.cache_clear()
    assert not failed.holds
    assert said in failed.failure
    assert said in str(failed)
    assert fill("It is {total}.", failed.values) == "It is …."


def test_a_proof_returns_once():
    def twice():
        if True:
            return {}
        return {}

    with pytest.raises(ValueError, match="twice must return once, at its end"):
        proving.cell_of(twice)
