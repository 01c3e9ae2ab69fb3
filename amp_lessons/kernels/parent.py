"""The parent: it waits for connections, forks a kernel for each, and tells its asker how the kernel ended."""

from __future__ import annotations

import grp
import os
import selectors
import socket
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from amp_lessons.kernels import request
from amp_lessons.kernels.birth import become_kernel

MOST_KERNELS = 20  # of one account


@dataclass(frozen=True)
class Kernel:
    """A fork that runs, and who hears of its end. ``ended`` can be read from when it has."""

    pid: int
    user: int
    ended: int
    connection: socket.socket


class Parent:
    """Forks kernels for whoever connects to ``listener``, until ``lifeline`` is closed at its other end.

    ``environment`` is what this process began with, before anything was imported. ``members`` is the name of
    the group whose accounts are answered; everybody is, where it is empty.
    """

    def __init__(
        self, listener: socket.socket, environment: Mapping[str, str], *, lifeline: int | None, members: str
    ) -> None:
        self._listener, self._environment, self._lifeline = listener, environment, lifeline
        self._members = members
        self._kernels: dict[int, Kernel] = {}
        self._open_for_good = frozenset(map(int, os.listdir("/proc/self/fd"))) - {listener.fileno()}

    def serve(self) -> None:
        """Serve. Returns in the parent when its server has gone; in a fork, when its kernel has ended."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ, self._accepted)
            if self._lifeline is not None:
                selector.register(self._lifeline, selectors.EVENT_READ, None)
            while True:
                for key, _ in selector.select():
                    if key.data is None:
                        return
                    connection = key.data(selector)
                    if connection is not None:  # this is the fork
                        break
                else:
                    continue
                break
        self._be_born(connection)

    def _be_born(self, connection: socket.socket) -> None:
        kept = self._open_for_good - ({self._lifeline} if self._lifeline is not None else set())
        self._kernels.clear()
        become_kernel(connection, frozenset(kept), self._environment, everybodys=self._lifeline is None)

    def _accepted(self, selector: selectors.BaseSelector) -> socket.socket | None:
        """Fork for the one who connects; return the connection in the fork, and None in the parent."""
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it has gone again
            return None
        peer = request.peer_of(connection)
        refusal = self._refusal(peer)
        try:
            pid = -1 if refusal else os.fork()
        except OSError as error:  # no process or no memory is left: not the end of those that there are
            pid, refusal = -1, f"it cannot be forked: {error.strerror}"
        if pid == 0:
            return connection
        if refusal:
            request.tell(connection, refused=refusal)
            connection.close()
            return None
        kernel = Kernel(pid, peer.user, os.pidfd_open(pid), connection)
        self._kernels[pid] = kernel
        selector.register(kernel.ended, selectors.EVENT_READ, partial(self._reaped, kernel))
        return None

    def _refusal(self, peer: request.Peer) -> str:
        """Say why nothing is forked for an account; nothing where it is."""
        if self._lifeline is not None and peer.user != os.getuid():
            return "this parent serves one account"
        if self._members and peer.user and not _is_member(peer.user, self._members):
            return f"this account is not in the group {self._members}"
        if Counter(kernel.user for kernel in self._kernels.values())[peer.user] >= MOST_KERNELS:
            return f"this account has {MOST_KERNELS} kernels already"
        return ""

    def _reaped(self, kernel: Kernel, selector: selectors.BaseSelector) -> None:
        _, status = os.waitpid(kernel.pid, 0)
        request.tell(kernel.connection, ended=os.waitstatus_to_exitcode(status))
        selector.unregister(kernel.ended)
        os.close(kernel.ended)
        kernel.connection.close()
        del self._kernels[kernel.pid]


def _is_member(user: int, group: str) -> bool:
    import pwd

    try:
        entry, account = grp.getgrnam(group), pwd.getpwuid(user)
    except KeyError:
        return False
    return account.pw_gid == entry.gr_gid or account.pw_name in entry.gr_mem


def complain(words: str) -> None:
    """Say something in the log of whoever started this process."""
    print(f"amp-lessons: {words}", file=sys.stderr, flush=True)
