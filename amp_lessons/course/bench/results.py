"""What a benchmark found: kept as JSON after every measurement, read back with its provenance, as a table."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import torch

from amp_lessons import devices
from amp_lessons._base import files
from amp_lessons._base.text.tables import Table
from amp_lessons._base.text.words import memory
from amp_lessons._base.typed_json import made
from amp_lessons.measure import Difference, Timing

Mode = Literal["eager", "compiled"]
Outcome = Literal["measured", "out of memory", "does not fit", "not supported", "failed", "interrupted"]
Key = tuple[str, str, Mode]

FORMAT = 1


@dataclass(frozen=True)
class Result:
    """One training step of one model in one precision.

    ``message`` says in words why there is no time where ``outcome`` is not ``"measured"``. ``peak_bytes`` is
    what the step allocated at most, or None where that could not be told; ``predicted_bytes`` what
    ``measure.predict_memory`` expected. ``measured_at`` is UTC in ISO 8601.
    """

    model: str
    precision: str
    mode: Mode
    outcome: Outcome
    batch: int
    measured_at: str
    message: str = ""
    samples_ms: tuple[float, ...] = ()
    first_call_ms: float | None = None
    calls_per_sample: int = 1
    peak_bytes: int | None = None
    predicted_bytes: int | None = None

    @property
    def key(self) -> Key:
        """What a result is found by."""
        return self.model, self.precision, self.mode

    @property
    def timing(self) -> Timing | None:
        """The time of a step, with its spread, if it was measured."""
        if not self.samples_ms:
            return None
        return Timing(self.samples_ms, "recorded", self.first_call_ms, self.calls_per_sample)


@dataclass(frozen=True)
class Setup:
    """On what and with what a recording was made."""

    device: str
    device_type: str
    torch: str
    build: str
    python: str
    transformers: str
    cpu: str
    threads: int


@dataclass(frozen=True)
class Recording:
    """All results of one preset on one machine, by key, in the order in which they were found."""

    setup: Setup
    preset: str
    results: Mapping[Key, Result] = field(default_factory=dict)
    running: Key | None = None

    @property
    def date(self) -> str:
        """The day of the measurements, or the first and the last."""
        days = sorted({result.measured_at[:10] for result in self.results.values()})
        return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "no results yet"

    @property
    def provenance(self) -> str:
        """The label under which results are shown."""
        return f"recorded on {self.setup.device}, {self.date}, torch {self.setup.torch}"

    def with_result(self, result: Result) -> Recording:
        """Return a copy that also has, or has instead, this result."""
        return replace(self, results={**self.results, result.key: result}, running=None)

    def speedup(
        self, model: str, precision: str, mode: Mode = "eager", baseline: str = "fp32"
    ) -> Difference | None:
        """Compare a step with the same step in ``baseline``, eager; None unless both were measured."""
        timings = [self._timing(model, precision, mode), self._timing(model, baseline, "eager")]
        return timings[0].compare(timings[1]) if timings[0] and timings[1] else None

    def memory_saving(
        self, model: str, precision: str, mode: Mode = "eager", baseline: str = "fp32"
    ) -> float | None:
        """Return the share of the eager ``baseline``'s peak that is saved; None unless both are known."""
        own, other = self.results.get((model, precision, mode)), self.results.get((model, baseline, "eager"))
        if own is None or other is None or own.peak_bytes is None or not other.peak_bytes:
            return None
        return 1 - own.peak_bytes / other.peak_bytes

    def _timing(self, model: str, precision: str, mode: Mode) -> Timing | None:
        result = self.results.get((model, precision, mode))
        return result.timing if result else None


class UnreadableResultsError(ValueError):
    """A file of results is damaged or of another format; the message names it."""


class UnwritableResultsError(OSError):
    """Results cannot be kept; the message says where and why."""


def this_setup(device: torch.device) -> Setup:
    """Describe the machine and the versions that measure now."""
    machine = devices.describe()
    on_gpu = device.type == "cuda" and machine.gpu is not None
    return Setup(
        device=torch.cuda.get_device_name(device) if on_gpu else machine.cpu.name,
        device_type=device.type,
        torch=machine.torch_version,
        build=machine.torch_build,
        python=platform.python_version(),
        transformers=metadata.version("transformers"),
        cpu=machine.cpu.name,
        threads=machine.cpu.threads,
    )


def read(path: Path) -> Recording:
    """Read one file of results; UnreadableResultsError where it is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']} instead of {FORMAT}")
        results = [_result(entry) for entry in content["results"]]
        found = {result.key: result for result in results}
        running = content.get("running")
        return Recording(
            made(Setup, content["setup"]),
            str(content["preset"]),
            found,
            made(tuple[str, str, Mode], running) if running else None,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise UnreadableResultsError(f"{path} holds no readable results ({reason})") from error


def write(path: Path, recording: Recording) -> None:
    """Replace the file as a whole, so that a process that is killed leaves the old file or the new one."""
    content = {
        "format": FORMAT,
        "setup": asdict(recording.setup),
        "preset": recording.preset,
        "running": recording.running,
        "results": [asdict(result) for result in recording.results.values()],
    }
    with writing_to(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace(path, json.dumps(content, indent=1) + "\n")


def set_aside(path: Path) -> Path:
    """Rename a file that cannot be read, so that nothing overwrites it; return its new name."""
    with writing_to(path.parent):
        return files.set_aside(path)


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turn the system's refusal to write to ``folder`` into an ``UnwritableResultsError``."""
    try:
        yield
    except OSError as error:
        is_file = isinstance(error, (FileExistsError, NotADirectoryError))
        reason = "it is not a folder" if is_file else error.strerror or str(error)
        raise UnwritableResultsError(f"Results cannot be kept in {folder}: {reason}.") from error


def _result(entry: dict[str, Any]) -> Result:
    result = made(Result, entry)
    if result.timing and len(result.samples_ms) < 2:  # Timing itself refuses those below zero
        raise ValueError("a single sample")
    return result


_HEADINGS = (
    "model",
    "mode",
    "precision",
    "batch",
    "step",
    "against eager fp32",
    "peak",
    "saved",
    "predicted peak",
)
_SMALL = "Small: a few layers of each kind, not the published models."


def table(recording: Recording) -> str:
    """Return all results of a recording as text, under its label.

    Below that stands what else distinguishes setups, and what may be taken for something it is not.
    """
    setup, found = recording.setup, recording.results.values()
    cpu = [setup.cpu] if setup.cpu != setup.device else []
    libraries = [f"Python {setup.python}", f"transformers {setup.transformers}", setup.build]
    detail = ", ".join([*libraries, *cpu, f"threads: {setup.threads}"])
    detail += f". {_SMALL}" if recording.preset == "small" else ""
    notes = [f"{' '.join(each.key)}: {each.outcome}. {each.message}" for each in found if each.message]
    rows = str(Table(_HEADINGS, [_cells(recording, each) for each in found], notes=notes))
    return "\n".join([f"{recording.provenance} ({recording.preset} size)", detail, "", rows])


def _cells(recording: Recording, result: Result) -> tuple[str, ...]:
    timing = result.timing
    speedup = recording.speedup(*result.key)
    saving = recording.memory_saving(*result.key)
    return (
        result.model,
        result.mode,
        result.precision,
        str(result.batch or ""),
        f"{timing.median_ms:.1f} ms ± {timing.spread_fraction / 2:.0%}" if timing else result.outcome,
        str(speedup) if speedup and result.key[1:] != ("fp32", "eager") else "",
        memory(result.peak_bytes) if result.peak_bytes else "",
        f"{saving:.0%}" if saving is not None and result.key[1:] != ("fp32", "eager") else "",
        memory(result.predicted_bytes) if result.predicted_bytes else "",
    )
