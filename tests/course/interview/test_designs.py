"""Rounds of system design: computed numbers, a rubric for each stage, answers after the last."""

from __future__ import annotations

import re

import pytest

from amp_lessons.course import progress
from amp_lessons.course.interview import DESIGNS, DesignRound
from amp_lessons.course.interview.proofs import proof_cell
from amp_lessons.course.routes.minutes import DESIGN_MINUTES
from tests.course.interview.test_bank import MOST_WORDS, numbers_typed

asked = pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.id)


@asked
def test_its_numbers_are_computed_and_all_are_said(design):
    proof = design.prove()
    assert proof.holds, proof.failure
    called = re.findall(r"^(\w+)\(\)", proof.cell, re.MULTILINE)  # proofs of questions
    cells = [proof.cell, *(proof_cell(f"language_models.{name}") for name in called)]
    assert sum(cell.count("assert ") for cell in cells) >= 8
    assert "…" not in design.brief + "".join(stage.question + stage.answer for stage in design.stages)


@asked
def test_no_number_is_typed_into_an_answer_that_takes_a_minute(design):
    for stage in design.stages:
        assert numbers_typed(stage.answer_template) == []
        assert 40 <= len(stage.answer.split()) <= MOST_WORDS + 10, stage.title
        assert 3 <= len(stage.points) <= 4
    assert design.minutes == DESIGN_MINUTES
    assert any("https://" in source for source in design.source)


def test_seventy_billion_parameters_take_what_one_finds_on_paper():
    said = DESIGNS[0].prove().values
    assert said["total"] == 70 * 16  # two of weights, two of gradients, twelve of masters and moments
    assert said["shard"] == pytest.approx(70 * 16 / 512)
    assert said["stage_two"] == pytest.approx(70 * (2 + 14 / 512))
    assert DESIGNS[1].prove().values["cache"] == pytest.approx(2 * 80 * 8 * 128 * 2 * 32 * 8192 / 1e9)


@asked
def test_constraints_come_in_stages_and_answers_after_the_last(design, clock):
    round = DesignRound(design.id, clock)
    assert round.left_s == 25 * 60
    assert round.asked.text == f"{design.brief} {design.stages[0].question}"
    for stage in design.stages:
        assert round.closed == ()
        assert stage.question in round.asked.text
        assert round.asked.points == stage.points
        round.answer(0)
    assert [turn.asked.answer for turn in round.closed] == [stage.answer for stage in design.stages]
    for (heading, text), stage in zip(round.answers, design.stages, strict=True):
        assert heading == stage.title.capitalize()
        before, _, after = text.partition(stage.answer)
        assert stage.question in before
        assert all(point in after for point in stage.points)
    assert round.take_back()
    assert round.asked.points == design.stages[-1].points
    round.answer(*range(len(round.asked.points)))
    assert round.report.strengths == (design.stages[-1].title,)
    assert str(round.report).startswith(f"System design: {design.title}")
    assert progress.read().reviews == {}


def test_an_unknown_design_is_answered_with_the_nearest():
    with pytest.raises(KeyError, match="did you mean pretrain"):
        DesignRound("pretrian")
