"""Programs that run beside a process end with it, and say why they did not get ready."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tools.programs import Program

FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(1, flush=True)
time.sleep(600)
"""
PARENT = """
import sys, time
from pathlib import Path
from tools.programs import Program
program = Program([sys.executable, "-c", "import time; time.sleep(600)"], Path(sys.argv[1]))
print(program.pid, flush=True)
time.sleep(600)
"""


def python(code):
    return [sys.executable, "-c", code]


def test_leaving_ends_it_with_all_that_it_has_started(tmp_path):
    with Program(python(FAMILY), tmp_path / "log") as program:
        program.wait_until(lambda: program.said().endswith("\n"), 60)
        child = int(program.said())
        assert program.wait(0) is None
    assert program.wait(0) == -signal.SIGTERM
    gone, _ = psutil.wait_procs([psutil.Process(child)] if psutil.pid_exists(child) else [], timeout=30)
    assert not psutil.pid_exists(child) or gone


def test_one_that_does_not_end_when_asked_is_made_to(tmp_path):
    with Program(python(STUBBORN), tmp_path / "log", end_s=0.1) as program:
        program.wait_until(lambda: bool(program.said()), 60)
    assert program.wait(0) == -signal.SIGKILL


def test_what_does_not_get_ready_says_its_last_words(tmp_path):
    log = tmp_path / "log"
    log.write_text("of an earlier one\n")
    with Program(python("import sys; sys.exit('no port')"), log) as program:
        with pytest.raises(RuntimeError, match="no port") as caught:
            program.wait_until(lambda: False, 60)
        assert "earlier" not in str(caught.value)
        assert program.wait(0) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_it_ends_when_its_parent_is_killed(tmp_path):
    root = Path(__file__).parents[2]
    command = [*python(PARENT), str(tmp_path / "log")]
    parent = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    deadline = time.monotonic() + 60
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
