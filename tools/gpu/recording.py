"""What was found on one machine with one set of versions: JSON, written whole after every part."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Literal

from amp_lessons._base import files
from amp_lessons._base.typed_json import made

FORMAT = 2
Outcome = Literal["passed", "failed", "skipped"]
Status = Literal["done", "failed", "cut short", "not possible"]


@dataclass(frozen=True)
class Setup:
    """On what and with what it was measured; an empty word where that could not be told."""

    device: str
    capability: str
    driver: str
    torch: str
    cuda: str
    python: str
    transformers: str
    course: str
    threads: int


@dataclass(frozen=True)
class Result:
    """What became of one test, one notebook or one benchmark; ``message`` says why, or what was measured."""

    name: str
    outcome: Outcome
    message: str = ""


@dataclass(frozen=True)
class Part:
    """A part that has ended: what its ``results`` were, and the lines of its output that tell a measurement.

    ``message`` says why where ``status`` is not ``done``; ``at`` is UTC, ``commit`` that of the course.
    """

    status: Status
    results: tuple[Result, ...] = ()
    lines: tuple[str, ...] = ()
    message: str = ""
    at: str = ""
    commit: str = ""
    seconds: float = 0.0


@dataclass
class Recording:
    """All parts of one setup that are known, by name; ``begun`` counts how often one was begun in vain."""

    setup: Setup
    parts: dict[str, Part] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)
    format: int = FORMAT

    def outstanding(self, names: Sequence[str]) -> list[str]:
        """Return those still to be tried: what a machine lacked, it may have by now."""
        return [name for name in names if name not in self.parts or self.parts[name].status == "not possible"]


def write(path: Path, recording: Recording) -> None:
    """Replace the file as a whole, so that a process that is killed leaves the old file or the new one."""
    files.replace(path, json.dumps(asdict(recording), indent=1) + "\n")


def read(path: Path) -> Recording:
    """Read a recording. Raises ValueError where the file is damaged or of another format."""
    try:
        recording = made(Recording, json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} holds no readable recording ({error})") from error
    if recording.format != FORMAT:
        raise ValueError(f"{path} is of format {recording.format}, and not of {FORMAT}")
    return recording


def resumed(folder: Path, setup: Setup) -> tuple[Path, Recording]:
    """Go on with the recording of this setup, or begin one; no file of another setup is touched."""
    for number in count(1):
        words = f"{setup.device} torch {setup.torch} {number if number > 1 else ''}"
        path = folder / f"{re.sub(r'[^a-z0-9.]+', '-', words.lower()).strip('-')}.json"
        if not path.exists():
            return path, Recording(setup)
        try:
            recording = read(path)
        except ValueError as error:
            print(f"{error}. It was set aside as {files.set_aside(path).name}.")
            return path, Recording(setup)
        if recording.setup == setup:
            return path, recording
    raise AssertionError
