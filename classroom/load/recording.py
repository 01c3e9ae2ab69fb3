"""What was found on one machine: JSON, written after every level, and the table of ``README.md`` made of it.

``python -m classroom.load.recording`` makes the table again.
"""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from amp_lessons._base import files
from amp_lessons._base.typed_json import made
from amp_lessons.devices import cpu_name
from classroom.load.klass import ClassFound, Waits

FORMAT = 1
FOLDER = Path(__file__).with_name("recordings")
PAGE = Path(__file__).with_name("README.md")
BEGIN = "<!-- made of recordings/ by `python -m classroom.load.recording` -->"
END = "<!-- end of what is made -->"
_BUSY = 0.1  # from here on a machine was not quiet
_WAITS = ("kernel ready", "lesson run", "check", "slider")
_HEAD = ("learners", *_WAITS, "each kernel", "processor", "server", "taken in all", "measured")


def setup(target: str) -> dict[str, Any]:
    """Describe this machine; ``target`` is where the learners were."""
    return {
        "cpu": cpu_name(),
        "cores": _cores(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "jupyter_server": metadata.version("jupyter_server"),
        "kernels": "ordinary",
        "target": target,
    }


class Clock:
    """A stopwatch that also says how much of the processors went to processes that are not ours."""

    def __init__(self) -> None:
        self._begun, self._busy_s, self._ours_s = time.monotonic(), _busy_s(), _ours_s()

    def part(self, name: str, found: ClassFound) -> dict[str, Any]:
        """Return a level that has ended; ``others`` is their share of all processors' time, 0 to 1."""
        seconds = time.monotonic() - self._begun
        others_s = _busy_s() - self._busy_s - (_ours_s() - self._ours_s)
        return {
            "name": name,
            "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "seconds": round(seconds, 1),
            "others": round(min(1.0, max(0.0, others_s / (seconds * _cores()))), 2),
            "available_gib": round(psutil.virtual_memory().available / 2**30, 1),
            "found": asdict(found),
        }


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.system)


def _ours_s() -> float:
    """Return the processor time of this process and all that it has started, at any depth."""
    ours = [psutil.Process(), *psutil.Process().children(recursive=True)]
    total = 0.0
    for each in ours:
        try:
            total += sum(each.cpu_times()[:4])
        except psutil.Error:
            continue
    return total


def path_for(folder: Path, here: dict[str, Any]) -> Path:
    """Return where the recording of a setup is kept."""
    words = "{cores} cores {memory_gib} gib torch {torch} {target} {kernels}".format(**here)
    return folder / (re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-") + ".json")


def add(path: Path, here: dict[str, Any], part: dict[str, Any]) -> None:
    """Add a level, or put it in the place of an earlier one; the file is replaced as a whole."""
    content = _content(path) if path.exists() else {"format": FORMAT, "setup": here, "parts": []}
    names = [each["name"] for each in content["parts"]]
    place = names.index(part["name"]) if part["name"] in names else len(names)
    content["parts"][place : place + 1] = [part]
    files.replace(path, json.dumps({**content, "setup": here}, indent=1) + "\n")


def _content(path: Path) -> dict[str, Any]:
    """Read a recording. Raises ValueError where it is damaged or none."""
    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']} instead of {FORMAT}")
        for part in content["parts"]:
            _found(part)
        return content
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no readable recording ({error}); move it away") from error


def _found(part: dict[str, Any]) -> ClassFound | None:
    """Return what a class came to; None for what earlier versions measured of one learner alone."""
    return made(ClassFound, part["found"], unknown_too=True) if "learners" in part["found"] else None


def write_page(folder: Path = FOLDER, page: Path = PAGE) -> None:
    """Make the tables of the page again, and leave the rest of it."""
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    tables = "".join(f"{_table(_content(path))}\n\n" for path in sorted(folder.glob("*.json")))
    files.replace(page, f"{before}{BEGIN}\n\n{tables}{END}{after}")


def in_words(found: ClassFound) -> str:
    """Describe what was found in one line."""
    told = f"{found.kernel_mib:.0f} MiB per kernel, check {_waits(found.check)}, slider {_waits(found.move)}"
    return "; ".join([told, *found.broke, *found.errors])


def _table(content: dict[str, Any]) -> str:
    here = content["setup"]
    rows = [
        _row(part, found)
        for part in sorted(content["parts"], key=lambda part: part["found"].get("learners", 0))
        if (found := _found(part))
    ]
    cells = [_HEAD, ["---", *["---:"] * (len(_HEAD) - 2), "---"], *rows]
    pieces = [
        f"### {here['kernels'].capitalize()} kernels, {here['target']}, {here['cores']} cores",
        "{cpu}, {cores} cores, {memory_gib} GiB, {system}; Python {python}, torch {torch}, jupyter_server "
        "{jupyter_server}.".format(**here),
        "\n".join(f"| {' | '.join(each)} |" for each in cells),
        *_troubles(content["parts"]),
    ]
    return "\n\n".join(pieces)


def _row(part: dict[str, Any], found: ClassFound) -> list[str]:
    at_once = f" ({found.check.count} at once)" if found.check else ""
    others = f"; others took {part['others']:.0%} of the processors" if part["others"] >= _BUSY else ""
    taken_mib = found.learners * found.kernel_mib + found.server_mib
    return [
        f"{found.learners} with lesson {found.lesson}",
        *(_waits(found.start), _waits(found.run), _waits(found.check) + at_once, _waits(found.move)),
        f"{found.kernel_mib:.0f} MiB",
        f"{found.kernel_processor_s:.0f} s",
        f"{found.server_mib:.0f} MiB",
        f"{taken_mib / 1024:.1f} GiB",
        f"{part['at'][:10]}{others}",
    ]


def _waits(waits: Waits | None) -> str:
    return f"{waits.median_s:.1f} to {waits.longest_s:.1f} s" if waits else "–"


def _troubles(parts: list[dict[str, Any]]) -> Iterator[str]:
    found = [(part["name"], _found(part)) for part in parts]
    lines = [f"- {name}: {words}" for name, each in found if each for words in (*each.broke, *each.errors)]
    if lines:
        yield "\n".join(lines)


if __name__ == "__main__":
    write_page()
