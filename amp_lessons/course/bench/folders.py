"""Where results are kept: in the learner's own folder, and in that of the recordings the course comes with.

A file belongs to one setup. Another one, be it another number of threads, gets a file of its own, so that
what a file says about its results is true of all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from amp_lessons._base.files import InUseError, acquired, were_set_aside
from amp_lessons.course import progress
from amp_lessons.course.bench.results import Recording, Setup, UnreadableResultsError, read, writing_to


class FolderInUseError(RuntimeError):
    """Another benchmark is writing to the folder; the message names it."""


def own_folder() -> Path:
    """Return where this learner's results are kept: beside the progress file. Raises ``ProgressError``."""
    return progress.home() / "bench"


def shipped_folder() -> Path:
    """Return where the recordings of the course lie: ``recordings``, beside this file."""
    return Path(__file__).with_name("recordings")


def recordings(folder: Path | None = None) -> tuple[Recording, ...]:
    """Read the results in ``folder``, GPUs first, then the latest.

    By default this learner's own come first, then those that the course comes with. Files that cannot be
    read, or have no results yet, are passed over.
    """
    if folder is not None:
        return tuple(_in_order(folder))
    own: list[Recording] = []
    with suppress(progress.ProgressError):  # whatever writes there says it
        own = _in_order(own_folder())
    return (*own, *_in_order(shipped_folder()))


def path_for(folder: Path, setup: Setup, preset: str) -> Path:
    """Return the file that has the results of this setup and preset, or else the one to begin.

    That may be a file which cannot be read; it never is one of another setup.
    """
    there = dict(files(folder))
    for path, recording in there.items():
        if (recording.setup, recording.preset) == (setup, preset):
            return path
    names = (folder / file_name(setup, preset, number) for number in count(1))
    return next(path for path in names if path not in there)


def file_name(setup: Setup, preset: str, number: int = 1) -> str:
    """Name a file after device, torch version and preset; setups that differ in the rest are numbered."""
    words = f"{setup.device} torch {setup.torch} {preset} {number if number > 1 else ''}"
    return f"{re.sub(r'[^a-z0-9.]+', '-', words.lower()).strip('-')}.json"


def files(folder: Path) -> Iterator[tuple[Path, Recording]]:
    """Yield the readable files of results in a folder, by name."""
    for path in _paths(folder):
        with suppress(UnreadableResultsError):
            yield path, read(path)


def unreadable(folder: Path) -> list[str]:
    """Name each file in a folder that cannot be read as results, and say why."""
    found = []
    for path in _paths(folder):
        try:
            read(path)
        except UnreadableResultsError as error:
            found.append(f"{error}")
    return found


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Keep ``folder`` to this process, or raise ``FolderInUseError``: two runs would slow each other down.

    Raises ``UnwritableResultsError`` where nothing can be written.
    """
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock = acquired(folder / "bench.lock")
        except InUseError as error:
            raise FolderInUseError(
                f"Another `amp-lessons bench` is measuring, with its results in {folder}. Two at once would "
                "slow each other down: start this one again when that one has ended."
            ) from error
    with lock:
        yield


def _paths(folder: Path) -> list[Path]:
    try:
        return sorted({*folder.glob("*.json")} - {*were_set_aside(folder / "*.json")})
    except OSError:  # a folder that may not be searched has nothing to show
        return []


def _in_order(folder: Path) -> list[Recording]:
    def last(recording: Recording) -> str:
        return max(result.measured_at for result in recording.results.values())

    found = [recording for _, recording in files(folder) if recording.results]
    found.sort(key=last, reverse=True)
    return sorted(found, key=lambda recording: recording.setup.device_type != "cuda")
