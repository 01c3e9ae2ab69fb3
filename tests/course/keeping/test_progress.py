"""Progress survives kills, damage and other kernels."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import asdict

import pytest

from amp_lessons.course.keeping import progress
from amp_lessons.course.keeping.progress import ProgressError, Record


def test_nothing_is_recorded_at_first(progress_home):
    assert progress.read().records == {}
    assert progress.read().of("train_with_amp") == Record()
    assert not progress_home.exists(), "reading must not write"


def test_home_is_the_users_data_folder_unless_told_otherwise(monkeypatch):
    monkeypatch.setenv("AMP_LESSONS_HOME", "/somewhere/else")
    assert str(progress.path()) == os.path.join("/somewhere/else", "progress.json")
    monkeypatch.delenv("AMP_LESSONS_HOME")
    assert progress.home().name == "amp-lessons"


def test_home_may_begin_with_a_tilde(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("AMP_LESSONS_HOME", os.path.join("~", "amp"))
    assert progress.home() == tmp_path / "amp"
    monkeypatch.setenv("AMP_LESSONS_HOME", "~nobody-of-that-name")
    with pytest.raises(ProgressError, match="nobody's home"):
        progress.read()


def every_act():
    return (
        progress.read,
        lambda: progress.record_try("a", True),
        lambda: progress.record_hint("a", 1),
        lambda: progress.record_solution("a"),
        progress.reset,
        progress.damaged_files,
    )


def test_a_relative_home_would_split_progress_by_folder_and_is_refused(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AMP_LESSONS_HOME", "myhome")
    for act in every_act():
        with pytest.raises(ProgressError, match=r"in 'myhome', another folder .* an absolute path"):
            act()
    assert not list(tmp_path.iterdir())


def test_a_home_that_is_a_file_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("mine")
    for home in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setenv("AMP_LESSONS_HOME", str(home))
        for act in every_act()[:5]:
            with pytest.raises(ProgressError, match="progress cannot be"):
                act()
    assert (tmp_path / "file").read_text() == "mine"


def test_a_home_that_cannot_be_entered_is_an_error_in_words(monkeypatch):
    def forbidden(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.stat", forbidden)
    with pytest.raises(ProgressError, match=r"cannot be read: .*Permission denied"):
        progress.read()


def test_tries_count_until_solved():
    for passed in (False, False, True, False, True):
        progress.record_try("a", passed)
    record = progress.read().of("a")
    assert record.tries == 3
    assert record.solved
    assert record.first_try_at <= record.solved_at


def test_hints_and_solutions_are_remembered():
    progress.record_hint("a", 2)
    progress.record_hint("a", 1)
    progress.record_solution("b")
    assert progress.read().of("a").hints == 2
    assert progress.read().of("b").solution_seen
    assert not progress.read().of("b").solved


def test_reset_of_one_and_of_all():
    progress.record_try("a", True)
    progress.record_try("b", True)
    progress.reset("a")
    assert set(progress.read().records) == {"b"}
    progress.reset()
    assert progress.read().records == {}
    progress.reset("never seen")


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"schema": 1}',
        b'{"schema": "x", "exercises": {}}',
        b'{"schema": 1, "exercises": {"a": 3}}',
        b'{"schema": 1, "exercises": {"a": {"unknown": 3}}}',
        b'{"schema": 1, "exercises": {"a": {"tries": "abc", "hints": "x"}}}',
        b'{"schema": 1, "exercises": {"a": {"tries": 1.5}}}',
        b'{"schema": 1, "exercises": {"a": {"tries": null}}}',
        b'{"schema": 1, "exercises": {"a": {"hints": true}}}',
        b'{"schema": 1, "exercises": {"a": {"solution_seen": 1}}}',
        b'{"schema": 1, "exercises": {"a": {"tries": 1, "solved_at": 7}}}',
        b'{"schema": 1, "exercises": {"a": {"first_try_at": ["2026"]}}}',
        pytest.param(b"[" * 200_000, id="nested too deeply"),
        pytest.param(b'{"schema": 1, "exercises": ' + b'{"a": ' * 200_000, id="deep and well begun"),
        b"\xff\xfe\x00",
    ],
)
def test_a_damaged_file_is_set_aside_and_named(progress_home, damage):
    progress_home.mkdir()
    progress.path().write_bytes(damage)
    found = progress.read()
    assert found.records == {}
    (aside,) = progress_home.glob("progress.damaged-*.json")
    assert str(aside) in found.message
    assert aside.read_bytes() == damage
    assert progress.record_try("a", True) == ""
    assert progress.read().of("a").solved
    assert aside.read_bytes() == damage


def test_a_damaged_file_is_named_by_whoever_finds_it(progress_home):
    progress_home.mkdir()
    progress.path().write_text("{")
    assert "progress.damaged-" in progress.record_try("a", False)


def test_a_reset_names_the_damaged_file_it_finds(progress_home):
    progress_home.mkdir()
    progress.path().write_text("{")
    assert "progress.damaged-" in progress.reset()
    assert progress.reset() == ""


def test_damaged_files_are_found_later(progress_home):
    assert progress.damaged_files() == []
    progress_home.mkdir()
    for damage in "{[":
        progress.path().write_text(damage)
        progress.record_try("a", True)
    assert [file.read_text() for file in progress.damaged_files()] == ["{", "["]


@pytest.fixture
def read_only(progress_home, monkeypatch):
    """Make the folder one that nothing can be written to, also for root."""
    progress_home.mkdir()
    (progress_home / "progress.lock").mkdir()  # cannot be opened as a file


def test_what_can_only_be_read_is_read_without_a_lock(progress_home, read_only):
    progress.path().write_text('{"schema": 1, "exercises": {"a": {"tries": 2}}}')
    assert progress.read().of("a").tries == 2
    with pytest.raises(ProgressError, match="cannot be saved"):
        progress.record_try("a", True)


def refuse_to_rename(monkeypatch):
    def forbidden(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", forbidden)


@pytest.mark.parametrize("has_a_lock", [False, True])
def test_damage_that_cannot_be_set_aside_is_named_and_left(progress_home, monkeypatch, request, has_a_lock):
    if has_a_lock:
        progress_home.mkdir()
        refuse_to_rename(monkeypatch)
    else:
        request.getfixturevalue("read_only")
    progress.path().write_text("garbage")
    found = progress.read()
    assert found.records == {}
    assert f"{progress.path()} is damaged" in found.message
    for act in every_act()[1:5]:
        with pytest.raises(ProgressError, match="cannot be saved"):
            act()
    assert progress.path().read_text() == "garbage"


def test_what_nests_too_deeply_to_be_written_is_left(monkeypatch):
    progress.record_try("a", True)
    before = progress.path().read_bytes()

    def too_deep(*_, **__):
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr("json.dumps", too_deep)
    with pytest.raises(ProgressError, match="cannot be saved: maximum recursion depth"):
        progress.record_try("b", True)
    assert progress.path().read_bytes() == before


def test_a_file_of_a_newer_version_is_left_alone(progress_home):
    progress_home.mkdir()
    newer = json.dumps({"schema": progress.SCHEMA + 1, "exercises": {"a": {"stars": 3}}})
    progress.path().write_text(newer)
    for act in (progress.read, lambda: progress.record_try("a", True), progress.reset):
        with pytest.raises(ProgressError, match="newer version"):
            act()
    assert progress.path().read_text() == newer


def test_what_others_keep_in_the_file_stays(progress_home):
    progress_home.mkdir()
    content = {"schema": 1, "exercises": {"a": asdict(Record(tries=2))}, "interview": {"due": [1, 2]}}
    progress.path().write_text(json.dumps(content))
    progress.record_try("b", True)
    progress.reset("a")
    kept = json.loads(progress.path().read_text())
    assert kept["interview"] == {"due": [1, 2]}
    assert set(kept["exercises"]) == {"b"}


def test_a_write_that_fails_leaves_the_old_file(monkeypatch):
    progress.record_try("a", True)
    before = progress.path().read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ProgressError, match="No space left"):
        progress.record_try("b", True)
    assert progress.path().read_bytes() == before


WRITER = """
import sys
from amp_lessons import progress
name, count = sys.argv[1], int(sys.argv[2])
for i in range(count):
    progress.record_try(f"{name}{i}", True)
    print(i, flush=True)
"""


def writer(name, count):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, name, str(count)], stdout=subprocess.PIPE, text=True, cwd=os.getcwd()
    )


def test_two_kernels_at_once_lose_nothing():
    processes = [writer(name, 40) for name in "ab"]
    for process in processes:
        assert process.wait(60) == 0
        process.stdout.close()
    assert set(progress.read().records) == {f"{name}{i}" for name in "ab" for i in range(40)}


def test_a_kill_at_any_moment_loses_nothing_that_was_acknowledged(progress_home):
    draw = random.Random(0)
    for turn in range(6):
        process = writer(f"turn{turn}-", 100_000)
        process.stdout.readline()  # it has begun to write
        time.sleep(draw.uniform(0.0, 0.08))
        process.send_signal(signal.SIGKILL)
        acknowledged = [0, *(int(line) for line in process.communicate()[0].splitlines() if line.strip())]
        found = progress.read()
        assert found.message == ""
        assert {f"turn{turn}-{i}" for i in acknowledged} <= set(found.records)
        assert {f"turn{t}-0" for t in range(turn)} <= set(found.records)
    assert not list(progress_home.glob("*damaged*"))


def test_a_lock_that_is_not_given_back_is_an_answer(monkeypatch):
    monkeypatch.setattr(progress, "_LOCK_TIMEOUT_S", 0.1)
    with progress._locked(), pytest.raises(ProgressError, match="another process"):
        progress.record_try("a", True)
