"""Many learners at once, and what each of them takes. (``class`` is a word of Python's.)"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from classroom.load import machine
from classroom.load.learner import Answer, BrokenError, Learner
from classroom.load.lesson import Lesson

MOST_CHECKS_AT_ONCE = 10
MOVES = 3
_CELL_TIMEOUT_S = 600.0
_FORKS_KERNELS = "amp_lessons.kernels"

Join = Callable[[int], Awaitable[Learner]]


@dataclass(frozen=True)
class Waits:
    """How long several learners waited for the same thing at once, in seconds."""

    count: int
    median_s: float
    longest_s: float


@dataclass(frozen=True)
class ClassFound:
    """What a class came to. Memory is the sum of shares (PSS), so that what is shared counts once.

    ``kernel_mib`` is one kernel's, on average; ``parent_mib`` that of the process which forks kernels, 0
    where there is none. ``broke`` says in the words of those to whom it happened what went wrong, and is
    empty where nothing did.
    """

    learners: int
    lesson: str
    start: Waits | None = None
    run: Waits | None = None
    check: Waits | None = None
    move: Waits | None = None
    kernel_mib: float = 0.0
    server_mib: float = 0.0
    parent_mib: float = 0.0
    kernel_processor_s: float = 0.0
    errors: tuple[str, ...] = ()
    broke: tuple[str, ...] = ()

    @property
    def taken_mib(self) -> float:
        """What all of it takes together."""
        return self.learners * self.kernel_mib + self.server_mib + self.parent_mib


def waits(seconds: Sequence[float]) -> Waits | None:
    """Summarize what several waited; None for nobody."""
    if not seconds:
        return None
    return Waits(len(seconds), round(statistics.median(seconds), 2), round(max(seconds), 2))


@dataclass
class Class:
    """Learners who come one after another, and stay. ``join`` lets learner number n in, with nothing open."""

    lesson: Lesson
    join: Join
    server_pid: int | None = None
    learners: list[Learner] = field(default_factory=list)
    kernel_mib: float = 600.0  # of one of them; as soon as there is one, its own

    def __post_init__(self) -> None:
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Class:
        return self

    async def __aexit__(self, *exception: object) -> None:
        with contextlib.suppress(Exception):
            await self._stack.aclose()

    async def grow(self, count: int) -> ClassFound:
        """Let learners in until there are ``count``; have all do what a lesson asks of them, and measure."""
        broke: list[str] = []
        errors: list[str] = []
        coming = [await self._enter(number) for number in range(len(self.learners), count)]
        start = await _together([learner.open() for learner in coming], broke)
        run = await _together([self._run(learner, errors) for learner in coming], broke)
        self.learners += coming
        move = [await _together([self._move(each) for each in self.learners], broke) for _ in range(MOVES)]
        checking = self.learners[-MOST_CHECKS_AT_ONCE:] if self.lesson.check else []
        check = await _together([self._check(learner, errors) for learner in checking], broke)
        return self._found(
            start=waits(start),
            run=waits(run),
            check=waits(check),
            move=waits([seconds for each in move for seconds in each]),
            errors=tuple(sorted(set(errors))),
            broke=tuple(sorted(set(broke))),
        )

    async def _enter(self, number: int) -> Learner:
        return await self._stack.enter_async_context(await self.join(number))

    async def _run(self, learner: Learner, errors: list[str]) -> float:
        begun = time.perf_counter()
        for cell in self.lesson.cells:
            _note(await learner.run(cell, _CELL_TIMEOUT_S), errors)
        return time.perf_counter() - begun

    async def _move(self, learner: Learner) -> float:
        if not learner.sliders:
            raise _NothingToMoveError
        answer = await learner.move(next(iter(learner.sliders)), _CELL_TIMEOUT_S)
        return answer.seconds

    async def _check(self, learner: Learner, errors: list[str]) -> float:
        _note(await learner.run(self.lesson.solution, _CELL_TIMEOUT_S), errors)
        answer = await learner.run(self.lesson.check, _CELL_TIMEOUT_S)
        _note(answer, errors)
        return answer.seconds

    def _found(self, **found: object) -> ClassFound:
        here = [learner.pid for learner in self.learners if machine.share_mib(learner.pid)]
        parent = _parent_of(here)
        self.kernel_mib = round(machine.shares_mib(here) / len(here), 1) if here else 0.0
        return ClassFound(
            len(self.learners),
            self.lesson.number,
            kernel_mib=self.kernel_mib,
            server_mib=round(_rest_mib(self.server_pid, here, parent), 1),
            parent_mib=round(machine.share_mib(parent), 1) if parent else 0.0,
            kernel_processor_s=round(sum(map(machine.processor_s, here)) / len(here), 1) if here else 0.0,
            **found,  # type: ignore[arg-type]
        )


class _NothingToMoveError(Exception):
    """A lesson has no slider."""


def _note(answer: Answer, errors: list[str]) -> None:
    if answer.error:
        errors.append(answer.error)


async def _together(tasks: Sequence[Awaitable[float]], broke: list[str]) -> list[float]:
    """Wait for all; return the seconds of those that came through, and note what broke the others."""
    came = await asyncio.gather(*tasks, return_exceptions=True)
    for each in came:
        if isinstance(each, BrokenError):
            broke.append(str(each))
        elif isinstance(each, BaseException) and not isinstance(each, _NothingToMoveError):
            raise each
    return [each for each in came if isinstance(each, float)]


def _rest_mib(server: int | None, kernels: Sequence[int], parent: int | None) -> float:
    """Return what a server, or a hub with its proxy and the servers of all, takes beside the kernels."""
    if server is None:
        return 0.0
    others = {pid for kernel in kernels for pid in machine.family(kernel)} | {parent}
    return machine.shares_mib(pid for pid in machine.family(server) if pid not in others)


def _parent_of(kernels: Sequence[int]) -> int | None:
    """Return the process that has forked the kernels, if one has."""
    parents = {machine.parent(pid) for pid in kernels}
    return next((pid for pid in parents if pid and _FORKS_KERNELS in machine.command(pid)), None)


@dataclass(frozen=True)
class LessonFound:
    """What one learner alone takes for a lesson: its kernel, and for the peak whatever that started, too."""

    lesson: str
    start_s: float
    run_s: float
    idle_mib: float
    end_mib: float
    peak_mib: float
    processor_s: float
    errors: tuple[str, ...] = ()


async def measure_lesson(lesson: Lesson, join: Join) -> LessonFound:
    """Have one learner run a lesson. Raises BrokenError where that comes to no end."""
    errors: list[str] = []
    async with await join(0) as learner:
        start_s = await learner.open()
        idle_mib = machine.share_mib(learner.pid)
        one = Class(lesson, join)
        with machine.Peak(learner.pid) as peak:
            run_s = await one._run(learner, errors)
            if lesson.check:
                await one._check(learner, errors)
        return LessonFound(
            lesson.number,
            round(start_s, 2),
            round(run_s, 1),
            round(idle_mib, 1),
            round(machine.share_mib(learner.pid), 1),
            round(max(peak.mib, machine.share_mib(learner.pid)), 1),
            round(machine.processor_s(learner.pid), 1),
            tuple(sorted(set(errors))),
        )
