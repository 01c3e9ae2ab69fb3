"""Results in words, for a terminal."""

from __future__ import annotations

from amp_lessons.bench.results import Recording, Result
from amp_lessons.text.tables import Table
from amp_lessons.text.words import memory

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
    """Return all results of a recording as text, under its label."""
    rows = [_cells(recording, result) for result in recording.results.values()]
    notes = [f"{' '.join(r.key)}: {r.outcome}. {r.message}" for r in recording.results.values() if r.message]
    return "\n".join(
        [
            f"{recording.provenance} ({recording.preset} size)",
            _in_detail(recording),
            "",
            str(Table(_HEADINGS, rows, notes=notes)),
        ]
    )


def _in_detail(recording: Recording) -> str:
    """Say what else tells one setup from another, and what may be taken for something it is not."""
    setup = recording.setup
    cpu = [setup.cpu] if setup.cpu != setup.device else []
    libraries = [f"Python {setup.python}", f"transformers {setup.transformers}", setup.build]
    words = ", ".join([*libraries, *cpu, f"threads: {setup.threads}"])
    return f"{words}. {_SMALL}" if recording.preset == "small" else words


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
