"""Simulated time in a worker: it passes by a device's work alone, and Python's clocks show no other."""

from __future__ import annotations

import datetime
import importlib
import sys
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import cloudpickle

from amp_lessons._base.worker.client import pickled
from amp_lessons.course.exercises import bed_there

_READING_S = 1e-7  # reading costs something, or a loop that waits for a clock would never end
_OF_PROCESSOR = ("process_time", "thread_time")
_CLOCKS = (*_OF_PROCESSOR, "perf_counter", "monotonic", "time", "clock_gettime")


def with_simulated_clocks(function: Any) -> Any:
    """Let Python's clocks show the simulated time from here on; return a function that has no others.

    It is pickled before and loaded after: a clock that it held by another name is then a simulated one, too.
    """
    if isinstance(function, FunctionType) and function.__module__ in sys.modules:
        cloudpickle.register_pickle_by_value(sys.modules[function.__module__])
    pickle = pickled(function)
    vars(time).update({name: _clock(name) for each in _CLOCKS for name in (each, f"{each}_ns")}, sleep=_sleep)
    vars(datetime).update(datetime=_Datetime)
    importlib.reload(timeit)  # it takes its clock when it is imported
    return cloudpickle.loads(pickle)[0]


class _Time:
    """Seconds that have passed by work and sleep, and by reading clocks; ``seen`` names those read."""

    passed = read = 0.0
    seen: set[str] = set()  # noqa: RUF012 - there is one time

    @classmethod
    def now(cls) -> float:
        """Return the seconds since the start."""
        return cls.passed + cls.read


def _clock(name: str) -> Callable[..., float]:
    def read(*_which: Any) -> float:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.partition(".")[0] not in sys.stdlib_module_names:
            _Time.seen.add(name.removesuffix("_ns"))
        _Time.read += _READING_S
        seconds = _Time.read if name.startswith(_OF_PROCESSOR) else _Time.now()
        return round(seconds * 1e9) if name.endswith("_ns") else seconds

    return read


def _sleep(seconds: float, /) -> None:
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    _Time.passed += seconds


class _Datetime(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> _Datetime:
        """Return the simulated time of day."""
        return cls.fromtimestamp(_Time.now(), tz)


@dataclass
class _Device:
    """A device that serves calls in turn, and is called as a step: the i-th takes ``durations_ms[i]``.

    With ``waits`` a call returns when its work is done, as on a CPU; without, at once, as a launch on a GPU
    does, and only ``synchronize`` waits.
    """

    durations_ms: list[float]
    waits: bool
    free_at: float
    calls: int = 0

    def __call__(self) -> None:
        """Launch the next step; with ``waits``, return at its end."""
        duration_ms = self.durations_ms[min(self.calls, len(self.durations_ms) - 1)]
        self.calls += 1
        self.free_at = max(self.free_at, _Time.now()) + duration_ms / 1e3
        if self.waits:
            self.synchronize()

    def synchronize(self) -> None:
        """Wait until the device has done all its work."""
        _Time.passed += max(self.free_at - _Time.now(), 0.0)


def time_calls(
    function: Callable[..., Any],
    args: list[Any],
    kwargs: dict[str, Any],
    durations_ms: list[float],
    waits: bool,
    pending_ms: float,
) -> dict[str, Any]:
    """Let a function time the steps of a device that is busy for ``pending_ms``; ``args`` are none.

    The result has what was ``returned``, the number of ``calls``, and which clocks were ``seen`` to be read.
    """
    _Time.seen.clear()
    device = _Device(durations_ms, waits, _Time.now() + pending_ms / 1e3)
    called = bed_there.call(function, [device], {**kwargs, "synchronize": device.synchronize})
    result = {"returned": called["result"], "calls": device.calls, "seen": sorted(_Time.seen)}
    return {**called, "result": result, "args": args}
