"""Mistakes that public threads are about are named at their line; loops that are right are not accused."""

from __future__ import annotations

import pytest
import torch

from tests.audit.field.cured import CURED
from tests.audit.field.right import RIGHT
from tests.audit.field.scripts import first_lines, marked, mistakes, run
from tests.audit.field.wrong import WRONG


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named_at_its_line(name, tmp_path):
    report = run(WRONG[name], str(tmp_path / "train.py"))
    found = mistakes(report)
    assert found.get(name.partition(",")[0]) == marked(WRONG[name]), report
    assert not [said for said in report.not_seen if "trouble" in said]


@pytest.mark.parametrize("name", CURED)
def test_the_cure_leaves_nothing_to_say(name, tmp_path):
    codes, script, edits = CURED[name]
    before = run(script, str(tmp_path / "before.py"), every=1)
    not_shown = {"device_not_here"} if torch.cuda.is_available() else set()
    assert codes - not_shown <= {each.code for each in before.findings}, before
    for wrong, right in edits:
        assert script.count(wrong) == 1
        script = script.replace(wrong, right)
    after = run(script, str(tmp_path / "after.py"), every=1)
    assert not after.findings, after
    assert not [said for said in after.not_seen if "trouble" in said]


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_said_of_what_is_right(name, tmp_path):
    source, ran = RIGHT[name]
    report = run(source, str(tmp_path / "train.py"))
    assert mistakes(report) == {}, report
    assert ran in first_lines(report)
    assert not [said for said in report.not_seen if "trouble" in said]


def test_an_exception_is_told_with_its_line_before_all_else(tmp_path):
    script = """
scores = torch.zeros(4, 4).half()
scores.masked_fill(scores == 0, -1e10)  # mend
"""
    report = run(script, str(tmp_path / "train.py"))
    assert [report.ended_at.source] == marked(script)
    assert report.headline == f"Audit: no optimizer step was seen, RuntimeError at {report.ended_at}"


def test_what_two_kinds_of_events_show_is_counted_once(tmp_path):
    script = """
scaler = torch.amp.GradScaler("cpu")
inputs, targets = batch()
with half():
    loss = F.cross_entropy(model(inputs), targets)
loss.backward()  # mend
scaler.step(optimizer)
"""
    (finding,) = (e for e in run(script, str(tmp_path / "train.py")).findings if e.code == "loss_not_scaled")
    assert (finding.count, [finding.place.source]) == (1, marked(script))


def test_a_step_past_the_scaler_has_the_scale_of_its_gradients(tmp_path):
    script = """
for step in range(3):
    fp16_step(*batch())
    optimizer.step()  # mend
"""
    report = run(script, str(tmp_path / "train.py"))
    assert mistakes(report)["double_step"] == marked(script)
    assert {step.scale for step in report.steps} == {1024.0}
