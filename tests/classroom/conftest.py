"""A hub with three made-up learners and their teacher, started once for all tests of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from classroom.jupyterhub.children import end_with_the_parent
from tests.classroom.visitor import Visitor, wait_until

ROOT = Path(__file__).parents[2]


@dataclass
class Demo:
    """A hub that runs: the command, its folder, and what it says of itself."""

    command: subprocess.Popen
    state: Path

    @property
    def running(self):
        return json.loads((self.state / "hub" / "running.json").read_text("utf-8"))

    def hub(self):
        """Return the process of the hub that answers, None while none does."""
        try:
            return self.running["pids"]["hub"]
        except FileNotFoundError:
            return None

    def is_up(self):
        if self.command.poll() is not None:
            raise AssertionError(f"the hub has ended: {self.said()}")
        return (self.state / "hub" / "running.json").exists()

    def said(self):
        logs = [self.state / "said", self.state / "hub" / "hub.log"]
        return "\n".join(log.read_text("utf-8")[-3000:] for log in logs if log.exists())

    def home(self, name):
        return self.state / "homes" / name

    def visitor(self, name):
        found = Visitor(self.running["url"], name, self.running["passwords"][name])
        assert found.log_in().status_code == 200
        return found

    def left(self):
        """List what runs of this hub: whatever names its folder in its environment or its command."""
        mark = str(self.state).encode()
        return [pid for pid in psutil.pids() if mark in _read(f"/proc/{pid}/environ")]


def _read(path):
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def started(*options, before=()):
    """Start the command, by the command ``before`` it if there is one, and wait until the hub answers."""
    state = Path(tempfile.mkdtemp(prefix="amp-test-", dir="/tmp"))
    with (state / "said").open("wb") as said:
        command = subprocess.Popen(
            [*before, sys.executable, "-m", "classroom.jupyterhub", "--state", str(state), *options],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=said,
            stderr=said,
            preexec_fn=end_with_the_parent,
        )
    demo = Demo(command, state)
    try:
        wait_until(demo.is_up, "the hub")
    except BaseException:
        ended(demo)
        raise
    return demo


def ended(demo):
    """End the command in order, and see that nothing of it is left; then remove its folder."""
    demo.command.terminate()
    demo.command.wait(120)
    try:
        assert not demo.left()
    finally:
        for pid in demo.left():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(demo.state)


@pytest.fixture(scope="session")
def demo():
    pytest.importorskip("jupyterhub", reason="needs the extra 'classroom'")
    pytest.importorskip("configurable_http_proxy", reason="needs the extra 'classroom'")
    demo = started("--demo", "3")
    yield demo
    ended(demo)


@pytest.fixture(scope="session")
def people(demo):
    """Return the three learners and the teacher by name, each with a server that runs and one kernel."""
    found = [demo.visitor(name) for name in demo.running["passwords"]]
    with ThreadPoolExecutor(len(found)) as pool:
        list(pool.map(Visitor.start_server, found))
        kernels = list(pool.map(Visitor.kernel, found))
    for visitor, kernel in zip(found, kernels, strict=True):
        visitor.first_kernel = kernel
    return {visitor.name: visitor for visitor in found}
