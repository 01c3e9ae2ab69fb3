"""Needs of a machine on which JupyterLab is opened: root, ports, screens, ssh, containers, homes."""

from __future__ import annotations

import getpass
import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from amp_lessons._base import files

PORT = 8888  # Jupyter's own
NO_HOME = "Your home folder cannot be written to: JupyterLab's settings are not kept."
_PORTS_TO_TRY = 50
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
_MARKS_OF_CONTAINERS = ("/.dockerenv", "/run/.containerenv")


@dataclass(frozen=True)
class Surroundings:
    """Where the course is about to be opened.

    ``ssh`` is what the server says of the connection: the client's address and port, the server's address and
    port. ``in_hub`` says that a JupyterHub already serves this learner.
    """

    root: bool = False
    ssh: tuple[str, ...] = ()
    container: bool = False
    screen: bool = True
    in_hub: bool = False
    home_writable: bool = True
    user: str = "you"


@dataclass(frozen=True)
class Start:
    """How to start JupyterLab: its options, what to set before, and what to tell the learner."""

    options: tuple[str, ...]
    sentences: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def look() -> Surroundings:
    """Inspect this machine."""
    environment = os.environ
    return Surroundings(
        root=hasattr(os, "geteuid") and os.geteuid() == 0,
        ssh=tuple(environment.get("SSH_CONNECTION", "").split()),
        container=any(Path(mark).exists() for mark in _MARKS_OF_CONTAINERS)
        or "KUBERNETES_SERVICE_HOST" in environment,
        screen=sys.platform != "linux" or any(map(environment.get, ("DISPLAY", "WAYLAND_DISPLAY"))),
        in_hub="JUPYTERHUB_SERVICE_PREFIX" in environment,
        home_writable=files.may_write_in(files.nearest_there(Path("~").expanduser())),
        user=_user(),
    )


def start(here: Surroundings, port: int, ip: str, *, no_browser: bool) -> Start:
    """Describe how JupyterLab starts here, on ``port`` or the next that is free.

    Raises OSError if none of fifty is free.
    """
    free = free_port(port)
    options, sentences, environment = [f"--port={free}", f"--ServerApp.ip={ip}"], [], {}
    if free != port:
        sentences.append(
            f"Port {port} is taken, perhaps by another window of the course: this one uses {free}."
        )
    if here.root:
        options.append("--allow-root")
        sentences.append(root_explained(ip))
    if no_browser or here.ssh or not here.screen:
        options.append("--no-browser")
    sentences.extend(way_in(here, free, ip))
    if not here.home_writable:
        environment = _homes_in(Path(tempfile.mkdtemp(prefix="amp-lessons-jupyter-")))
        sentences.append(NO_HOME)
    return Start(tuple(options), tuple(sentences), environment)


def free_port(wanted: int) -> int:
    """Return the first port from ``wanted`` on that nothing listens on. Raises OSError if fifty are taken."""
    for port in range(wanted, wanted + _PORTS_TO_TRY):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # or one closed just now is not free
            try:
                probe.bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                continue
            return port
    raise OSError(f"no port from {wanted} to {wanted + _PORTS_TO_TRY - 1} is free; name another: --port=N")


def root_explained(ip: str) -> str:
    """Explain why JupyterLab, which refuses root, starts for root here; or what is unsafe about it."""
    if ip in _THIS_MACHINE:
        return (
            "You are root, as usual in containers and on rented machines. JupyterLab refuses root, because "
            "whoever reaches it could do anything here. The course starts it all the same (--allow-root): "
            "it answers on localhost alone and asks for a token."
        )
    return (
        f"You are root, and --ip={ip} lets other machines in: whoever has the token can do anything here. "
        "Without --ip only this machine gets in; an ssh tunnel brings you there from elsewhere."
    )


def way_in(here: Surroundings, port: int, ip: str = "localhost") -> list[str]:
    """Describe how to get at a page that no browser of this machine will open; nothing where one will."""
    if here.ssh and ip in _THIS_MACHINE:
        return [
            f"You are here over ssh. On your own machine, run `{tunnel(here, port)}`, leave it running, and "
            f"open there the address that begins with http://localhost:{port}."
        ]
    if here.container and ip in _THIS_MACHINE:
        return [
            "This is a container: its localhost cannot be reached from outside. If no address opens, run it "
            f"with `docker run -p 127.0.0.1:{port}:{port} ...` and --ip=0.0.0.0."
        ]
    return []


def tunnel(here: Surroundings, port: int) -> str:
    """Return the command that brings this machine's ``port`` to the one that the learner sits at."""
    _, _, address, ssh_port = here.ssh if len(here.ssh) == 4 else ("", "", "this-machine", "22")
    other_port = "" if ssh_port == "22" else f"-p {ssh_port} "
    return f"ssh -N -L {port}:localhost:{port} {other_port}{here.user}@{address}"


def _homes_in(folder: Path) -> dict[str, str]:
    """Return what to set so that Jupyter and IPython write nothing outside of ``folder``."""
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    lab = ("JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")
    return {name: str(folder / name.lower()) for name in (*names, *lab)}


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run as a number that nobody has named
        return "you"
