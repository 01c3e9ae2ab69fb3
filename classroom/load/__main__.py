"""Measure how many learners a Jupyter server or a hub bears: ``make classroom-load``."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil

from amp_lessons._base import files
from classroom.load import klass, places, recording
from classroom.load.klass import Class
from classroom.load.learner import BrokenError

LEVELS = (1, 5, 10, 20, 30)
_FIRST_MIB = 600.0  # for a learner, as long as nothing is known of any


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and write the page; 1 where nothing can be measured."""
    chosen = _parser().parse_args(argv)
    try:
        chosen.out.mkdir(parents=True, exist_ok=True)
        with files.acquired(chosen.out / "load.lock"), ExitStack() as stack:
            return _measured(chosen, stack)
    except files.InUseError:
        return _complain(f"Another `make classroom-load` is writing to {chosen.out}.")
    except (ValueError, RuntimeError, BrokenError) as error:
        return _complain(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("make classroom-load", description=__doc__)
    add = parser.add_argument
    add("--levels", type=int, nargs="+", default=LEVELS, help="learners at once (default: 1 5 10 20 30)")
    add("--lesson", default="03", help="what they run (default: 03)")
    add("--hub", help="demo: the course's hub for trying; or a file with a hub's url and passwords, in JSON")
    add("--leave-gib", type=float, default=4.0, help="memory not to touch: then no more come (default: 4)")
    add("--out", type=Path, default=recording.FOLDER, help=f"default: {recording.FOLDER}")
    return parser


def _measured(chosen: argparse.Namespace, stack: ExitStack) -> int:
    levels = sorted(set(chosen.levels))
    lesson = klass.read(chosen.lesson)
    needed = min(_FIRST_MIB * levels[0], 4 * _FIRST_MIB)
    if not _bears(needed, chosen.leave_gib):
        return 1
    place = places.entered(chosen.hub, levels[-1], stack)
    here = recording.setup("hub" if chosen.hub else "own server")
    path = recording.path_for(chosen.out, here)
    print(f"{here['cpu']}, {here['cores']} cores, {here['memory_gib']} GiB: {path}", flush=True)

    async def grow() -> None:
        async with Class(lesson, place.join, place.pid) as room:
            for count in levels:
                if not _bears(
                    (room.kernel_mib or _FIRST_MIB) * (count - len(room.learners)), chosen.leave_gib
                ):
                    return
                clock = recording.Clock()
                found = await room.grow(count)
                recording.add(path, here, clock.part(f"{chosen.lesson} with {count}", found))
                print(f"{count}: {recording.in_words(found)}", flush=True)

    asyncio.run(grow())
    if chosen.out == recording.FOLDER:
        recording.write_page()
    return 0


def _bears(more_mib: float, leave_gib: float) -> bool:
    """Return whether there is memory for so much more."""
    left_gib = (psutil.virtual_memory().available / 2**20 - more_mib) / 1024
    if left_gib < leave_gib:
        print(f"More learners would leave {left_gib:.1f} GiB; {leave_gib:g} GiB are not touched.")
    return left_gib >= leave_gib


def _complain(message: str) -> int:
    print(message, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
