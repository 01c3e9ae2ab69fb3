"""Which file results go to: one for each setup, in a folder of one's own."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from amp_lessons.course import progress
from amp_lessons.course.bench import folders
from amp_lessons.course.bench.folders import (
    FolderInUseError,
    claimed,
    file_name,
    own_folder,
    path_for,
    recordings,
    shipped_folder,
)
from amp_lessons.course.bench.results import Recording, Setup, UnwritableResultsError, read, write
from tests.course.bench.test_results import SETUP, _recording, _result


def _changed(name: str) -> Setup:
    """Return a setup that differs in one field."""
    value = getattr(SETUP, name)
    return replace(SETUP, **{name: value + 1 if isinstance(value, int) else f"{value}b"})


def _write(folder: Path, recording: Recording) -> Path:
    path = path_for(folder, recording.setup, recording.preset)
    write(path, recording)
    return path


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the package look as if it had no recordings yet."""
    monkeypatch.setattr(folders, "__file__", str(tmp_path / "bench" / "folders.py"))
    return tmp_path / "bench" / "recordings"


def test_gpus_come_first_then_the_latest(tmp_path: Path) -> None:
    cpu = replace(SETUP, device="CPU", device_type="cpu")
    old = _recording(replace(_result(), measured_at="2025-01-01T00:00:00+00:00"))
    new = _recording(_result(), setup=replace(SETUP, torch="2.13.0"))
    on_cpu = _recording(replace(_result(), measured_at="2027-01-01T00:00:00+00:00"), setup=cpu)
    for recording in (old, on_cpu, new):
        _write(tmp_path, recording)
    assert recordings(tmp_path) == (new, old, on_cpu)
    assert recordings(tmp_path / "none") == ()


def test_the_latest_is_the_one_that_was_measured_last(tmp_path: Path) -> None:
    morning, noon = (
        replace(_result(), measured_at=f"2026-03-01T{hour}:00:00+00:00") for hour in ("09", "12")
    )
    evening = replace(_result("fp16"), measured_at="2026-03-01T18:00:00+00:00")
    once = _recording(noon)
    gone_on_with = _recording(morning, evening, setup=_changed("threads"))
    for recording in (once, gone_on_with):
        _write(tmp_path, recording)
    assert recordings(tmp_path) == (gone_on_with, once)


def test_ones_own_results_come_before_those_of_the_course(shipped: Path) -> None:
    own = _recording(_result(ms=20.0), setup=replace(SETUP, device="CPU", device_type="cpu"))
    _write(shipped, _recording(_result()))
    _write(own_folder(), own)
    assert recordings() == (own, _recording(_result()))


def test_without_a_repository_there_are_only_ones_own(shipped: Path) -> None:
    assert shipped_folder() == shipped
    assert recordings() == ()
    _write(own_folder(), _recording(_result()))
    assert recordings() == (_recording(_result()),)


def test_own_results_lie_beside_the_progress() -> None:
    assert own_folder().parent == progress.home()


def test_what_the_course_comes_with_is_shown_where_nothing_of_ones_own_can_be_kept(
    shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> Path:
        raise progress.ProgressError("a file, and has to be a folder")

    _write(shipped, _recording(_result()))
    monkeypatch.setattr(progress, "home", refused)
    assert recordings() == (_recording(_result()),)


def test_a_folder_that_may_not_be_searched_has_nothing_to_show(
    shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "glob", refused)
    assert recordings() == ()


def test_a_file_without_results_is_passed_over(tmp_path: Path) -> None:
    _write(tmp_path, _recording())
    assert recordings(tmp_path) == ()


def test_files_are_named_after_machine_version_and_size() -> None:
    assert file_name(SETUP, "full") == "nvidia-h200-torch-2.11.0-cu130-full.json"
    assert file_name(SETUP, "full", 2) == "nvidia-h200-torch-2.11.0-cu130-full-2.json"


@pytest.mark.parametrize("name", [field.name for field in fields(Setup)])
def test_another_setup_is_another_file(tmp_path: Path, name: str) -> None:
    first = _write(tmp_path, _recording(_result()))
    before = first.read_bytes()
    second = _write(tmp_path, _recording(_result(ms=20.0), setup=_changed(name)))
    assert second != first
    assert first.read_bytes() == before
    assert path_for(tmp_path, SETUP, "full") == first
    assert path_for(tmp_path, _changed(name), "full") == second


def test_a_file_is_found_whatever_it_is_called(tmp_path: Path) -> None:
    write(tmp_path / "renamed.json", _recording(_result()))
    assert path_for(tmp_path, SETUP, "full") == tmp_path / "renamed.json"
    assert path_for(tmp_path, SETUP, "small") == tmp_path / file_name(SETUP, "small")


def test_an_unreadable_file_is_not_counted_as_another_setups(tmp_path: Path) -> None:
    (tmp_path / file_name(SETUP, "full")).write_text("{")
    assert path_for(tmp_path, SETUP, "full") == tmp_path / file_name(SETUP, "full")


def test_committed_results_are_readable_and_named_as_they_would_be_written() -> None:
    for path in shipped_folder().glob("*.json"):
        recording = read(path)
        assert path.stem.startswith(Path(file_name(recording.setup, recording.preset)).stem)
        assert path == path_for(shipped_folder(), recording.setup, recording.preset)
        assert recording.running is None


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    with claimed(tmp_path), pytest.raises(FolderInUseError, match=str(tmp_path)), claimed(tmp_path):
        pass
    with claimed(tmp_path):
        pass


def test_a_file_system_without_locks_is_written_to_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(pytest.importorskip("fcntl"), "flock", no_locks)
    with claimed(tmp_path):
        pass


def _is_a_file(folder: Path, _: Any) -> None:
    folder.write_text("mine")


def _is_below_a_file(folder: Path, _: Any) -> None:
    folder.parent.write_text("mine")


def _may_not_be_written_to(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)


@pytest.mark.parametrize(
    ("arrange", "reason"),
    [
        (_is_a_file, "it is not a folder"),
        (_is_below_a_file, "it is not a folder"),
        (_may_not_be_written_to, "Permission denied"),
    ],
)
def test_a_folder_that_cannot_be_written_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrange: Any, reason: str
) -> None:
    folder = tmp_path / "parent" / "results"
    if arrange is not _is_below_a_file:
        folder.parent.mkdir()
    arrange(folder, monkeypatch)
    with pytest.raises(UnwritableResultsError) as refused, claimed(folder):
        pass
    assert str(refused.value) == f"Results cannot be kept in {folder}: {reason}."


def test_the_file_that_an_older_version_wrote_is_gone_on_with(tmp_path: Path) -> None:
    (path,) = shipped_folder().glob("amd-epyc-torch-2.13.0-cpu-small.json")
    recording = read(path)
    (tmp_path / path.name).write_bytes(path.read_bytes())
    assert path_for(tmp_path, recording.setup, "small") == tmp_path / path.name
    write(tmp_path / path.name, recording)
    assert json.loads((tmp_path / path.name).read_text()) == json.loads(path.read_text())
    assert folders.recordings(tmp_path) == (recording,)
