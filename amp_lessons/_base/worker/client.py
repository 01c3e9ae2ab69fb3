"""A worker as whoever judges it sees it: it is given plain data, and answers with plain data, or ends."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Collection, Generator, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from amp_lessons._base.worker.host import Connection
from amp_lessons._base.worker.plain import HEAD, GarbledError, Handle, decode, encode, size

_KEPT_AT_EACH_END = 8000  # bytes of what is printed
_PATIENCE = 6.0  # seconds of the clock for one of the processor: other work may take the others


def pickled(objects: Any) -> bytes:
    """Return what is handed to a worker: one object, or a tuple of those that it is to have."""
    import cloudpickle

    class Pickler(cloudpickle.Pickler):
        """Takes modules by their names, those of a class of their own too, as torch.backends.cudnn."""

        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, ModuleType) and sys.modules.get(value.__name__) is value:
                return importlib.import_module, (value.__name__,)
            if isinstance(value, functools._lru_cache_wrapper) and value.__module__ == "__main__":
                return cached, (value.__wrapped__, value.cache_parameters())
            if type(value).__name__ == "ZMQExitAutocall":  # what exit and quit are in a notebook
                return getattr, (sys, "exit")
            return super().reducer_override(value)

    buffer = io.BytesIO()
    Pickler(buffer).dump(objects if isinstance(objects, tuple) else (objects,))
    return buffer.getvalue()


def cached(function: Any, parameters: dict[str, Any]) -> Any:
    """Give a function that is taken along a cache of its own, as it has one where it comes from."""
    return functools.lru_cache(**parameters)(function)


class Raised(Exception):  # noqa: N818 - the answer to a call
    """The function raised: ``kinds`` are the names of the exception's classes, ``line`` is the learner's own.

    ``by_statement`` says that a ``raise`` of Python's did it.
    """

    def __init__(self, kinds: list[str], text: str, line: str = "", by_statement: bool = True) -> None:
        super().__init__(f"{kinds[0]}: {text}".removesuffix(": "))
        self.kinds, self.text, self.line, self.by_statement = kinds, text, line, by_statement


class Ended(Exception):  # noqa: N818 - the answer to a call
    """The worker is no more: ``how`` is "time", "died" or "garbled"; ``where`` its stack then, if known.

    ``status`` is its exit code, negative for a signal.
    """

    def __init__(self, how: str, detail: str, where: str = "", status: int = 0) -> None:
        super().__init__(f"{how}: {detail}")
        self.how, self.detail, self.where, self.status = how, detail, where, status


@dataclass(frozen=True)
class Limits:
    """What a worker may take: processor seconds, bytes beyond its first, bytes of an answer; inf is no limit.

    ``clock_s`` are seconds of the clock, by default six times as many, for a machine may be busy.
    """

    cpu_s: float = 10.0
    memory: float = 2 * 2**30
    answer: float = 256 * 2**20
    clock_s: float | None = None

    @property
    def wall_s(self) -> float:
        """Seconds of the clock."""
        return _PATIENCE * self.cpu_s if self.clock_s is None else self.clock_s


class Worker:
    """One worker, for one check: ``with Worker(host, payload) as worker: worker.call(Handle(0), 1, 2)``.

    ``payload`` is {"pickle": bytes}, {"source": text, "names": [...]} or empty; what is in it is loaded there
    alone, and is then ``handed_in`` objects. Entering, and every call, raises Raised or Ended.
    """

    def __init__(self, host: Connection, payload: dict[str, Any], limits: Limits | None = None) -> None:
        self._host, self._payload, self.limits = host, payload, limits or Limits()
        self.printed, self.characters, self._status, self._where = b"", 0, 0, ""
        self._lives, self.handed_in = False, 0

    def __enter__(self) -> Worker:
        self._socket, theirs = socket.socketpair()
        self._output, output_end = os.pipe()
        self._stack, stack_end = os.pipe()
        ends = [theirs.fileno(), output_end, stack_end]
        try:
            self._pid = self._host.ask("fork", self.limits.cpu_s, self.limits.memory, ends=ends)
            self._lives = self._prints = True
            self._deadline = time.monotonic() + self.limits.wall_s  # a host that starts takes nobody's time
        finally:
            theirs.close()
            os.close(output_end)
            os.close(stack_end)
        for each in (self._socket.fileno(), self._output, self._stack):
            os.set_blocking(each, False)
        try:
            if self._payload:
                self.handed_in = _only(_answers([self], {"do": "load", **self._payload}))
            if type(self.handed_in) is not int:
                raise Ended("garbled", "it answered in the place of ours")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End the worker, whatever it is doing."""
        end([self])

    def call(self, of: Handle | str, *args: Any, method: str = "", keep: bool = False, **kwargs: Any) -> Any:
        """Call an object there, a method of it by its name, or a function of ours by "module:function".

        ``keep`` leaves the result there and returns its handle.
        """
        return _only(call_together([self], of, *args, method=method, keep=keep, **kwargs))

    def another(self, limits: Limits) -> Worker:
        """Return a second worker with the same in it, which is entered on its own."""
        return Worker(self._host, self._payload, limits)

    def hurry(self, seconds: float) -> None:
        """Leave it no more than so much time."""
        self._deadline = min(self._deadline, time.monotonic() + seconds)

    @property
    def text(self) -> str:
        """What it has printed: the beginning and the end, and how much is left out between them."""
        ends = self.printed[:_KEPT_AT_EACH_END], self.printed[_KEPT_AT_EACH_END:]
        head, tail = (each.decode("utf-8", "replace") for each in ends)
        left_out = self.characters - len(self.printed)
        return head + (f"\n… {left_out:,} bytes left out …\n" if left_out else "") + tail

    def _talk(self, message: bytes) -> Generator[int, None, Any]:
        """Send a message and return what answers it; yield which event of the socket is waited for."""
        view = memoryview(message)
        try:
            while view:
                yield selectors.EVENT_WRITE
                with contextlib.suppress(BlockingIOError):
                    view = view[self._socket.send(view) :]
            head = yield from self._exactly(HEAD)
            body = yield from self._exactly(size(head, self.limits.answer))
            ((kind, value),) = decode(head + body, Handle).items()
            if kind == "raised":
                kinds, text, line, by_statement = value
                return Raised([str(each) for each in kinds], str(text), str(line), by_statement is True)
            if kind != "ok":
                raise GarbledError("an answer of another kind")
        except (OSError, EOFError):
            end([self])
            return self._ended()
        except (GarbledError, ValueError, AttributeError, IndexError, TypeError) as error:
            end([self])
            return Ended("garbled", str(error))
        return value

    def _exactly(self, count: int) -> Generator[int, None, bytes]:
        got = bytearray()
        while len(got) < count:
            yield selectors.EVENT_READ
            with contextlib.suppress(BlockingIOError):
                piece = self._socket.recv(min(count - len(got), 1 << 20))
                if not piece:
                    raise EOFError
                got += piece
        return bytes(got)

    def _drain(self, most: int = 64) -> None:
        """Keep what it has printed, the first bytes and the last."""
        for _ in range(most):
            try:
                piece = os.read(self._output, 1 << 16)
            except OSError:
                return
            self._prints = bool(piece)
            self.characters += len(piece)
            head, tail = self.printed[:_KEPT_AT_EACH_END], self.printed[_KEPT_AT_EACH_END:] + piece
            room = _KEPT_AT_EACH_END - len(head)
            self.printed = head + tail[:room] + tail[room:][-_KEPT_AT_EACH_END:]

    def _close(self, status: int) -> None:
        """Take what an ended worker leaves: its status, the rest of what it printed, where it was."""
        self._status = status
        self._socket.close()
        self._drain()
        with contextlib.suppress(OSError):
            self._where = os.read(self._stack, 1 << 16).decode("utf-8", "replace")
        os.close(self._output)
        os.close(self._stack)

    def _ended(self, late: bool = False) -> Ended:
        """Say how a worker has ended."""
        status, cpu_s = self._status, self.limits.cpu_s
        signalled = status == -signal.SIGXCPU  # by its limit, or by its host, which was asked to end it
        used_s = (time.monotonic() - self._deadline + self.limits.wall_s) * (os.cpu_count() or 1)
        if late or (signalled and used_s >= cpu_s):
            return Ended("time", f"{cpu_s:g} seconds were over", self._where, status)
        detail = f"killed by signal {-status}" if status < 0 else f"exit code {status}"
        if signalled:
            detail = "it closed its connection"
        return Ended("died", detail, self._where, status)


def end(workers: Collection[Worker]) -> None:
    """End workers of one host, whatever they are doing: each says where it was before any is gone."""
    living = [each for each in workers if each._lives]
    statuses = [0] * len(living)
    for each in living:
        each._lives = False
    try:
        if living:
            statuses = living[0]._host.ask("end", *(each._pid for each in living))
    finally:
        for each, status in zip(living, statuses, strict=True):
            each._close(status)


def call_together(
    workers: Collection[Worker],
    of: Handle | str,
    *args: Any,
    method: str = "",
    keep: bool = False,
    **kwargs: Any,
) -> Iterator[tuple[Worker, Any]]:
    """Let workers of one host call the same at once; yield each with its answer, Raised or Ended too.

    When the time of one is over, all are ended that have not answered: they may wait for each other.
    """
    request: dict[str, Any] = {"do": "call", "of": of, "method": method, "keep": keep}
    return _answers(workers, {**request, "args": list(args), "kwargs": kwargs})


def _only(answers: Iterator[tuple[Worker, Any]]) -> Any:
    """Return the answer of the only worker that was asked, or raise it."""
    ((_, answer),) = answers
    if isinstance(answer, (Raised, Ended)):
        raise answer
    return answer


def _answers(workers: Collection[Worker], request: dict[str, Any]) -> Iterator[tuple[Worker, Any]]:
    """Send workers the same request; yield each with its answer as they come, reading what they print."""
    message = encode(request)
    talks = {worker: worker._talk(message) for worker in workers}
    waiting = {worker: next(talk) for worker, talk in talks.items()}
    while waiting:
        left = min(worker._deadline for worker in waiting) - time.monotonic()
        if left <= 0:
            end(waiting)
            yield from [(worker, worker._ended(late=True)) for worker in waiting]
            return
        with selectors.PollSelector() as selector:
            for worker, event in waiting.items():
                selector.register(worker._socket, event, worker)
            for worker in workers:
                if worker._lives and worker._prints:
                    selector.register(worker._output, selectors.EVENT_READ, worker)
            ready = [(key.fileobj, key.data) for key, _ in selector.select(left)]
        for file, worker in ready:
            if file is not worker._socket:
                if worker._lives:
                    worker._drain(1)
                continue
            try:
                waiting[worker] = next(talks[worker])
            except StopIteration as done:
                del waiting[worker]
                yield worker, done.value
