"""The command line of ``make classroom-load``."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timezone
from pathlib import Path

from amp_lessons import lessons
from amp_lessons.keeping import files
from classroom.load import lesson as lessons_of
from classroom.load import machine, page, recording
from classroom.load.hub import DemoHub, Hub
from classroom.load.klass import Class, ClassFound, Join, LessonFound, measure_lesson
from classroom.load.learner import BrokenError, Learner
from classroom.load.recording import Part, Recording
from classroom.load.server import Server

LEVELS = (1, 5, 10, 20, 30)
OWN = "own server"
_FIRST_MIB = 600.0  # for the first learner, of whom nothing is known
_EPILOG = (
    "What is finished is kept at once and not repeated: the same command goes on where an earlier one was "
    "ended, however that was."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is outstanding and write the page; 1 where nothing can be measured."""
    parser = _parser()
    chosen = parser.parse_args(argv)
    if sys.platform != "linux":
        return _complain("make classroom-load reads memory and processor time as Linux tells them.")
    if (chosen.url is None) != (chosen.token is None):
        parser.error("--url and --token belong together")
    try:
        chosen.out.mkdir(parents=True, exist_ok=True)
        with files.acquired(chosen.out / "load.lock"):
            return _measured(chosen)
    except files.InUseError:
        return _complain(f"Another `make classroom-load` is writing to {chosen.out}.")
    except (ValueError, RuntimeError, BrokenError) as error:
        return _complain(str(error))
    except KeyboardInterrupt:
        return _complain("\nInterrupted; the same command goes on from there.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("make classroom-load", description=__doc__, epilog=_EPILOG)
    add = parser.add_argument
    add("--levels", type=int, nargs="*", default=LEVELS, help="learners at once (default: 1 5 10 20 30)")
    add("--lesson", default="03", help="what they run (default: 03)")
    add("--alone", nargs="*", default=None, metavar="NN", help="lessons to run alone (default: all)")
    add("--forked", action="store_true", help="kernels forked from one that has imported the course")
    add("--url", help="of a Jupyter server, where this is not to start one")
    add("--token", help="that lets in there")
    add(
        "--hub", help="demo: the course's own hub with made-up learners; or a file with its url and passwords"
    )
    add("--minutes", type=float, default=30.0, help="when to stop (default: 30)")
    add(
        "--leave-gib", type=float, default=4.0, help="memory not to touch: no more learners then (default: 4)"
    )
    add("--fresh", action="store_true", help="forget what was found earlier of what is asked for")
    add("--out", type=Path, default=recording.FOLDER, help=f"default: {recording.FOLDER}")
    return parser


def _measured(chosen: argparse.Namespace) -> int:
    target = "hub" if chosen.hub else "another server" if chosen.url else OWN
    kernels = "the hub's own" if chosen.hub else "forked" if chosen.forked else "ordinary"
    here = recording.setup(kernels, target)
    path = recording.path_for(chosen.out, here)
    run = Run(chosen, path, recording.resumed(path, here))
    print(f"{here.cpu}, {here.cores} cores, {here.memory_gib} GiB: {path}", flush=True)
    asyncio.run(run.all())
    if chosen.out == recording.FOLDER:
        page.write(list(recording.all_in(chosen.out)))
    return 0


class Run:
    """One call: what was asked for, and what is known already."""

    def __init__(self, chosen: argparse.Namespace, path: Path, known: Recording) -> None:
        self.chosen, self.path, self.recording = chosen, path, known
        self.deadline = time.monotonic() + 60 * chosen.minutes
        self._measured: set[str] = set()

    async def all(self) -> None:
        """Measure the class, level by level, then each lesson alone."""
        chosen = self.chosen
        levels = {f"{chosen.lesson} with {count}": count for count in sorted(set(chosen.levels))}
        alone = lessons_of.numbers() if chosen.alone is None else chosen.alone
        singles = {f"{number} alone": number for number in alone}
        if self._outstanding(levels) and self._bears(_FIRST_MIB):
            await self._class(levels)
        if self._outstanding(singles) and self._bears(_FIRST_MIB):
            await self._lessons(singles)
        left = [*self._outstanding(levels), *self._outstanding(singles)]
        if left:
            print(f"Left for the next call: {', '.join(left)}.")

    def _outstanding(self, names: Iterable[str]) -> list[str]:
        known = self._measured if self.chosen.fresh else self.recording.parts
        return [name for name in names if name not in known]

    async def _class(self, levels: dict[str, int]) -> None:
        """Have a class grow through the levels, those that are known included: a level begins at the last."""
        outstanding = self._outstanding(levels)
        highest = max(levels[name] for name in outstanding)
        async with AsyncExitStack() as stack:
            join, pid = await self._target(stack)
            lesson = lessons_of.read(self.chosen.lesson)
            room = await stack.enter_async_context(Class(lesson, join, pid))
            for name, count in levels.items():
                if not self._bears(room.kernel_mib * (count - len(room.learners))):
                    return
                if count > highest:
                    return
                if name not in outstanding:
                    await room.grow(count)
                elif not await self._part(name, lambda n=count: room.grow(n)):
                    return

    def _bears(self, more_mib: float) -> bool:
        """Say whether there is time, and memory for so much more."""
        left = (machine.available_mib() - more_mib) / 1024
        if left < self.chosen.leave_gib:
            print(f"More learners would leave {left:.1f} GiB; {self.chosen.leave_gib:g} GiB are not touched.")
        return left >= self.chosen.leave_gib and time.monotonic() < self.deadline

    async def _lessons(self, singles: dict[str, str]) -> None:
        async with AsyncExitStack() as stack:
            join, _ = await self._target(stack)
            for name in self._outstanding(singles):
                lesson = lessons_of.read(singles[name])
                if not await self._part(name, lambda each=lesson: measure_lesson(each, join)):
                    return

    async def _target(self, stack: AsyncExitStack) -> tuple[Join, int | None]:
        """Return what lets a learner in, and the server's process if that is ours."""
        if self.chosen.hub == "demo":
            demo = stack.enter_context(DemoHub(max(self.chosen.levels, default=1)))
            return demo.hub.join, demo.process.pid
        if self.chosen.hub:
            return Hub.read(Path(self.chosen.hub)).join, None
        url, token, pid = self.chosen.url, self.chosen.token, None
        if url is None:
            server = stack.enter_context(Server(lessons.originals(), forked=self.chosen.forked))
            url, token, pid = server.url, server.token, server.pid

        async def join(number: int) -> Learner:
            return Learner(url, token)

        return join, pid

    async def _part(self, name: str, measure: Callable[[], Awaitable[ClassFound | LessonFound]]) -> bool:
        """Measure one part and keep it; False if there was no time for it."""
        left_s = self.deadline - time.monotonic()
        watch = machine.Watch()
        try:
            found = await asyncio.wait_for(measure(), max(left_s, 0.0))
        except (asyncio.TimeoutError, BrokenError) as error:
            print(f"{name:12} {error or 'no time left'}", flush=True)
            return isinstance(error, BrokenError)
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        part = Part(name, now, *watch.ended(), round(machine.available_mib() / 1024, 1), found)
        self._measured.add(name)
        self.recording = self.recording.with_part(part)
        recording.write(self.path, self.recording)
        print(f"{name:12} {part.seconds:6.1f} s  {page.in_words(found)}", flush=True)
        return True


def _complain(words: str) -> int:
    print(words, file=sys.stderr)
    return 1
