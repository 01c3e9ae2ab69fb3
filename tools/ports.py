"""Ports of this machine that nothing listens on."""

from __future__ import annotations

import socket
from contextlib import ExitStack


def free_ports(count: int) -> list[int]:
    """Return that many different ports, each free until somebody else takes it."""
    with ExitStack() as probing:
        probes = [probing.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def free_port() -> int:
    """Return one such port."""
    return free_ports(1)[0]
