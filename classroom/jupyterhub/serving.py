"""Two processes, the proxy and the hub: each started again when it ends, and nothing left of them at the end.

The proxy does not belong to the hub: when the hub is killed, learners' servers and the ways to them go on,
and the hub that is started in its place finds them running. This process takes in whatever is orphaned
meanwhile (PR_SET_CHILD_SUBREAPER), so that at the end it can end it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from classroom.jupyterhub import proxy
from classroom.jupyterhub.state import Folder, Ports

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIBC = ctypes.CDLL(None, use_errno=True)
_MOST_STARTS_A_MINUTE = 5


class EndedError(Exception):
    """The hub or the proxy does not stay up; the message says which, and where to look."""


@dataclass
class Child:
    """The hub or the proxy: what starts it, and how often that was needed lately."""

    name: str
    command: list[str]
    environment: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    starts: list[float] = field(default_factory=list)

    def keep_up(self) -> bool:
        """Start it if it does not run, and say whether that was so. Raises EndedError if it never lasts."""
        if self.process is not None and self.process.poll() is None:
            return False
        self.starts = [each for each in self.starts if time.monotonic() - each < 60] + [time.monotonic()]
        if len(self.starts) > _MOST_STARTS_A_MINUTE:
            raise EndedError(
                f"the {self.name} ends as soon as it is started; its last lines are in {self.log}"
            )
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.log.parent,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_ends_with_its_parent,
                start_new_session=True,  # Ctrl-C is for this process, which then ends them in order
            )
        return True


def children(folder: Folder, ports: Ports, config: Path, bind: str, cgroup: str, add: str) -> list[Child]:
    """Return the proxy and the hub of a folder."""
    hub_url, api_url = f"http://127.0.0.1:{ports.hub}", f"http://127.0.0.1:{ports.proxy_api}"
    environment = {
        **os.environ,
        "PYTHONPATH": str(CHECKOUT),
        "CONFIGPROXY_AUTH_TOKEN": folder.proxy_token(),
        "AMP_CLASSROOM_STATE": str(folder.path),
        "AMP_CLASSROOM_URL": f"http://{bind}:{ports.public}",
        "AMP_CLASSROOM_HUB_URL": hub_url,
        "AMP_CLASSROOM_PROXY_API": api_url,
        "AMP_CLASSROOM_CGROUP": cgroup,
        "AMP_CLASSROOM_ADD": add,
    }
    public = ["--ip", bind, "--port", str(ports.public)]
    api = ["--api-ip", "127.0.0.1", "--api-port", str(ports.proxy_api)]
    the_proxy = [*proxy.command()[0], *public, *api, "--error-target", f"{hub_url}/hub/error"]
    the_hub = [sys.executable, "-m", "jupyterhub", "-f", str(config)]
    return [
        Child("proxy", the_proxy, environment, folder.hub / "proxy.log"),
        Child("hub", the_hub, environment, folder.hub / "hub.log"),
    ]


def serve(folder: Folder, ports: Ports, both: list[Child], on_ready: dict[str, object]) -> None:
    """Keep both up until a signal asks for the end; ``running.json`` says where, each time the hub answers.

    SIGHUP starts the hub again, with what its configuration says by then; learners' servers go on.
    """
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    asked = _Asked()
    ready = folder.hub / "running.json"
    answering = False
    try:
        while not asked.to_end:
            if asked.for_a_new_hub and both[1].process is not None:
                asked.for_a_new_hub = False
                both[1].process.kill()
                both[1].process.wait()
            if sum(child.keep_up() for child in both):
                ready.unlink(missing_ok=True)
                answering = False
            if not answering and (answering := _answers(ports)):
                pids = {child.name: child.process.pid for child in both if child.process}
                folder.write("running.json", {**on_ready, "pids": pids})
            _take_in_orphans(both)
            time.sleep(0.1)
    finally:
        ready.unlink(missing_ok=True)
        _end(both, 1, timeout_s=40)  # the hub stops learners' servers first, and they their kernels
        _end(both, 0, timeout_s=5)
        _end_all_below()


class _Asked:
    """What signals have asked for."""

    def __init__(self) -> None:
        self.to_end = self.for_a_new_hub = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)
        signal.signal(signal.SIGHUP, self._new_hub)

    def _end(self, *_: object) -> None:
        self.to_end = True

    def _new_hub(self, *_: object) -> None:
        self.for_a_new_hub = True


def _ends_with_its_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _answers(ports: Ports) -> bool:
    """Ask the hub through the proxy."""
    with suppress(OSError):
        address = f"http://127.0.0.1:{ports.public}/hub/health"
        with urllib.request.urlopen(address, timeout=2) as answer:
            return bool(answer.status == 200)
    return False


def _end(both: list[Child], which: int, timeout_s: float) -> None:
    """Ask one to end and wait for it, taking in orphans meanwhile: the hub waits for those it has adopted."""
    process, until = both[which].process, time.monotonic() + timeout_s
    if process is not None:
        process.terminate()
        while process.poll() is None and time.monotonic() < until:
            _take_in_orphans(both)
            time.sleep(0.05)


def _take_in_orphans(both: list[Child]) -> None:
    """Let learners' servers that have ended, and whose hub is gone, be gone: else they would look alive."""
    own = {child.process.pid for child in both if child.process}
    for each in psutil.Process().children():
        with suppress(ChildProcessError, psutil.NoSuchProcess):
            if each.pid not in own and each.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(each.pid, os.WNOHANG)


def _end_all_below(timeout_s: float = 10.0) -> None:
    """End whatever is left, until nothing is: what is killed may leave orphans, which come to us."""
    until = time.monotonic() + timeout_s
    while (left := psutil.Process().children(recursive=True)) and time.monotonic() < until:
        for each in left:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.05)
