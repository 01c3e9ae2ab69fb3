"""A worker as whoever judges it sees it: it is given plain data, and answers with plain data, or ends."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from dataclasses import dataclass
from typing import Any

from amp_lessons._base.worker.host import Connection
from amp_lessons._base.worker.plain import HEAD, GarbledError, Handle, decode, encode, size

_KEPT = 8000  # bytes of what is printed: the first and the last half
_POLL_S = 0.5
_STACK = b"(most recent call first):\n"  # how faulthandler's first line ends, when it says where a worker is
_PATIENCE = 6.0  # seconds of the clock for one of the processor: other work may take the others


class Raised(Exception):  # noqa: N818 - the answer to a call
    """The function raised: ``kinds`` are the names of the exception's classes, ``line`` is the learner's own.

    ``by_statement`` says that a ``raise`` of Python's did it.
    """

    def __init__(self, kinds: list[str], text: str, line: str = "", by_statement: bool = True) -> None:
        super().__init__(f"{kinds[0]}: {text}".removesuffix(": "))
        self.kinds, self.text, self.line, self.by_statement = kinds, text, line, by_statement


class Ended(Exception):  # noqa: N818 - the answer to a call
    """The worker is no more: ``how`` is "time", "died" or "garbled"; ``where`` its stack then, if known."""

    def __init__(self, how: str, detail: str, where: str = "") -> None:
        super().__init__(f"{how}: {detail}")
        self.how, self.detail, self.where = how, detail, where


@dataclass(frozen=True)
class Limits:
    """What a worker may take: processor seconds, six times as many of the clock, bytes beyond its first."""

    cpu_s: float = 10.0
    memory: int = 2 * 2**30

    @property
    def wall_s(self) -> float:
        """Seconds of the clock, for a machine may be busy."""
        return _PATIENCE * self.cpu_s


class Worker:
    """One worker, for one check: ``with Worker(host, payload) as worker: worker.call(Handle(0), 1, 2)``.

    ``payload`` is {"pickle": bytes as a uint8 tensor} or {"source": text, "names": [...]}; what is in it is
    loaded there alone, and is then ``handed_in`` objects. Entering, and every call, raises Raised or Ended.
    """

    def __init__(self, host: Connection, payload: dict[str, Any], limits: Limits | None = None) -> None:
        self._host, self._payload, self.limits = host, payload, limits or Limits()
        self.printed, self.characters, self._status, self._where = b"", 0, 0, ""
        self._lives, self.handed_in = False, 0

    def __enter__(self) -> Worker:
        self._socket, theirs = socket.socketpair()
        self._output, output_end = os.pipe()
        try:
            cpu_s = max(1, round(self.limits.cpu_s))
            self._pid = self._host.ask("fork", cpu_s, self.limits.memory, ends=[theirs.fileno(), output_end])
            self._lives = True
            self._deadline = time.monotonic() + self.limits.wall_s  # a host that starts takes nobody's time
        finally:
            theirs.close()
            os.close(output_end)
        os.set_blocking(self._output, False)
        try:
            handed_in = self._answer({"do": "load", **self._payload})
            if type(handed_in) is not int:
                raise Ended("garbled", "it answered in the place of ours")
            self.handed_in = handed_in
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End the worker, whatever it is doing."""
        if self._lives:
            self._lives = False
            try:
                self._status = self._host.ask("end", self._pid)
            finally:
                self._socket.close()
                self._drain()
                os.close(self._output)
                self._cut_off_stack()

    def call(self, of: Handle | str, *args: Any, method: str = "", keep: bool = False, **kwargs: Any) -> Any:
        """Call an object there, a method of it by its name, or a function of ours by "module:name".

        ``keep`` leaves the result there and returns its handle.
        """
        request = {"do": "call", "of": of, "method": method, "keep": keep}
        return self._answer({**request, "args": list(args), "kwargs": kwargs})

    def another(self, limits: Limits) -> Worker:
        """Return a second worker with the same in it, which is entered on its own."""
        return Worker(self._host, self._payload, limits)

    @property
    def text(self) -> str:
        """What it has printed: the beginning and the end."""
        return self.printed.decode("utf-8", "replace")

    def _answer(self, request: dict[str, Any]) -> Any:
        self._send(encode(request))
        kind, value = self._reply()
        if kind == "raised":
            raise Raised(*value)
        return value

    def _reply(self) -> tuple[str, Any]:
        """Return the kind of an answer and what it holds; end the worker where it is no answer."""
        try:
            head = self._exactly(HEAD)
            ((kind, value),) = decode(head + self._exactly(size(head)), Handle).items()
            if kind == "raised":
                kinds, text, line, by_statement = value
                value = [str(each) for each in kinds], str(text), str(line), by_statement is True
            elif kind != "ok":
                raise GarbledError("an answer of another kind")
        except (GarbledError, ValueError, AttributeError, IndexError, TypeError) as error:
            self.__exit__()
            raise Ended("garbled", str(error)) from None
        return kind, value

    def _send(self, message: bytes) -> None:
        view = memoryview(message)
        while view:
            self._wait(writing=True)
            try:
                view = view[self._socket.send(view, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                continue
            except OSError:
                self._gone()

    def _exactly(self, count: int) -> bytes:
        got = bytearray()
        while len(got) < count:
            self._wait(writing=False)
            try:
                piece = self._socket.recv(min(count - len(got), 1 << 20), socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            except OSError:
                piece = b""
            if not piece:
                self._gone()
            got += piece
        return bytes(got)

    def _wait(self, writing: bool) -> None:
        """Wait until the socket is ready, reading what is printed; end the worker when it is time."""
        while True:
            left = self._deadline - time.monotonic()
            if left <= 0:
                self._gone(late=True)
            reading: list[Any] = [self._output] if writing else [self._socket, self._output]
            ready, ready_to_write, _ = select.select(
                reading, [self._socket] if writing else [], [], min(left, _POLL_S)
            )
            if self._output in ready and not self._drain(1):
                time.sleep(0.001)  # its other end is closed, and stays ready for ever
            if self._socket in ready or ready_to_write:
                return

    def _drain(self, most: int = 64) -> bool:
        for _ in range(most):
            try:
                piece = os.read(self._output, 1 << 16)
            except OSError:
                return False
            if not piece:
                return False
            self.characters += len(piece)
            half = _KEPT // 2
            self.printed = self.printed[:half] + (self.printed[half:] + piece)[-half:]
        return True

    def _cut_off_stack(self) -> None:
        """Take what faulthandler has written at the end out of what was printed."""
        before, found, stack = self.printed.rpartition(_STACK)
        if found:
            self._where = stack.decode("utf-8", "replace")
            self.characters -= len(self.printed)
            self.printed = before[: before.rfind(b"\n") + 1]
            self.characters += len(self.printed)

    def _gone(self, late: bool = False) -> None:
        self.__exit__()
        signalled = self._status == -signal.SIGXCPU  # by its limit, or by its host, which was asked to end it
        used_s = (time.monotonic() - self._deadline + self.limits.wall_s) * (os.cpu_count() or 1)
        if late or (signalled and used_s >= self.limits.cpu_s):
            raise Ended("time", f"{self.limits.cpu_s:g} seconds were over", self._where)
        if signalled:
            raise Ended("died", "it closed its connection", self._where)
        if self._status < 0:
            raise Ended("died", f"killed by signal {-self._status}", self._where)
        raise Ended("died", f"exit code {self._status}", self._where)
