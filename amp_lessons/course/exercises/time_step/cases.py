"""Runs of an attempt at timing a step, on devices whose work is known, and what each of them showed."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from amp_lessons.course.exercises.time_step.clockwork_there import Launch


@dataclass(frozen=True)
class TimingCase:
    """One run: on which device, with which arguments; ``what`` completes "for …".

    The i-th call takes ``durations_ms[i]``, or else the last of these, and returns when that is done if it
    ``waits``; ``pending_ms`` is work from before.
    """

    what: str
    durations_ms: tuple[float, ...]
    warmup: int
    repeats: int
    waits: bool = True
    pending_ms: float = 0.0


# digits behind the point: who rounds to whole milliseconds loses most of a fast step
STEADY = TimingCase("a step of 4.637 ms that returns when it is done", (4.6374,), 2, 4)
LAUNCHED = TimingCase("a step of 6 ms that is only launched", (6.0,), 1, 3, waits=False)
BUSY = TimingCase("a launched step while the device is busy", (6.0,), 2, 1, waits=False, pending_ms=40.0)
_SLOW_AT_FIRST = (80.0, 60.0)
_ODD = (27.0, 9.0, 3.5, 38.5, 34.5, 2.5, 5.0, 33.0, 6.5)
_EVEN = (16.0, 39.0, 8.0, 21.5, 3.0, 2.5)
# chosen so that no other statistic comes near the median, and no two of them agree in both
UNSTEADY = (
    TimingCase("nine samples after a slow warm-up", _SLOW_AT_FIRST + _ODD, 2, len(_ODD)),
    TimingCase("six samples", _EVEN, 0, len(_EVEN)),
)


@dataclass
class Seen:
    """What an attempt did in one case, in milliseconds, and which clocks it read (``readings``).

    ``value`` is the number in what it ``returned``; ``exact`` says that nothing but the device took time.
    """

    case: TimingCase
    calls: list[Launch]
    synchronized: bool
    readings: frozenset[str]
    returned: Any
    value: float
    exact: bool

    @property
    def timed(self) -> list[Launch]:
        """The calls that were to be timed: those after the warm-up."""
        return self.calls[self.case.warmup :]

    @property
    def everything(self) -> list[float]:
        """How long the device worked on each call, warm-up included, in milliseconds."""
        return [call.work_ms for call in self.calls]

    @property
    def samples(self) -> list[float]:
        """How long the device worked on each timed call, in milliseconds."""
        return [call.work_ms for call in self.timed]

    @property
    def right(self) -> float:
        """The median of the samples, in milliseconds."""
        return statistics.median(self.samples)

    @property
    def middle(self) -> tuple[float, float]:
        """The lower and the upper of the two samples in the middle; of an odd number they are one."""
        return statistics.median_low(self.samples), statistics.median_high(self.samples)

    @property
    def one_after_another(self) -> bool:
        """Whether each timed call but the first was made when the one before it was done."""
        return all(later.made >= before.ended - 1e-4 for before, later in pairwise(self.timed))

    def shows(self, expected: float, unit: float = 1.0) -> bool:
        """Whether the value is ``expected``, give or take a rounding, or what real time adds."""
        value = self.value / unit
        if self.exact:
            return abs(value - expected) <= 0.06 + 0.002 * expected
        return expected * 0.95 <= value <= expected * 1.25 + 0.4

    @property
    def is_median(self) -> bool:
        """Whether the value is the median, or one of the two samples that it lies between."""
        return any(self.shows(each) for each in (self.right, *self.middle))
