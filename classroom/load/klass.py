"""Many learners at once, and what each of them takes. (``class`` is a word of Python's.)"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import psutil

from amp_lessons import exercises, lessons
from amp_lessons.course.exercises.exercise import cell_id
from classroom.load.learner import BrokenError, CellRun, Learner

MOST_CHECKS_AT_ONCE = 10
MOVES = 3
_CELL_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Lesson:
    """A lesson to run: the sources of its ``cells``, and ``solution`` and ``check`` of its last exercise."""

    number: str
    cells: tuple[str, ...]
    solution: str = ""
    check: str = ""


def read(number: str) -> Lesson:
    """Read a lesson by its number. Raises ValueError if there is none."""
    path = next(iter(lessons.originals().glob(f"{number}_*.ipynb")), None)
    if path is None:
        there = sorted(each.name[:2] for each in lessons.originals().glob("[0-9][0-9]_*.ipynb"))
        raise ValueError(f"there is no lesson {number}; choose one of {', '.join(there)}")
    cells = [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    sources = {cell.get("id", ""): "".join(cell["source"]) for cell in cells}
    found = [each for each in exercises.catalog() if cell_id(each.id, "check") in sources]
    last = max(found, key=lambda each: list(sources).index(cell_id(each.id, "check")), default=None)
    solved = (exercises.solution(last.id).source, sources[cell_id(last.id, "check")]) if last else ()
    return Lesson(number, tuple("".join(cell["source"]) for cell in cells), *solved)


@dataclass(frozen=True)
class Waits:
    """How long several learners waited for the same thing at once, in seconds."""

    count: int
    median_s: float
    longest_s: float


@dataclass(frozen=True)
class ClassFound:
    """What a class came to. Memory is the sum of shares (PSS), so that what is shared counts once.

    ``kernel_mib`` is one kernel's, on average; ``server_mib`` that of the server, or of a hub with all
    servers. ``errors`` are what cells raised, ``broke`` what kept learners from going on.
    """

    learners: int
    lesson: str
    start: Waits | None = None
    run: Waits | None = None
    check: Waits | None = None
    move: Waits | None = None
    kernel_mib: float = 0.0
    server_mib: float = 0.0
    kernel_processor_s: float = 0.0
    errors: tuple[str, ...] = ()
    broke: tuple[str, ...] = ()


def waits(seconds: Sequence[float]) -> Waits | None:
    """Summarize what several waited; None for nobody."""
    if not seconds:
        return None
    return Waits(len(seconds), round(statistics.median(seconds), 2), round(max(seconds), 2))


@dataclass
class Class:
    """Learners who come one after another, and stay. ``join`` lets learner number n in, with nothing open."""

    lesson: Lesson
    join: Callable[[int], Awaitable[Learner]]
    server_pid: int | None = None
    learners: list[Learner] = field(default_factory=list)
    kernel_mib: float = 0.0  # of one of them, as soon as there is one

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
        coming = [
            await self._stack.enter_async_context(await self.join(number))
            for number in range(len(self.learners), count)
        ]
        start = await _together([learner.open() for learner in coming], broke)
        run = await _together([self._run(learner, errors) for learner in coming], broke)
        self.learners += coming
        able = [each for each in self.learners if each.sliders]
        move = [await _together([self._move(each) for each in able], broke) for _ in range(MOVES)]
        checking = self.learners[-MOST_CHECKS_AT_ONCE:] if self.lesson.check else []
        check = await _together([self._check(learner, errors) for learner in checking], broke)
        kernels = [learner.pid for learner in self.learners if share_mib([learner.pid])]
        self.kernel_mib = round(share_mib(kernels) / len(kernels), 1) if kernels else 0.0
        return ClassFound(
            len(self.learners),
            self.lesson.number,
            start=waits(start),
            run=waits(run),
            check=waits(check),
            move=waits([seconds for each in move for seconds in each]),
            kernel_mib=self.kernel_mib,
            server_mib=round(_rest_mib(self.server_pid, kernels), 1),
            kernel_processor_s=round(sum(map(processor_s, kernels)) / max(1, len(kernels)), 1),
            errors=tuple(sorted(set(errors))),
            broke=tuple(sorted(set(broke))),
        )

    async def _run(self, learner: Learner, errors: list[str]) -> float:
        begun = time.perf_counter()
        for cell in self.lesson.cells:
            _note(await learner.run(cell, _CELL_TIMEOUT_S), errors)
        return time.perf_counter() - begun

    async def _move(self, learner: Learner) -> float:
        return (await learner.move(next(iter(learner.sliders)), _CELL_TIMEOUT_S)).seconds

    async def _check(self, learner: Learner, errors: list[str]) -> float:
        _note(await learner.run(self.lesson.solution, _CELL_TIMEOUT_S), errors)
        answer = await learner.run(self.lesson.check, _CELL_TIMEOUT_S)
        _note(answer, errors)
        return answer.seconds


def _note(answer: CellRun, errors: list[str]) -> None:
    if answer.error:
        errors.append(answer.error)


async def _together(tasks: Sequence[Awaitable[float]], broke: list[str]) -> list[float]:
    """Wait for all; return the seconds of those that came through, and note what broke the others."""
    came = await asyncio.gather(*tasks, return_exceptions=True)
    for each in came:
        if isinstance(each, BrokenError):
            broke.append(str(each))
        elif isinstance(each, BaseException):
            raise each
    return [each for each in came if isinstance(each, float)]


def share_mib(pids: Iterable[int]) -> float:
    """Return what processes take of memory: their own, and their share of what several have (PSS)."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            total += psutil.Process(pid).memory_full_info().pss / 2**20
    return total


def processor_s(pid: int) -> float:
    """Return the processor time of a process, with that of children it has waited for; 0 if it is gone."""
    with contextlib.suppress(psutil.Error):
        return float(sum(psutil.Process(pid).cpu_times()[:4]))
    return 0.0


def family(pid: int) -> set[int]:
    """Return a process and all that it has started, and that those have."""
    with contextlib.suppress(psutil.Error):
        return {pid, *(each.pid for each in psutil.Process(pid).children(recursive=True))}
    return set()


def _rest_mib(server: int | None, kernels: Sequence[int]) -> float:
    """Return what a server, or a hub with its proxy and the servers of all, takes beside the kernels."""
    if server is None:
        return 0.0
    return share_mib(family(server).difference(*map(family, kernels)))
