"""Files stay whole, damaged ones stay at hand, and a lock is gone with its process."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from amp_lessons._base import files

HOLDER = """
import sys, time
from pathlib import Path
from amp_lessons._base import files
with files.acquired(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(100)
"""

WRITER = """
import sys
from pathlib import Path
from amp_lessons._base import files
print("begun", flush=True)
while True:
    for letter in "ab":
        files.replace(Path(sys.argv[1]), letter * 1_000_000)
"""


def process(code, path):
    """Start a process, and return it once it has printed a line."""
    started = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert started.stdout.readline()
    return started


def end(process):
    process.kill()
    process.communicate()


def test_whoever_is_killed_while_writing_leaves_a_whole_file(tmp_path):
    path = tmp_path / "file"
    files.replace(path, "old")
    for turn in range(5):
        writer = process(WRITER, path)
        time.sleep(0.01 * turn)
        end(writer)
        assert path.read_text() in ("old", "a" * 1_000_000, "b" * 1_000_000)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_what_cannot_be_written_leaves_the_old_file_alone(tmp_path, monkeypatch, call):
    path = tmp_path / "file"
    files.replace(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"):
        files.replace(path, "new")
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]


def test_what_is_set_aside_is_found_and_never_overwritten(tmp_path):
    path = tmp_path / "file.json"
    for text in ("first", "second"):
        path.write_text(text)
        assert files.set_aside(path).read_text() == text
    assert not path.exists()
    assert [file.read_text() for file in files.were_set_aside(path)] == ["first", "second"]


def test_a_lock_waits_and_goes_with_its_process(tmp_path):
    path = tmp_path / "lock"
    holder = process(HOLDER, path)
    try:
        with pytest.raises(files.InUseError):
            files.acquired(path, 0.1)
    finally:
        end(holder)
    with files.acquired(path):
        pass
    with files.acquired(path):
        pass


def test_a_lock_that_cannot_be_opened_is_an_error(tmp_path):
    (tmp_path / "lock").mkdir()
    with pytest.raises(OSError, match="lock") as refused:
        files.acquired(tmp_path / "lock")
    assert not isinstance(refused.value, files.InUseError)
