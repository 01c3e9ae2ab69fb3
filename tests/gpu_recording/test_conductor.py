"""Steps that crash, hang or answer nonsense end themselves, and not the run."""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import pytest

from tests.gpu_recording import pretended
from tools.gpu import process
from tools.gpu.conductor import Conductor
from tools.gpu.found import Place
from tools.gpu.recording import Part, Recording, StepRecord

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="make gpu is for Linux"),
]


@pytest.fixture
def conduct(tmp_path, monkeypatch):
    """Run the parts that are named, and return what is known of both steps, with all that was kept."""
    monkeypatch.setenv("PRETENDED_RUNS", str(tmp_path / "runs"))
    said, kept = [], []

    def run(parts: str, *, seconds: float = 100.0, recording: Recording | None = None, **limits: float):
        monkeypatch.setenv("PRETENDED_PARTS", parts)
        conductor = Conductor(
            Place("cpu", "small", str(tmp_path / "bench")),
            time.monotonic() + seconds,
            tmp_path / "log",
            kept.append,
            said.append,
            "abc",
        )
        first = replace(pretended.STEPS[0], **limits)
        return conductor.conduct(
            (first, pretended.STEPS[1]), recording or Recording(pretended.SETUP)
        ), conductor

    monkeypatch.setattr(process, "_END_S", 0.5)
    run.said, run.kept, run.log = said, kept, tmp_path / "log"
    return run


def statuses(record: StepRecord) -> dict[str, str]:
    return {part.name: part.status for part in record.parts}


def test_every_part_is_kept_the_moment_it_is_known(conduct):
    recording, conductor = conduct("good-1 disagrees-2 good-3")
    assert statuses(recording.step("first")) == dict.fromkeys(("good-1", "disagrees-2", "good-3"), "done")
    assert recording.step("first").status == "disagreed"
    assert recording.step("second").status == "passed"
    counts = [len(each.step("first").parts) for each in conduct.kept]
    assert counts == sorted(counts)
    assert {0, 1, 2, 3} == set(counts)
    assert conductor.left_for_next == []
    assert "first: disagrees-2: 1 of 2 disagree (0 s)" in conduct.said
    part = recording.step("first").parts[0]
    assert part.commit == "abc"
    assert part.at.endswith("+00:00")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("crash", "its process ended with signal 11 (SIGSEGV): "),
        ("raises", "ValueError: something went wrong (pretended.py, line "),
        ("nothing", "TypeError: "),
        ("mistyped", "something else than a result (TypeError: value is None)"),
        ("mute", "its process ended with signal 9 (SIGKILL)"),
        ("garbage", "something else than a result (JSONDecodeError"),
        ("unknown", "KeyError: 'unknown'"),
    ],
)
def test_what_goes_wrong_is_told_and_the_rest_goes_on(conduct, kind, words):
    recording, _ = conduct(f"good-1 {kind}-2 good-3")
    record = recording.step("first")
    assert statuses(record) == {"good-1": "done", f"{kind}-2": "failed", "good-3": "done"}
    assert words in record.parts[1].message
    assert "\n" not in record.parts[1].message
    assert record.status == "failed"
    assert recording.step("second").status == "passed"


def test_a_crash_hands_on_last_words_and_the_log_has_all(conduct):
    recording, _ = conduct("crash-1")
    assert "last words" in conduct.log.read_text()
    assert recording.step("first").parts[0].message.endswith("last words")


def test_what_hangs_is_given_up_and_the_rest_of_its_step_left(conduct):
    recording, conductor = conduct("good-1 hang-2 good-3", limit_s=1.0)
    record = recording.step("first")
    assert statuses(record) == {"good-1": "done", "hang-2": "cut short"}
    assert record.parts[1].message == "it took longer than 1 seconds"
    assert record.parts[1].seconds >= 1
    assert conductor.left_for_next == ["first (1 of 3 parts)"]
    assert recording.step("second").status == "passed"


def test_the_deadline_ends_a_part_that_is_then_tried_again(conduct):
    recording, conductor = conduct("good-1 hang-2", seconds=2.0)
    record = recording.step("first")
    assert statuses(record) == {"good-1": "done"}
    assert record.begun == {}
    assert conductor.left_for_next == ["first (1 of 2 parts)", "second"]


def test_what_is_lacking_is_no_failure_and_is_looked_for_again(conduct):
    recording, conductor = conduct("good-1 lacking-2")
    assert statuses(recording.step("first")) == {"good-1": "done", "lacking-2": "not possible"}
    assert recording.step("first").parts[1].message == "this Python lacks nowhere"
    assert conductor.left_for_next == []
    assert recording.step("first").outstanding == ("lacking-2",)


def test_a_step_that_lacks_a_package_keeps_what_it_had(conduct):
    recording, _ = conduct("lacking")
    record = recording.step("first")
    assert (record.status, statuses(record)) == ("not possible", {"first": "not possible"})
    assert record.parts[0].message == "this Python lacks nowhere"
    recording, _ = conduct("good-1 hang-2", recording=recording, limit_s=0.5)
    assert statuses(recording.step("first")) == {"good-1": "done", "hang-2": "cut short"}


def test_parts_that_were_known_stay_when_the_step_cannot_begin(conduct):
    known = Part("good-1", "done", "2026-11-22T10:00:00+00:00")
    before = Recording(pretended.SETUP).with_step(StepRecord("first", ("good-1", "good-2"), (known,)))
    recording, _ = conduct("lacking", recording=before)
    assert statuses(recording.step("first")) == {"good-1": "done", "first": "not possible"}


@pytest.mark.parametrize(("parts", "words"), [("crash", "exit status 3"), (" ", "it names no parts")])
def test_a_step_that_cannot_name_its_parts_has_failed(conduct, parts, words):
    recording, _ = conduct(parts)
    record = recording.step("first")
    assert (record.status, record.wanted) == ("failed", ())
    assert words in record.parts[0].message
    assert recording.step("second").status == "passed"


def test_a_part_is_not_begun_without_the_time_it_usually_takes(conduct):
    recording, conductor = conduct("good-1", seconds=50.0, usual_s=60.0)
    assert recording.step("first") == StepRecord("first")
    assert conductor.left_for_next == ["first"]
    assert recording.step("second").status == "passed"
