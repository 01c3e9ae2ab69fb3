"""Mistakes that public threads are about are named at their line; loops that are right are not accused."""

from __future__ import annotations

import pytest

from tests.audit.field.right import RIGHT
from tests.audit.field.scripts import first_lines, marked, mistakes, run
from tests.audit.field.wrong import WRONG


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named_at_its_line(name, tmp_path):
    report = run(WRONG[name], str(tmp_path / "train.py"))
    found = mistakes(report)
    assert found.get(name.partition(",")[0]) == marked(WRONG[name]), report
    assert not [said for said in report.not_seen if "trouble" in said]


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_said_of_what_is_right(name, tmp_path):
    source, ran = RIGHT[name]
    report = run(source, str(tmp_path / "train.py"))
    assert mistakes(report) == {}, report
    assert ran in first_lines(report)
    assert not [said for said in report.not_seen if "trouble" in said]
