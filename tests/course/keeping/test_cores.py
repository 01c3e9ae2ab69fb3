"""When a lesson's core was done is kept, beside what older versions of the course have written."""

from __future__ import annotations

import json

import pytest

from amp_lessons.course.keeping import cores, progress


def test_the_first_time_is_kept_in_a_file_of_an_older_version_too(progress_home):
    old = {"schema": 1, "exercises": {}, "practice": {}}
    progress_home.mkdir()
    progress.path().write_text(json.dumps(old))
    assert cores.read().done_at == {}
    assert cores.record("03") == ""
    (when,) = cores.read().done_at.values()
    content = json.loads(progress.path().read_text())
    progress.path().write_text(json.dumps({**content, "cores": {"03": "2026-01-01T00:00:00+00:00"}}))
    cores.record("03")
    cores.record("01")
    assert cores.read().done_at == {"03": "2026-01-01T00:00:00+00:00", "01": when}
    assert {name: json.loads(progress.path().read_text())[name] for name in old} == old


@pytest.mark.parametrize("damage", [[1], 7, {"03": 1}])
def test_a_damaged_part_is_named(damage):
    progress.record_try("decode_bits", True)
    content = json.loads(progress.path().read_text())
    progress.path().write_text(json.dumps({**content, "cores": damage}))
    found = cores.read()
    assert "which lessons you have done could not be read" in found.message
    assert found.done_at == {}
    assert progress.read().of("decode_bits").solved


def test_forgetting_all_forgets_cores():
    cores.record("03")
    progress.reset()
    assert cores.read().done_at == {}
