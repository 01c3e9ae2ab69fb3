"""What was found on one machine with one set of versions: kept as JSON, read back with every type checked.

A recording belongs to one setup, another one gets a file of its own. A step consists of parts; a part is
finished or not there, so whatever ends the process leaves all parts that came before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

from amp_lessons.keeping import files
from amp_lessons.keeping.from_json import fits, made
from tools.gpu.found import Agreement, Figure, Found

FORMAT = 1

PartStatus = Literal["done", "failed", "not possible", "cut short"]
StepStatus = Literal["passed", "disagreed", "failed", "not possible", "cut short"]


class UnreadableRecordingError(ValueError):
    """A file is damaged or of another format; the message names it and says what is wrong."""


@dataclass(frozen=True)
class Setup:
    """On what and with what a recording was made. An empty word means that it could not be told."""

    device: str
    device_type: str
    capability: str
    driver: str
    torch: str
    cuda: str
    cudnn: str
    python: str
    transformers: str
    course: str
    cpu: str
    threads: int


@dataclass(frozen=True)
class Part:
    """One part of a step. ``message`` says why where its ``status`` is not ``"done"``; ``at`` is UTC."""

    name: str
    status: PartStatus
    at: str
    commit: str = ""
    seconds: float = 0.0
    message: str = ""
    figures: tuple[Figure, ...] = ()
    agreements: tuple[Agreement, ...] = ()
    lines: tuple[str, ...] = ()

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing to try again: what a machine lacks, the next call may find there."""
        return self.status != "not possible"


@dataclass(frozen=True)
class StepRecord:
    """The parts of one step that are known, of all those wanted, in order.

    ``begun`` counts how often a part was begun and not ended. No part wanted means that it is not known yet
    which there are; if finding out went wrong, that is the only part.
    """

    name: str
    wanted: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    begun: Mapping[str, int] = field(default_factory=dict)

    @property
    def outstanding(self) -> tuple[str, ...]:
        """The names of the parts that are still to be tried."""
        finished = {part.name for part in self.parts if part.is_finished}
        return tuple(name for name in self.wanted if name not in finished)

    @property
    def untried(self) -> tuple[str, ...]:
        """The names of those of which nothing is known."""
        known = {part.name for part in self.parts}
        return tuple(name for name in self.wanted if name not in known)

    @property
    def is_finished(self) -> bool:
        """Whether another call would find nothing to do."""
        return bool(self.wanted) and not self.outstanding

    @property
    def seconds(self) -> float:
        """What all parts took together."""
        return round(sum(part.seconds for part in self.parts), 1)

    @property
    def agreements(self) -> tuple[Agreement, ...]:
        """Those of all parts."""
        return tuple(agreement for part in self.parts for agreement in part.agreements)

    @property
    def status(self) -> StepStatus:
        """The step in one word: the worst of what its parts came to."""
        statuses = {part.status for part in self.parts}
        if "failed" in statuses:
            return "failed"
        if not all(agreement.agrees for agreement in self.agreements):
            return "disagreed"
        if statuses == {"not possible"}:
            return "not possible"
        return "passed" if self.is_finished and statuses == {"done"} else "cut short"

    def wanting(self, names: tuple[str, ...]) -> StepRecord:
        """Return the record for these parts; what is known of others is dropped."""
        parts = tuple(part for part in self.parts if part.name in names)
        return replace(self, wanted=names, parts=parts)

    def beginning(self, name: str) -> StepRecord:
        """Note that a part was begun once more."""
        return replace(self, begun={**self.begun, name: self.begun.get(name, 0) + 1})

    def never_begun(self, name: str) -> StepRecord:
        """Forget that a part was begun."""
        return replace(self, begun={other: times for other, times in self.begun.items() if other != name})

    def with_part(self, part: Part) -> StepRecord:
        """Add a part that has ended, in its place, or put it in that of an earlier one."""
        known = {each.name: each for each in self.parts} | {part.name: part}
        order = [*self.wanted, *(name for name in known if name not in self.wanted)]
        parts = tuple(known[name] for name in order if name in known)
        return replace(self.never_begun(part.name), parts=parts)


@dataclass(frozen=True)
class Recording:
    """All steps of one setup, by name, in the order in which they were run."""

    setup: Setup
    steps: Mapping[str, StepRecord] = field(default_factory=dict)

    def step(self, name: str) -> StepRecord:
        """Return what is known of a step, an empty record if that is nothing."""
        return self.steps.get(name, StepRecord(name))

    def with_step(self, step: StepRecord) -> Recording:
        """Return a copy that has this record of a step."""
        return replace(self, steps={**self.steps, step.name: step})

    def without(self, names: tuple[str, ...]) -> Recording:
        """Return a copy that knows nothing of these steps."""
        return replace(self, steps={name: step for name, step in self.steps.items() if name not in names})

    def with_all(self, names: Iterable[str]) -> Recording:
        """Return a copy that has these steps first, in this order, empty records where nothing is known."""
        first = {name: self.step(name) for name in names}
        return replace(self, steps={**first, **{n: step for n, step in self.steps.items() if n not in first}})

    @property
    def parts(self) -> tuple[Part, ...]:
        """Those of all steps."""
        return tuple(part for step in self.steps.values() for part in step.parts)


def found_in(entry: Any) -> Found:
    """Make what a part found of its JSON. Raises TypeError, KeyError or AttributeError where it is none."""
    return Found(
        tuple(made(Figure, each) for each in entry["figures"]),
        tuple(made(Agreement, _claimed_alone(each)) for each in entry["agreements"]),
        _words(entry["lines"]),
    )


def read(path: Path) -> Recording:
    """Read one recording. Raises UnreadableRecordingError where it is damaged or no recording."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']} instead of {FORMAT}")
        steps = [_step(entry) for entry in content["steps"]]
        return Recording(made(Setup, content["setup"]), {step.name: step for step in steps})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise UnreadableRecordingError(f"{path} holds no readable recording ({reason})") from error


def write(path: Path, recording: Recording) -> None:
    """Replace the file as a whole, so that a process that is killed leaves the old file or the new one.

    What follows from the rest, such as each step's ``status``, is written for people, and not read back.
    """
    steps = [_step_as_json(step) for step in recording.steps.values()]
    content = {"format": FORMAT, "setup": asdict(recording.setup), "steps": steps}
    files.replace(path, json.dumps(content, indent=1) + "\n")


def recordings(folder: Path) -> Iterator[tuple[Path, Recording]]:
    """Go through the readable recordings in a folder, by name."""
    for path in sorted({*folder.glob("*.json")} - {*files.were_set_aside(folder / "*.json")}):
        with suppress(UnreadableRecordingError):
            yield path, read(path)


def path_for(folder: Path, setup: Setup) -> Path:
    """Return the file that has this setup's recording, or else the one to begin.

    That may be a file which cannot be read; it never is one of another setup.
    """
    there = dict(recordings(folder))
    for path, recording in there.items():
        if recording.setup == setup:
            return path
    return next(path for path in (folder / file_name(setup, n) for n in count(1)) if path not in there)


def file_name(setup: Setup, number: int = 1) -> str:
    """Name a file after device and torch version; setups that differ in the rest are numbered."""
    words = f"{setup.device} torch {setup.torch} {number if number > 1 else ''}"
    return f"{re.sub(r'[^a-z0-9.]+', '-', words.lower()).strip('-')}.json"


def _step_as_json(step: StepRecord) -> dict[str, Any]:
    parts = [_part_as_json(part) for part in step.parts]
    return {**asdict(step), "parts": parts, "status": step.status, "seconds": step.seconds}


def _part_as_json(part: Part) -> dict[str, Any]:
    return {
        **asdict(part),
        "agreements": [{**asdict(each), "agrees": each.agrees} for each in part.agreements],
    }


def _step(entry: dict[str, Any]) -> StepRecord:
    begun = entry["begun"]
    if not all(fits(times, int) for times in begun.values()):
        raise TypeError(f"begun is {begun!r:.60}")
    (name,) = _words([entry["name"]])
    return StepRecord(name, _words(entry["wanted"]), tuple(map(_part, entry["parts"])), begun)


def _part(entry: dict[str, Any]) -> Part:
    return made(Part, {**entry, **vars(found_in(entry))})


def _claimed_alone(entry: dict[str, Any]) -> dict[str, Any]:
    """Leave out the verdict: it follows from the rest."""
    return {key: value for key, value in entry.items() if key != "agrees"}


def _words(values: Any) -> tuple[str, ...]:
    if not (isinstance(values, list) and all(isinstance(value, str) for value in values)):
        raise TypeError(f"{values!r:.60} is no list of words")
    return tuple(values)
