"""The first answer to a question is kept, beside what older versions of the course have written."""

from __future__ import annotations

import json

import pytest

from amp_lessons.course.keeping import answers, practice, progress


def right():
    return {id: answer.right for id, answer in answers.read().first.items()}


def test_the_first_answer_stays_whatever_is_tried_afterwards(progress_home):
    assert right() == {}
    assert not progress_home.exists(), "reading must not write"
    for id, correct in (("scaling.floor", False), ("scaling.floor", True), ("formats.count", True)):
        assert answers.record(id, correct) == ""
    assert right() == {"scaling.floor": False, "formats.count": True}


def test_a_file_of_an_older_version_is_read_and_keeps_all_it_has(progress_home):
    old = {"schema": 1, "exercises": {"a": {"tries": 2}}, "practice": {}, "written": {}}
    progress_home.mkdir()
    progress.path().write_text(json.dumps(old))
    assert right() == {}
    assert answers.record("scaling.floor", True) == ""
    kept = json.loads(progress.path().read_text())
    assert {name: kept[name] for name in old} == {**old, "exercises": {"a": old["exercises"]["a"]}}
    assert right() == {"scaling.floor": True}


@pytest.mark.parametrize("act", [answers.read, lambda: answers.record("b", True)])
def test_a_damaged_part_is_copied_and_named_and_the_rest_stays(act):
    for damage in ([1], 7, {"a": 3}, {"a": {"right": 1, "at": "x"}}, {"a": {"right": True}}):
        progress.record_try("solved", True)
        practice.record("card", "good")
        content = json.loads(progress.path().read_text())
        progress.path().write_text(json.dumps({**content, "answers": damage}))
        said = act()
        message = said if isinstance(said, str) else said.message
        (copy,) = progress.damaged_files()
        assert str(copy) in message
        assert "your answers to questions" in message
        assert json.loads(copy.read_text())["answers"] == damage
        assert progress.read().of("solved").solved
        assert practice.read().of("card")
        assert set(right()) <= {"b"}
        copy.unlink()


def test_forgetting_all_forgets_answers():
    answers.record("scaling.floor", True)
    progress.reset()
    assert right() == {}
