"""Serve a class: the proxy, the hub, and where this machine can the process that kernels are forked from.

The proxy does not belong to the hub: when the hub is killed, learners' servers and the ways to them go on,
and the hub that is started in its place finds them running.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
import urllib.request
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path

from classroom.jupyterhub import children, proxy
from classroom.jupyterhub.children import Child
from classroom.jupyterhub.spawner import FORKED
from classroom.jupyterhub.state import Folder, Ports

CHECKOUT = Path(__file__).resolve().parents[2]


def processes(folder: Folder, ports: Ports, config: Path, bind: str, cgroup: str, add: str) -> list[Child]:
    """Return the hub of a folder, its proxy, and what its kernels are forked from."""
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
        "AMP_CLASSROOM_KERNELS": str(folder.kernels) if kernels_are_forked() else "",
    }
    public = ["--ip", bind, "--port", str(ports.public)]
    api = ["--api-ip", "127.0.0.1", "--api-port", str(ports.proxy_api)]
    the_proxy = [*proxy.command()[0], *public, *api, "--error-target", f"{hub_url}/hub/error"]
    the_hub = [sys.executable, "-m", "jupyterhub", "-f", str(config)]
    found = [
        Child("hub", the_hub, environment, folder.hub / "hub.log"),
        Child("proxy", the_proxy, environment, folder.hub / "proxy.log"),
    ]
    if kernels_are_forked():
        parent = [sys.executable, "-m", "amp_lessons.kernels", "--listen", str(folder.kernels)]
        found.append(Child("kernels' parent", parent, environment, folder.hub / "kernels.log", needed=False))
    return found


def kernels_are_forked() -> bool:
    """Say whether one process, root's, can serve all accounts with kernels that share what they import."""
    offered = entry_points(group="jupyter_client.kernel_provisioners").names
    there = (
        importlib.util.find_spec("amp_lessons.kernels") is not None
    )  # another checkout may have offered it
    return os.geteuid() == 0 and FORKED in offered and there


def serve(folder: Folder, ports: Ports, own: list[Child], on_ready: dict[str, object]) -> None:
    """Keep all up until a signal asks for the end; ``running.json`` says where, once the hub answers.

    SIGHUP starts the hub again, with what its configuration says by then; learners' servers go on.
    """
    children.adopt_orphans()
    asked, hub = _Asked(), own[0]
    ready, answering = folder.hub / "running.json", False
    try:
        while not asked.to_end:
            if asked.take_new_hub():
                hub.kill()
            if sum(child.keep_up() for child in own):
                ready.unlink(missing_ok=True)
                answering = False
            if not answering and (answering := _answers(ports)):
                pids = {child.name: child.process.pid for child in own if child.process}
                folder.write("running.json", {**on_ready, "pids": pids})
            children.take_in_orphans(own)
            time.sleep(0.1)
    finally:
        ready.unlink(missing_ok=True)
        hub.end(timeout_s=40)  # it stops learners' servers first, and they their kernels
        children.end_all_below()


class _Asked:
    """What signals have asked for."""

    def __init__(self) -> None:
        self.to_end = self._for_a_new_hub = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)
        signal.signal(signal.SIGHUP, self._new_hub)

    def take_new_hub(self) -> bool:
        """Say whether a new hub was asked for since this was last asked."""
        asked, self._for_a_new_hub = self._for_a_new_hub, False
        return asked

    def _end(self, *_: object) -> None:
        self.to_end = True

    def _new_hub(self, *_: object) -> None:
        self._for_a_new_hub = True


def _answers(ports: Ports) -> bool:
    """Ask the hub through the proxy."""
    with suppress(OSError):
        address = f"http://127.0.0.1:{ports.public}/hub/health"
        with urllib.request.urlopen(address, timeout=2) as answer:
            return bool(answer.status == 200)
    return False
