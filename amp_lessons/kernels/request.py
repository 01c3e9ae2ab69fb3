"""What a server asks a parent for, and what it hears: one message with three open files, then JSON lines."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

_LENGTH = struct.Struct("!I")
_LONGEST = 2**22  # an environment and a command line are shorter: the system itself allows 2 MiB
_STANDARD_STREAMS = 3


@dataclass(frozen=True)
class Request:
    """A kernel to start: ``python`` with these arguments, in this environment and folder."""

    python: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str


def send(connection: socket.socket, request: Request, streams: tuple[int, int, int]) -> None:
    """Send a request with the standard streams that the kernel is to have. Raises OSError."""
    content = json.dumps(asdict(request)).encode()
    with suppress(BrokenPipeError, ConnectionResetError):  # refused unread: the reason can be heard
        socket.send_fds(connection, [_LENGTH.pack(len(content))], list(streams))
        connection.sendall(content)


def receive(connection: socket.socket) -> tuple[Request, list[int]]:
    """Receive what ``send`` sent. Raises ValueError or TypeError for anything else, and OSError."""
    head, streams, _, _ = socket.recv_fds(connection, _LENGTH.size, _STANDARD_STREAMS)
    head += _received(connection, _LENGTH.size - len(head))
    (length,) = _LENGTH.unpack(head)
    if length > _LONGEST or len(streams) != _STANDARD_STREAMS:
        raise ValueError("that is no request for a kernel")
    return _checked(json.loads(_received(connection, length))), streams


def _received(connection: socket.socket, length: int) -> bytes:
    content = b""
    while len(content) < length:
        piece = connection.recv(length - len(content))
        if not piece:
            raise ValueError("the request ends in its middle")
        content += piece
    return content


def _checked(entry: Any) -> Request:
    """Make a request of what was sent. Raises ValueError or TypeError."""
    request = Request(**entry)
    if not (isinstance(request.arguments, list) and isinstance(request.environment, dict)):
        raise ValueError("that is no request for a kernel")
    environment = (*request.environment, *request.environment.values())
    if not all(isinstance(word, str) for word in (*request.arguments, *environment, request.folder)):
        raise ValueError("arguments, environment and folder of a kernel are words")
    return request


def tell(connection: socket.socket, **answer: object) -> None:
    """Send one line of an answer, as far as anybody listens."""
    with suppress(OSError):
        connection.sendall(json.dumps(answer).encode() + b"\n", socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)


def hear(lines: bytes) -> Mapping[str, Any]:
    """Put the whole lines that were heard together."""
    heard: dict[str, Any] = {}
    for line in lines.splitlines(keepends=True):
        if line.endswith(b"\n"):
            heard.update(json.loads(line))
    return heard


@dataclass(frozen=True)
class Peer:
    """Who is at the other end of a connection, as the kernel of this machine says it."""

    process: int
    user: int
    group: int


def peer_of(connection: socket.socket) -> Peer:
    """Ask the system who connected."""
    return Peer(*struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)))


def own_streams() -> tuple[int, int, int]:
    """Return this process's standard streams, with nothing to read from."""
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 1, 2
