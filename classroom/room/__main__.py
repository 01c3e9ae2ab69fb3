"""Serve the room; the hub starts this, and says where to listen. It ends when the hub does."""

from __future__ import annotations

import asyncio
import os
import pwd
import sys
from urllib.parse import urlsplit

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from classroom.room.app import make_app
from classroom.room.kernels import MOST_BYTES
from classroom.room.state import Room

_BIND_TRIES_S = 10  # the room of a hub that was killed needs a moment to notice
_LOOK_S = 0.5


async def serve(url: str, prefix: str, hub_pid: int) -> None:
    """Serve until the hub, which has started this process, is gone."""
    where = urlsplit(url)
    app = make_app(Room(), prefix)
    server = HTTPServer(app, max_body_size=MOST_BYTES, idle_connection_timeout=60, xheaders=True)
    server.add_sockets(await _bound(where.hostname or "127.0.0.1", where.port or 80))
    if os.geteuid() == 0:
        become_nobody()
    while os.getppid() == hub_pid:
        await asyncio.sleep(_LOOK_S)


def become_nobody() -> None:
    """Give up root's rights, which a hub of root's gives to its services: a room has no use for them."""
    nobody = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)


async def _bound(host: str, port: int) -> list:
    for _ in range(int(_BIND_TRIES_S / _LOOK_S)):
        try:
            return bind_sockets(port, host)
        except OSError:
            await asyncio.sleep(_LOOK_S)
    return bind_sockets(port, host)


if __name__ == "__main__":
    try:
        url, prefix = os.environ["JUPYTERHUB_SERVICE_URL"], os.environ["JUPYTERHUB_SERVICE_PREFIX"]
        hub_pid = int(os.environ["AMP_LESSONS_HUB_PID"])
    except KeyError:
        sys.exit("The live room is started by a JupyterHub: see classroom/room/README.md.")
    asyncio.run(serve(url, prefix, hub_pid))
