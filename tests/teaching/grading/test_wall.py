"""The wall: whatever runs behind it reaches nothing, takes no more than it may, and is gone afterwards."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest

from amp_lessons._base.worker import client as worker
from amp_lessons._base.worker.plain import Handle
from amp_lessons.teaching.grading.wall import EndedError, Limits, Wall, standing, walled_host

FORGES = """import os
for descriptor in range(3, 64):
    try:
        os.write(descriptor, b'forged' * 10)
    except OSError:
        pass
return 1"""
SMALL = Limits(memory_bytes=2**30, processes=16)

needs_a_wall = pytest.mark.skipif(not standing().program, reason="no wall works here, which grading says")


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """Start one host for all tests whose attempts leave it alive."""
    (tmp_path_factory.getbasetemp() / "secret").write_text("points")
    with walled_host(standing(), SMALL) as started:
        yield started


def answer(host, body: str, limit_s: float = 60.0, limits: Limits = SMALL):
    """Return what ``attempt()``, with this body, returns in a worker of this host, or how it fails."""
    source = "def attempt():\n" + "\n".join(f"    {line}" for line in body.splitlines())
    payload = {"source": source, "names": ["attempt"]}
    try:
        with worker.Worker(host, payload, worker.Limits(limit_s, limits.memory_bytes)) as attempt:
            return attempt.call(Handle(0))
    except worker.Raised as raised:
        return raised


@needs_a_wall
def test_nothing_is_to_be_seen_or_written(host, tmp_path_factory):
    secret = tmp_path_factory.getbasetemp() / "secret"
    assert secret.exists()
    said = answer(
        host,
        f"""import os, pathlib
there = [os.path.exists(path) for path in ({str(secret)!r}, "/root/.ssh", "/home", "/var", "/etc/passwd")]
import amp_lessons as here
writable = [path for path in ("/", "/usr", os.path.dirname(here.__file__)) if os.access(path, os.W_OK)]
return any(there), len(writable), len([name for name in os.listdir("/proc") if name.isdecimal()])""",
    )
    assert said == (False, 0, 2)  # its host and itself


@needs_a_wall
def test_there_is_no_network(host):
    said = answer(host, 'import socket\nsocket.create_connection(("93.184.216.34", 80), 3)')
    assert said.kinds[0] == "OSError"
    assert "unreachable" in said.text


@needs_a_wall
def test_it_kills_nobody(host):
    said = answer(
        host,
        """import os, signal
killed = []
for pid in (os.getppid(), -1, *range(2, 500)):
    try:
        if pid != os.getpid(): os.kill(pid, signal.SIGKILL); killed.append(pid)
    except OSError:
        pass
return killed""",
    )
    assert said == [1]  # its host, the first process there, which outlives that signal


@pytest.mark.thorough
def test_without_a_wall_limits_still_hold_and_the_output_says_so():
    with walled_host(Wall(""), SMALL) as host:
        home = answer(host, "import os\nreturn os.getcwd()")
    assert not Path(home).exists()
    hogs = "hog = []\nwhile True: hog.append(bytearray(2**24))"
    assert what_became_of(hogs, Wall("")) in ("ended", "raised")
    assert what_became_of("while True: pass", Wall("")) == "ended"
    assert "with the network" in str(Wall(""))


def what_became_of(body: str, wall: Wall | None = None) -> str:
    try:
        with walled_host(wall or standing(), SMALL) as host:
            return "raised" if isinstance(answer(host, body, limit_s=4.0), worker.Raised) else "answered"
    except (worker.Ended, EndedError):
        return "ended"


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "body",
    [
        "import os\nos._exit(0)",
        "import ctypes\nctypes.string_at(0)",
        "while True: pass",
        "import os\nwhile os.getpid(): os.write(2, b'x' * 4096)",
        FORGES,
        "hog = []\nwhile True: hog.append(bytearray(2**24))",
        "import os\nwhile True:\n    if os.fork() == 0: os.setsid()",
    ],
    ids=["ends", "crashes", "loops", "floods", "forges", "fills memory", "multiplies"],
)
def test_what_does_not_answer_ends(body):
    began = time.monotonic()
    assert what_became_of(body) in ("ended", "raised")
    assert time.monotonic() - began < 60


@needs_a_wall
def test_nothing_is_left_in_the_background(host):
    source = "import subprocess, sys\nsubprocess.Popen(['sleep', '918273'], start_new_session=True)\nreturn 1"
    assert answer(host, source) == 1
    assert not running("918273")


def running(word: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if word.encode() in path.read_bytes().split(b"\0"):
                return True
    return False
