"""What was found on one machine with one set of versions: JSON, written after every part, read back whole."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from amp_lessons.keeping import files
from classroom.load import machine
from classroom.load.klass import ClassFound, LessonFound, Waits

FORMAT = 1
FOLDER = Path(__file__).with_name("recordings")


@dataclass(frozen=True)
class Setup:
    """On what, and with what. ``target`` is where the learners were: a server of our own, or another."""

    cpu: str
    cores: int
    memory_gib: int
    system: str
    python: str
    torch: str
    jupyter_server: str
    kernels: str
    target: str


@dataclass(frozen=True)
class Part:
    """One part: when it ended (UTC), how long it took, and how busy others kept the machine meanwhile.

    ``others`` is the share of all processors' time that went to processes that were not ours.
    """

    name: str
    at: str
    seconds: float
    others: float
    available_gib: float
    found: ClassFound | LessonFound


@dataclass(frozen=True)
class Recording:
    """All parts of one setup, by name."""

    setup: Setup
    parts: Mapping[str, Part] = field(default_factory=dict)

    def with_part(self, part: Part) -> Recording:
        """Return a copy that has this part."""
        return replace(self, parts={**self.parts, part.name: part})


def setup(kernels: str, target: str) -> Setup:
    """Describe this machine."""
    return Setup(
        machine.cpu(),
        machine.cores(),
        round(machine.total_mib() / 1024),
        f"{platform.system()} {platform.release().split('-')[0]}",
        platform.python_version(),
        machine.version("torch"),
        machine.version("jupyter_server"),
        kernels,
        target,
    )


def path_for(folder: Path, here: Setup) -> Path:
    """Return where the recording of a setup is kept."""
    words = f"{here.cores} cores {here.memory_gib} gib torch {here.torch} {here.target} {here.kernels}"
    return folder / (re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-") + ".json")


def read(path: Path) -> Recording:
    """Read a recording. Raises ValueError where it is damaged or none."""
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']} instead of {FORMAT}")
        parts = [Part(**{**entry, "found": _found(entry["found"])}) for entry in content["parts"]]
        return Recording(Setup(**content["setup"]), {part.name: part for part in parts})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} holds no readable recording ({error})") from error


def write(path: Path, recording: Recording) -> None:
    """Replace the file as a whole."""
    content = {
        "format": FORMAT,
        "setup": asdict(recording.setup),
        "parts": [asdict(part) for part in recording.parts.values()],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    files.replace(path, json.dumps(content, indent=1) + "\n")


def resumed(path: Path, here: Setup) -> Recording:
    """Go on with what is there, or begin; what is damaged is set aside."""
    if not path.exists():
        return Recording(here)
    try:
        return read(path)
    except ValueError as error:
        print(f"{error}. It was set aside as {files.set_aside(path).name}.")
        return Recording(here)


def all_in(folder: Path) -> Iterator[Recording]:
    """Yield what is recorded in a folder, in the order of names."""
    for path in sorted(folder.glob("*.json")):
        yield read(path)


def _found(entry: dict[str, Any]) -> ClassFound | LessonFound:
    entry = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
    if "learners" not in entry:
        return LessonFound(**entry)
    for name in ("start", "run", "check", "move"):
        entry[name] = Waits(**entry[name]) if entry[name] else None
    return ClassFound(**entry)
