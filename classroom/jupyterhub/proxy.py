"""The proxy that stands before the hub and all servers: Node's where it is installed, else the Python one.

Node's ``configurable-http-proxy`` is the one that JupyterHub is developed with, and the better choice for a
class. The Python one is installed by pip. As it comes it forwards ten requests at a time and gives up after
twenty seconds, so that one learner whose server hangs could stop everybody: ``main`` mends that.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

NAME = "configurable-http-proxy"


def command() -> tuple[list[str], str]:
    """Return how to start the proxy, and its name in words."""
    if node := _nodes():
        return [node], "Node's configurable-http-proxy"
    return [sys.executable, "-m", "classroom.jupyterhub.proxy"], "the Python configurable-http-proxy"


def _nodes() -> str | None:
    """Find Node's among the programs of this name: it says what runs it in its first line."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = Path(folder, NAME)
        if path.is_file():
            with path.open("rb") as file:
                if b"node" in file.readline():
                    return str(path)
    return None


def main() -> None:
    """Run the Python proxy with room for a class."""
    from configurable_http_proxy.cli import main as run
    from tornado.httpclient import AsyncHTTPClient

    AsyncHTTPClient.configure(
        "tornado.simple_httpclient.SimpleAsyncHTTPClient",
        max_clients=2000,
        max_buffer_size=512 * 2**20,
        max_body_size=512 * 2**20,
        defaults={"request_timeout": 3600, "connect_timeout": 60},
    )
    run()


if __name__ == "__main__":
    main()
