"""A recording on disk: what is written is read, and what is damaged is named."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.gpu_recording.pretended import SETUP
from tools.gpu.found import Agreement, Figure
from tools.gpu.recording import (
    Part,
    Recording,
    StepRecord,
    UnreadableRecordingError,
    file_name,
    path_for,
    read,
    recordings,
    write,
)

AT = "2026-11-22T10:00:00+00:00"
FULL = Part(
    "GPT-2 fp16",
    "done",
    AT,
    "abc",
    1.5,
    "",
    (Figure("batch", 8), Figure("step", 2.5, "ms"), Figure("said", "1.2x")),
    (Agreement("peak", 100, 105, "why", 0.1, "bytes"), Agreement("a test", "passes", "failure: no", "why")),
    ("[measured] 3 ms",),
)


def recording(*parts: Part, wanted: tuple[str, ...] = ("GPT-2 fp16", "GPT-2 fp32")) -> Recording:
    return Recording(SETUP).with_step(StepRecord("peaks", wanted, parts, {"GPT-2 fp32": 1}))


def part(name: str, status: str, *agreements: Agreement) -> Part:
    return Part(name, status, AT, agreements=agreements)


def test_what_is_written_is_read(tmp_path):
    write(tmp_path / "a.json", recording(FULL, part("GPT-2 fp32", "failed")))
    assert read(tmp_path / "a.json") == recording(FULL, part("GPT-2 fp32", "failed"))


def test_the_file_says_for_people_what_follows_from_it(tmp_path):
    write(tmp_path / "a.json", recording(FULL))
    (step,) = json.loads((tmp_path / "a.json").read_text())["steps"]
    assert (step["status"], step["seconds"]) == ("disagreed", 1.5)
    assert [each["agrees"] for each in step["parts"][0]["agreements"]] == [True, False]


def test_an_edited_verdict_changes_nothing(tmp_path):
    path = tmp_path / "a.json"
    write(path, recording(FULL))
    path.write_text(
        path.read_text().replace('"agrees": false', '"agrees": true').replace("disagreed", "passed")
    )
    assert read(path).step("peaks").status == "disagreed"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('"format": 1', '"format": 2', "format 2 instead of 1"),
        ('"threads": 16', '"threads": "16"', "threads is '16'"),
        ('"claimed": 100', '"claimed": null', "claimed is None"),
        ('"claimed": 100', '"claimed": true', "claimed is True"),
        ('"status": "done"', '"status": "fine"', "status is 'fine'"),
        ('"seconds": 1.5,\n     "message"', '"seconds": "x",\n     "message"', "seconds is 'x'"),
        ('"GPT-2 fp32": 1', '"GPT-2 fp32": 1.5', "begun is"),
        ('"name": "peaks"', '"name": 3', "no list of words"),
        ('"wanted": [', '"wanted": [3, ', "no list of words"),
        ('"driver"', '"drivers"', "drivers"),
        ('"begun"', '"began"', "'begun' is missing"),
        ("{", "", "holds no readable recording"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, before, after, words):
    path = tmp_path / "a.json"
    write(path, recording(FULL))
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after, 1))
    with pytest.raises(UnreadableRecordingError) as raised:
        read(path)
    assert words in str(raised.value)
    assert str(path) in str(raised.value)
    assert list(recordings(tmp_path)) == []


@pytest.mark.parametrize("text", ["[]", "null", '{"format": 1}', '{"format": 1, "setup": [], "steps": 3}'])
def test_what_is_no_recording_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UnreadableRecordingError):
        read(tmp_path / "a.json")


AGREES, DISAGREES = Agreement("a", 1, 1, "why"), Agreement("b", 1, 2, "why")


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ([], "cut short"),
        ([part("x", "done", AGREES)], "cut short"),
        ([part("x", "done", AGREES), part("y", "done")], "passed"),
        ([part("x", "done", AGREES), part("y", "done", DISAGREES)], "disagreed"),
        ([part("x", "done", DISAGREES)], "disagreed"),
        ([part("x", "failed"), part("y", "done", DISAGREES)], "failed"),
        ([part("x", "done"), part("y", "cut short")], "cut short"),
        ([part("x", "done"), part("y", "not possible")], "cut short"),
        ([part("x", "not possible"), part("y", "not possible")], "not possible"),
    ],
)
def test_a_step_is_as_good_as_its_worst_part(parts, status):
    assert StepRecord("step", ("x", "y"), tuple(parts)).status == status


@pytest.mark.parametrize(
    ("claimed", "measured", "tolerance", "agrees"),
    [
        (100, 100, 0.0, True),
        (100, 101, 0.0, False),
        (95, 100, 0.1, True),
        (89, 100, 0.1, False),
        (111, 100, 0.1, False),
        (100, 0, 0.1, False),
        (float("nan"), 1, 0.1, False),
        ("a", "a", 0.0, True),
        ("a", "b", 0.5, False),
        (1, "out of memory", 0.1, False),
    ],
)
def test_an_agreement_holds_within_its_tolerance(claimed, measured, tolerance, agrees):
    assert Agreement("what", claimed, measured, "why", tolerance).agrees is agrees


def test_parts_keep_the_order_that_was_wanted():
    step = StepRecord("step").wanting(("x", "y", "z"))
    for name in ("z", "x"):
        step = step.beginning(name).with_part(part(name, "done"))
    assert [each.name for each in step.parts] == ["x", "z"]
    assert step.outstanding == ("y",)
    assert step.begun == {}
    assert [each.name for each in step.wanting(("y", "z")).parts] == ["z"]


def test_another_setup_never_gets_this_ones_file(tmp_path):
    write(tmp_path / file_name(SETUP), Recording(SETUP))
    other = replace(SETUP, threads=8)
    assert path_for(tmp_path, SETUP).name == "pretended-1-torch-2.11.0-cu130.json"
    assert path_for(tmp_path, other).name == "pretended-1-torch-2.11.0-cu130-2.json"
    write(path_for(tmp_path, other), Recording(other))
    assert read(path_for(tmp_path, other)).setup == other
    assert path_for(tmp_path, SETUP).name == "pretended-1-torch-2.11.0-cu130.json"
