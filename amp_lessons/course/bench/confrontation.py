"""What a source claims about a model, beside what is predicted and what was recorded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from amp_lessons.course.bench.calculator import SUBJECTS, TrainingStep, predict
from amp_lessons.course.bench.results import Mode, Recording
from amp_lessons.course.bench.workloads import WORKLOADS, Claim
from amp_lessons.measure import Difference

MODES: tuple[Mode, ...] = ("eager", "compiled")


@dataclass(frozen=True)
class Measured:
    """What one recording found for one model, against eager steps of the same machine and batch.

    ``speedup`` and ``memory_saving`` are against fp32 that may not use TF32, in convolutions neither;
    ``over_tf32`` is against TF32 everywhere, None where the device has none.
    """

    provenance: str
    preset: str
    mode: Mode
    precision: str
    speedup: Difference | None
    over_tf32: Difference | None
    memory_saving: float | None


@dataclass(frozen=True)
class Confrontation:
    """One model, and what a source claims of it, if one does. Savings are shares of a step's peak in fp32.

    The prediction is for an uncompiled step with AdamW at the full size, by CUDA's rules: no GPU needed.
    """

    model: str
    claim: Claim | None
    batch: int
    fp32_peak_bytes: int
    peak_bytes: int
    measured: tuple[Measured, ...]

    @property
    def predicted_memory_saving(self) -> float:
        """The share of memory that mixed precision is predicted to save."""
        return 1 - self.peak_bytes / self.fp32_peak_bytes


def confront(
    model: str, recordings: Iterable[Recording] = (), *, precision: str = "fp16", batch: int | None = None
) -> Confrontation:
    """Confront what is claimed of one of ``WORKLOADS`` with the prediction and with ``recordings``."""
    claim, subject = WORKLOADS[model].claim, SUBJECTS[model]
    count = batch or subject.batch
    fp32, half = (
        predict(TrainingStep(subject, count, subject.size, "AdamW", name)).peak_bytes
        for name in ("fp32", precision)
    )
    return Confrontation(model, claim, count, fp32, half, recorded(model, recordings, precision))


def recorded(model: str, recordings: Iterable[Recording], precision: str = "fp16") -> tuple[Measured, ...]:
    """Return what ``recordings`` found for ``model`` in this precision, one entry per recording and mode."""
    return tuple(
        Measured(
            provenance=recording.provenance,
            preset=recording.preset,
            mode=mode,
            precision=precision,
            speedup=recording.speedup(model, precision, mode),
            over_tf32=recording.speedup(model, precision, mode, baseline="tf32"),
            memory_saving=recording.memory_saving(model, precision, mode),
        )
        for recording in recordings
        for mode in MODES
        if (model, precision, mode) in recording.results
    )
