"""Steps of a known duration in a worker, on a simulated device and by simulated clocks: no load disturbs."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Any, Protocol

from amp_lessons.course.exercises import bed_there


def time_calls(
    function: Callable[..., Any],
    args: list[Any],
    kwargs: dict[str, Any],
    device: dict[str, Any],
    simulated: bool,
) -> dict[str, Any]:
    """Let a function time the calls of a ``device``, a Device's first fields; ``args`` are none.

    The result has what was ``returned``, when the calls were made and worked on, when the device was
    ``synchronized``, and which clocks were read.
    """
    time = SimulatedTime() if simulated else RealTime()
    served = Device(**device).start(time)
    with time.shown_to(function):
        called = bed_there.call(function, [served], {**kwargs, "synchronize": served.synchronize})
    result = {
        "returned": called["result"],
        "calls": [[each.made, each.began, each.ended] for each in served.calls],
        "synchronized": served.synchronized,
        "readings": sorted(time.readings),
    }
    return {**called, "result": result, "args": args}


class Time(Protocol):
    """Time in seconds, as a ``Device`` needs it and a learner's clocks show it.

    ``readings`` names the clocks that were seen to be read; ``exact`` says whether nothing else takes time.
    """

    readings: set[str]
    exact: bool

    def now(self) -> float:
        """Return the time that has passed since some moment."""

    def wait_until(self, moment: float) -> None:
        """Let the time pass until ``moment``."""

    def shown_to(self, attempt: Any) -> AbstractContextManager[None]:
        """Let ``attempt`` see this time on its clocks."""


class RealTime:
    """Time as it passes; a busy machine may wake us late, and nobody sees who reads a clock."""

    exact = False

    def __init__(self) -> None:
        self.readings: set[str] = set()

    def now(self) -> float:
        """Read the clock."""
        return time.perf_counter()

    def wait_until(self, moment: float) -> None:
        """Sleep until ``moment``."""
        time.sleep(max(moment - time.perf_counter(), 0))

    def shown_to(self, attempt: Any) -> AbstractContextManager[None]:
        """Leave all clocks as they are."""
        return nullcontext()


_KINDS = ("perf_counter", "monotonic", "time", "process_time", "thread_time")
_CLOCKS = tuple(name for kind in _KINDS for name in (kind, f"{kind}_ns") if hasattr(time, name))
PROCESSOR_CLOCKS = frozenset(name for name in _CLOCKS if name.startswith(("process", "thread")))
_READING_S = 1e-7  # reading costs something, or a loop that waits for a clock would never end
# `timeit` took its clock when it was imported
_TIMEIT: tuple[Any, ...] = (timeit.timeit, timeit.repeat, timeit.Timer.__init__)


class SimulatedTime:
    """Time that passes only through a device's work, a sleep, or reading a clock.

    ``readings`` names the functions of ``time`` that were called in code outside the standard library.
    """

    exact = True

    def __init__(self) -> None:
        self.readings: set[str] = set()
        self._passed = 0.0
        self._read = 0.0
        self._thread: int | None = None
        self._real = {name: getattr(time, name) for name in (*_CLOCKS, "sleep")}

    def now(self) -> float:
        """Return the simulated seconds since the start."""
        return self._passed

    def wait_until(self, moment: float) -> None:
        """Let the simulated time jump to ``moment``."""
        self._passed = max(self._passed, moment)

    @contextmanager
    def shown_to(self, attempt: Any) -> Iterator[None]:
        """Let every clock of Python's show this time, for this thread and as far as ``attempt`` can see.

        Clocks that it bound by name before are replaced among its globals, defaults and closed-over names.
        """
        fakes = {name: self._fake(name) for name in _CLOCKS} | {"sleep": self._sleep}
        functions = [*_TIMEIT, *_functions_of(attempt)]
        self._thread = threading.get_ident()
        try:
            _exchange(functions, {id(real): fakes[name] for name, real in self._real.items()})
            yield
        finally:
            self._thread = None
            _exchange(functions, {id(fake): self._real[name] for name, fake in fakes.items()})
            vars(time).update(self._real)  # the attempt may have put something else there

    def _shown(self) -> bool:
        """Whether to show the simulated time: other threads live by the real one."""
        return self._thread == threading.get_ident()

    def _fake(self, name: str) -> Callable[[], float]:
        real = self._real[name]
        start = real()

        def read() -> float:
            if not self._shown():
                return real()
            if _caller().get("__name__", "").partition(".")[0] not in sys.stdlib_module_names:
                self.readings.add(name)
            self._passed += _READING_S
            self._read += _READING_S
            passed = self._read if name in PROCESSOR_CLOCKS else self._passed
            return start + (round(passed * 1e9) if name.endswith("_ns") else passed)

        return read

    def _sleep(self, seconds: float, /) -> None:
        if not self._shown():
            self._real["sleep"](seconds)
            return
        self._real["sleep"](min(seconds, 0))  # which raises if it is negative
        self._passed += seconds


def _caller() -> dict[str, Any]:
    """Return the globals of the code that called into this module."""
    frame = sys._getframe(1)
    while frame.f_globals is globals() and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_globals


def _functions_of(attempt: Any) -> list[FunctionType]:
    """Return the function behind a partial, a method or an object that can be called, in a list."""
    while isinstance(attempt, functools.partial):
        attempt = attempt.func
    if isinstance(attempt, MethodType):
        attempt = attempt.__func__
    if not isinstance(attempt, FunctionType):
        attempt = inspect.getattr_static(type(attempt), "__call__", None)
    return [attempt] if isinstance(attempt, FunctionType) else []


def _exchange(functions: list[Any], replacements_by_id: dict[int, Any]) -> None:
    """Put ``replacements_by_id[id(x)]`` in the place of x, wherever these functions and ``time`` hold it.

    A library such as freezegun is not enough: it looks for clocks in modules, not among the defaults and
    closed-over names of a function, and it leaves the processor's clocks and ``sleep`` as they are.
    """
    keyword_defaults = [function.__kwdefaults__ or {} for function in functions]
    for names in [vars(time), *(function.__globals__ for function in functions), *keyword_defaults]:
        held = {name: value for name, value in list(names.items()) if id(value) in replacements_by_id}
        names.update({name: replacements_by_id[id(value)] for name, value in held.items()})
    for function in functions:
        defaults = function.__defaults__ or ()
        if any(id(value) in replacements_by_id for value in defaults):
            function.__defaults__ = tuple(replacements_by_id.get(id(value), value) for value in defaults)
        for cell in function.__closure__ or ():
            if id(_contents(cell)) in replacements_by_id:
                cell.cell_contents = replacements_by_id[id(_contents(cell))]


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing has been assigned to that name yet
        return None


@dataclass
class Launch:
    """One call of the step: when it was made, and from when to when the device worked on it (seconds)."""

    made: float
    began: float
    ended: float

    @property
    def work_ms(self) -> float:
        """What the device spent on this call alone."""
        return (self.ended - self.began) * 1e3


@dataclass
class Device:
    """A device that serves calls in turn; the i-th takes ``durations_ms[i]``, or else the last of these.

    It is called as a step. With ``waits`` the call returns when the work is done, as on a CPU; without, at
    once, as a launch on a GPU does, and only ``synchronize`` waits. ``pending_ms`` is work from before.
    """

    durations_ms: tuple[float, ...]
    waits: bool = True
    pending_ms: float = 0.0
    calls: list[Launch] = field(default_factory=list)
    synchronized: list[float] = field(default_factory=list)
    _time: Time = field(default_factory=RealTime)
    _free_at: float = 0.0

    def start(self, time: Time) -> Device:
        """Start the device at the present moment, busy with its pending work."""
        self._time = time
        self._free_at = time.now() + self.pending_ms / 1e3
        return self

    def __call__(self) -> None:
        """Launch the next step; with ``waits``, return at its end."""
        made = self._time.now()
        began = max(made, self._free_at)
        duration_ms = self.durations_ms[min(len(self.calls), len(self.durations_ms) - 1)]
        self._free_at = began + duration_ms / 1e3
        self.calls.append(Launch(made, began, self._free_at))
        if self.waits:
            self._wait()

    def synchronize(self) -> None:
        """Wait until the device has done all its work."""
        self.synchronized.append(self._time.now())
        self._wait()

    def _wait(self) -> None:
        """Wait until the work is done; what a busy machine adds to real time counts as work."""
        if self._time.now() < self._free_at:
            self._time.wait_until(self._free_at)
            self._free_at = self._time.now()
            if self.calls:
                self.calls[-1].ended = self._free_at
