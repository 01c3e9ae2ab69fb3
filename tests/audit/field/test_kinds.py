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
