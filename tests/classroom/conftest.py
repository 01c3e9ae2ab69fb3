"""The hub for trying, started once for all tests of it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import requests

from tools.ports import free_port
from tools.programs import Program

ROOT = Path(__file__).parents[2]
PASSWORD = "a-password-of-learners"


@dataclass
class Demo:
    """A hub that runs."""

    program: Program
    url: str
    password: str = PASSWORD  # of learners

    def servers(self):
        """List the processes of the hub, and of what it has started."""
        return psutil.Process(self.program.pid).children(recursive=True)


def answers(url):
    try:
        return requests.get(f"{url}/hub/health", timeout=2).status_code == 200
    except requests.RequestException:
        return False


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    pytest.importorskip("jupyterhub", reason="needs the extra 'classroom'")
    pytest.importorskip("configurable_http_proxy", reason="needs the extra 'classroom'")
    port = free_port()
    env = {**os.environ, "AMP_DEMO_PASSWORD": PASSWORD, "AMP_DEMO_PORT": str(port), "PYTHONPATH": str(ROOT)}
    folder = tmp_path_factory.mktemp("demo")
    config = ROOT / "classroom" / "jupyterhub" / "demo_config.py"
    command = [sys.executable, "-m", "jupyterhub", "-f", config]
    with Program(command, folder / "log", cwd=folder, env=env, end_s=60.0) as program:
        demo = Demo(program, f"http://127.0.0.1:{port}")
        program.wait_until(lambda: answers(demo.url), 120)
        yield demo
        family = demo.servers()
    _, left = psutil.wait_procs(family, timeout=30)
    assert not left, "nothing of a hub is left when it has ended"
