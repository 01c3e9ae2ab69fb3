"""What a learner needs of memory and processor, from what was measured: the one place for these figures.

``sizes.json`` holds the measurements and says how they were made. The hub's limits and the sizes of
``classroom/kubernetes`` follow from them by the rules here.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("sizes.json")
EVERYDAY = ("00", "01", "02", "03", "04", "05", "06", "08", "09", "10")
HUNGRY = ("07", "11")  # one fine-tunes a pretrained model, one lets a decoder write
STEP_MIB = 128
ROOM_TO_PLAY = 1.25  # a learner tries a size or two larger than the lesson's


@dataclass(frozen=True)
class Lesson:
    """One lesson, run from top to bottom: its kernel's peak resident size, and what it asked for, in MiB."""

    resident_mib: float
    asked_for_mib: float


def measured() -> dict[str, Lesson]:
    """Return the measurement of each lesson, by its number."""
    return {number: Lesson(**entry) for number, entry in _content()["lessons"].items()}


def server_mib() -> float:
    """Return what a learner's server takes beside the kernel: its share, in MiB."""
    return float(_content()["server_mib"])


def guarantee_mib(lessons: Collection[str]) -> int:
    """Return what has to be there for each learner who runs the hungriest of some lessons."""
    return _rounded(server_mib() + max(measured()[number].resident_mib for number in lessons))


def limit_mib(lessons: Collection[str]) -> int:
    """Return where to stop a learner: what one process asks for is counted, and is more than it touches."""
    most = max(max(entry.resident_mib + server_mib(), entry.asked_for_mib) for entry in _of(lessons))
    return _rounded(most * ROOM_TO_PLAY)


def learners(memory_mib: float, lessons: Collection[str], system_mib: float = 2048) -> int:
    """Return how many learners fit into a machine's memory at once, each with one kernel."""
    return max(0, int((memory_mib - system_mib) // guarantee_mib(lessons)))


def _of(lessons: Collection[str]) -> list[Lesson]:
    return [measured()[number] for number in lessons]


def _rounded(mib: float) -> int:
    return int(-(-mib // STEP_MIB) * STEP_MIB)


def _content() -> Any:
    return json.loads(FILE.read_text("utf-8"))
