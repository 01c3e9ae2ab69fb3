"""Which file results go to: one for each setup, in a folder of one's own."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import fields, replace
from pathlib import Path

import pytest

from amp_lessons.course import progress
from amp_lessons.course.bench import folders
from amp_lessons.course.bench.folders import claimed, file_name, own_folder, path_for, recordings
from amp_lessons.course.bench.results import Setup, UnwritableResultsError, read, write
from tests.course.bench.test_results import SETUP, _recording, _result

ON_CPU = replace(SETUP, device="CPU", device_type="cpu")


def _changed(name):
    """Return a setup that differs in one field."""
    value = getattr(SETUP, name)
    return replace(SETUP, **{name: value + 1 if isinstance(value, int) else f"{value}b"})


def _write(folder, recording):
    path = path_for(folder, recording.setup, recording.preset)
    write(path, recording)
    return path


def _at(moment, precision="fp32"):
    return replace(_result(precision), measured_at=f"{moment}:00:00+00:00")


def refused(*_, **__):
    raise PermissionError(13, "Permission denied")


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """Make the package look as if it had no recordings yet."""
    monkeypatch.setattr(folders, "__file__", str(tmp_path / "bench" / "folders.py"))
    return tmp_path / "bench" / "recordings"


def test_gpus_come_first_then_the_one_that_was_measured_last(tmp_path):
    old = _recording(_at("2025-01-01T00"))
    new = _recording(_at("2026-03-01T12"), setup=replace(SETUP, torch="2.13.0"))
    gone_on_with = _recording(_at("2026-03-01T09"), _at("2026-03-01T18", "fp16"), setup=_changed("threads"))
    on_cpu = _recording(_at("2027-01-01T00"), setup=ON_CPU)
    without_results = _recording(setup=_changed("build"))
    for recording in (old, on_cpu, new, without_results, gone_on_with):
        _write(tmp_path, recording)
    assert recordings(tmp_path) == (gone_on_with, new, old, on_cpu)
    assert recordings(tmp_path / "none") == ()


def test_ones_own_results_lie_beside_the_progress_and_come_before_those_of_the_course(shipped, monkeypatch):
    assert own_folder().parent == progress.home()
    assert folders.shipped_folder() == shipped
    assert recordings() == ()
    own, of_the_course = _recording(_result(ms=20.0), setup=ON_CPU), _recording(_result())
    _write(own_folder(), own)
    assert recordings() == (own,)
    _write(shipped, of_the_course)
    assert recordings() == (own, of_the_course)
    monkeypatch.setenv("AMP_LESSONS_HOME", "relative")  # where nothing of one's own can be kept
    assert recordings() == (of_the_course,)


def test_a_folder_that_may_not_be_searched_has_nothing_to_show(shipped, monkeypatch):
    monkeypatch.setattr(Path, "glob", refused)
    assert recordings() == ()


@pytest.mark.parametrize("name", [field.name for field in fields(Setup)])
def test_another_setup_is_another_file(tmp_path, name):
    first = _write(tmp_path, _recording(_result()))
    before = first.read_bytes()
    second = _write(tmp_path, _recording(_result(ms=20.0), setup=_changed(name)))
    assert second != first
    assert first.read_bytes() == before
    assert path_for(tmp_path, SETUP, "full") == first
    assert path_for(tmp_path, _changed(name), "full") == second


def test_files_are_named_after_machine_version_and_size_and_found_whatever_they_are_called(tmp_path):
    assert file_name(SETUP, "full") == "nvidia-h200-torch-2.11.0-cu130-full.json"
    assert file_name(SETUP, "full", 2) == "nvidia-h200-torch-2.11.0-cu130-full-2.json"
    write(tmp_path / "renamed.json", _recording(_result()))
    assert path_for(tmp_path, SETUP, "full") == tmp_path / "renamed.json"
    unreadable = tmp_path / file_name(SETUP, "small")
    unreadable.write_text("{")
    assert path_for(tmp_path, SETUP, "small") == unreadable, "it is not counted as another setup's"


def test_committed_results_are_readable_and_named_as_they_would_be_written():
    shipped = folders.shipped_folder()
    for path in shipped.glob("*.json"):
        recording = read(path)
        assert path.stem.startswith(Path(file_name(recording.setup, recording.preset)).stem)
        assert path == path_for(shipped, recording.setup, recording.preset)
        assert recording.running is None


def test_two_runs_do_not_share_a_folder_but_where_there_are_no_locks(tmp_path, monkeypatch):
    with claimed(tmp_path), pytest.raises(folders.FolderInUseError, match=str(tmp_path)), claimed(tmp_path):
        pass

    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(pytest.importorskip("fcntl"), "flock", no_locks)
    with claimed(tmp_path), claimed(tmp_path):
        pass


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("reason", ["it is not a folder", "Permission denied"])
def test_a_folder_that_cannot_be_written_to_is_named(tmp_path, monkeypatch, below, reason):
    folder = tmp_path / "results" / "below" if below else tmp_path / "results"
    if reason == "Permission denied":
        monkeypatch.setattr(os, "open", refused)
    else:
        (tmp_path / "results").write_text("mine")
    with pytest.raises(UnwritableResultsError) as raised, claimed(folder):
        pass
    assert str(raised.value) == f"Results cannot be kept in {folder}: {reason}."


def test_the_file_that_an_older_version_wrote_is_gone_on_with(tmp_path):
    (path,) = folders.shipped_folder().glob("amd-epyc-torch-2.13.0-cpu-small.json")
    recording, copied = read(path), tmp_path / path.name
    copied.write_bytes(path.read_bytes())
    assert path_for(tmp_path, recording.setup, "small") == copied
    write(copied, recording)
    assert json.loads(copied.read_text()) == json.loads(path.read_text())
    assert recordings(tmp_path) == (recording,)
