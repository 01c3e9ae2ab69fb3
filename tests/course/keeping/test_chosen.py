"""Which route was chosen is kept, beside what older versions of the course have written."""

from __future__ import annotations

import json

import pytest

from amp_lessons.course.exercises import scores
from amp_lessons.course.keeping import chosen, progress
from amp_lessons.course.routes import overview


def test_the_last_choice_is_kept_in_a_file_of_an_older_version_too(progress_home):
    old = {"schema": 1, "exercises": {}, "practice": {}}
    progress_home.mkdir()
    progress.path().write_text(json.dumps(old))
    assert chosen.read().route == ""
    assert chosen.record("hour") == chosen.record("evening") == ""
    assert chosen.read().route == "evening"
    assert {name: json.loads(progress.path().read_text())[name] for name in old} == old


@pytest.mark.parametrize("damage", [[1], 7, {"id": 1}])
def test_a_damaged_part_is_named(damage):
    progress.record_try("decode_bits", True)
    content = json.loads(progress.path().read_text())
    progress.path().write_text(json.dumps({**content, "route": damage}))
    found = chosen.read()
    assert "which way through the course you chose could not be read" in found.message
    assert found.route == ""
    assert progress.read().of("decode_bits").solved


def test_a_route_that_is_gone_meanwhile_counts_as_none():
    chosen.record("by train")
    assert overview.chosen(scores.read()) is None
