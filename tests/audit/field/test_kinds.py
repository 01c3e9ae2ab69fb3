"""Mistakes that public threads are about are named at their line; loops that are right are not accused."""

from __future__ import annotations

import re

import pytest
import torch

from amp_lessons.scaling import histogram
from tests.audit.field import cured, right, wrong
from tests.audit.field.scripts import by_title, first_lines, marked, mistakes, run

WRONG, CURED, RIGHT = map(by_title, (wrong.WRONG, cured.CURED, right.RIGHT))


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named_at_its_line(name, tmp_path):
    report = run(WRONG[name], str(tmp_path / "train.py"))
    assert mistakes(report).get(name.partition(",")[0]) == marked(WRONG[name]), report


def test_what_the_audit_computes_itself_is_no_line_of_the_training(tmp_path):
    """It learns once in a process where a format ends, by casts that overflow."""
    histogram.fate_thresholds.cache_clear()
    script = WRONG["always_overflows, rows of which nothing is open"]
    report = run(script, str(tmp_path / "train.py"), every=1)
    assert mistakes(report)["always_overflows"] == marked(script)


@pytest.mark.parametrize("name", CURED)
def test_the_cure_leaves_nothing_to_say(name, tmp_path):
    codes = set(name.partition(":")[0].split(", "))
    before = run(re.sub("  # cure:.*", "", CURED[name]), str(tmp_path / "before.py"), every=1)
    not_shown = {"device_not_here"} if torch.cuda.is_available() else set()
    assert codes - not_shown <= {each.code for each in before.findings}, before
    mended = re.sub(r"(?m)^( *).*# cure: ?(.*)$", r"\1\2", CURED[name])
    after = run(mended, str(tmp_path / "after.py"), every=1)
    assert not after.findings, after


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_said_of_what_is_right(name, tmp_path):
    report = run(RIGHT[name], str(tmp_path / "train.py"))
    assert mistakes(report) == {}, report
    assert name.partition(" | ")[2] in first_lines(report)


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
loss_in(half).backward()  # mend
scaler.step(optimizer)
"""
    (finding,) = (e for e in run(script, str(tmp_path / "train.py")).findings if e.code == "loss_not_scaled")
    assert (finding.count, [finding.place.source]) == (1, marked(script))


def test_a_step_past_the_scaler_has_the_scale_of_its_gradients(tmp_path):
    script = """
for step in range(3):
    fp16_step()
    optimizer.step()  # mend
"""
    report = run(script, str(tmp_path / "train.py"))
    assert mistakes(report)["double_step"] == marked(script)
    assert {step.scale for step in report.steps} == {1024.0}
