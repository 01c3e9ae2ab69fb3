"""What the instruments of the course say of one model: gathered one after another, within a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from amp_lessons import audit, devices
from amp_lessons.advice.subject import Subject
from amp_lessons.advice.twenty_steps import Optimizers, audited_steps
from amp_lessons.audit.explaining import Explanation
from amp_lessons.autocast import Islands, Ledger, fake_copy, find_islands, record
from amp_lessons.autocast.running import gradients_on
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.measure import (
    Bound,
    DataSheet,
    Footprint,
    LargestBatch,
    Timing,
    measure_memory,
    predict_bound,
    predict_largest_batch,
    predict_memory,
    time_steps,
)
from amp_lessons.precisions import HALVES, precision_name

T = TypeVar("T")

# Parts of the time that is given; what is left over goes to those that come later.
_FOR_ISLANDS, _FOR_STEPS, _FOR_TIMING = 0.15, 0.4, 0.15
_LONGEST_TIMING_S = 2.0
_CALLS_OF_A_TIMING = 18  # at least: warming up, and a sample in each of twelve rounds


@dataclass
class Facts:
    """All that was found; what could not be is left out, and ``not_done`` says why, a sentence each.

    ``dtype`` is what autocast uses on the GPU of ``sheet``: bf16 where that has it. ``here`` is what it can
    use where the model lies, None where neither is fast; the audited steps run in ``audited_in``.
    """

    subject: Subject
    sheet: DataSheet
    dtype: torch.dtype
    here: torch.dtype | None
    ledger: Ledger | None = None
    refused: Explanation | None = None
    islands: dict[torch.dtype, Islands] = field(default_factory=dict)
    memory: dict[str, Footprint] = field(default_factory=dict)
    largest_batch: dict[str, LargestBatch] = field(default_factory=dict)
    bounds: dict[str, Bound] = field(default_factory=dict)
    timings: dict[str, Timing] = field(default_factory=dict)
    audit: audit.Report | None = None
    audited_in: torch.dtype | None = None
    not_done: list[str] = field(default_factory=list)

    @property
    def half(self) -> str:
        """The short name of ``dtype``: ``"bf16"``."""
        return precision_name(self.dtype)

    @property
    def gpu(self) -> str:
        """The GPU's name."""
        return self.sheet.name


def gathered(
    subject: Subject, sheet: DataSheet, *, optimizer: Optimizers, steps: int, seconds: float
) -> Facts:
    """Ask every instrument about the model. What one of them cannot tell does not stop the others."""
    facts = Facts(subject, sheet, autocast_dtype(sheet), dtype_here(subject.device))
    gathering = _Gathering(facts, time.monotonic(), seconds)
    gathering.record()
    gathering.find_islands()
    gathering.audit(optimizer, steps)
    gathering.predict(optimizer)
    gathering.time()
    gathering.find_largest_batches(optimizer)
    return facts


def autocast_dtype(sheet: DataSheet) -> torch.dtype:
    """Return the dtype to use on a GPU: bf16, which needs no scaler, where its tensor cores have it."""
    return torch.bfloat16 if "bf16" in sheet.flop_per_s else torch.float16


def dtype_here(device: torch.device) -> torch.dtype | None:
    """Return the 16-bit dtype in which products are fast on this device, bf16 first; None for neither."""
    machine = devices.describe()
    if device.type == "cuda" and machine.gpu is not None:
        return torch.bfloat16 if machine.gpu.bf16 == "native" else torch.float16
    support = {torch.bfloat16: machine.cpu.bf16, torch.float16: machine.cpu.fp16}
    return next((dtype for dtype, how in support.items() if how == "native"), None)


class _Gathering:
    """Adds one part after another to the facts."""

    def __init__(self, facts: Facts, start: float, seconds: float) -> None:
        self.facts, self.seconds = facts, seconds
        self.end = start + seconds
        self.fake = True  # until a model turns out to need values

    @property
    def left(self) -> float:
        """The seconds that are left, at least a moment."""
        return max(self.end - time.monotonic(), 0.01)

    def record(self) -> None:
        """Write the ledger of a step, on fake tensors if the model allows it; find what CUDA refuses."""
        try:
            self.facts.ledger = self._fake_or_real(self._ledger)
        except Exception as error:  # it ran in fp32: what it raises is autocast's doing, or fp16's
            self.facts.refused = audit.explain(error)
            self.facts.not_done.append(f"there is no ledger: {_said(error)}")

    def find_islands(self) -> None:
        """Look for islands in both dtypes, the one to be used first."""
        subject, dtypes = self.facts.subject, (self.facts.dtype, *HALVES.values())
        for dtype in dict.fromkeys(dtypes):
            found = self._attempt(
                f"islands in {dtype_name(dtype)} could not be looked for",
                find_islands,
                subject.training,
                subject.batch,
                dtype=dtype,
                seconds=_FOR_ISLANDS * self.seconds,
            )
            if found is not None:
                self.facts.islands[dtype] = found

    def predict(self, optimizer: Optimizers) -> None:
        """Predict memory and the least time on the GPU; memory is measured where it cannot be predicted."""
        facts = self.facts
        for name in ("fp32", facts.half):
            footprint = self._attempt(f"memory in {name} is not known", self._memory, name, optimizer)
            if footprint is not None:
                facts.memory[name] = footprint
        precisions = [name for name in ("fp32", "tf32", facts.half) if name in facts.sheet.flop_per_s]
        for name in precisions:
            bound = self._attempt(f"the least time in {name} is not known", self._bound, name)
            if bound is not None:
                facts.bounds[name] = bound

    def time(self) -> None:
        """Time a forward and backward pass where the model lies, in fp32 and in what is fast there."""
        facts, here = self.facts, self.facts.here
        if here is None:
            return
        expected_s = 2 * _CALLS_OF_A_TIMING * facts.subject.first_s
        if expected_s > self.left:
            facts.not_done.append(f"steps here were not timed: it would have taken about {expected_s:.0f} s")
            return
        timings = self._attempt(
            "steps here were not timed",
            time_steps,
            {"fp32": lambda: self._step(None), precision_name(here): lambda: self._step(here)},
            device=facts.subject.device,
            warmup=1,
            seconds=min(_LONGEST_TIMING_S, _FOR_TIMING * self.seconds) / 2,
        )
        facts.timings = timings or {}

    def audit(self, optimizer: Optimizers, steps: int) -> None:
        """Watch a few steps in the dtype for the GPU, or, where that is slow here, in the one that is not."""
        facts = self.facts
        slow = (
            facts.subject.device.type == "cpu"
            and facts.dtype is torch.float16
            and facts.here is not facts.dtype
        )
        facts.audited_in = torch.bfloat16 if slow else facts.dtype
        islands = facts.islands.get(facts.audited_in)
        facts.audit = self._attempt(
            "no steps were audited",
            audited_steps,
            facts.subject,
            facts.audited_in or facts.dtype,
            islands.names if islands else (),
            optimizer=optimizer,
            steps=steps,
            seconds=min(self.left, _FOR_STEPS * self.seconds),
        )

    def find_largest_batches(self, optimizer: Optimizers) -> None:
        """Find what fits into the GPU, by as many predictions as that takes."""
        facts, subject = self.facts, self.facts.subject
        for name, footprint in facts.memory.items() if self.fake else ():
            found = self._attempt(
                f"the largest batch in {name} is not known",
                predict_largest_batch,
                subject.training,
                lambda samples: (subject.batch_of(samples),),
                facts.sheet.usable_bytes,
                known_peaks={subject.samples: footprint.peak_bytes},
                precision_name=name,
                optimizer=optimizer,
            )
            if found is not None:
                facts.largest_batch[name] = found

    def _ledger(self, fake: bool) -> Ledger:
        subject = self.facts.subject
        model = fake_copy(subject.training) if fake else subject.training
        return record(model, subject.batch, dtype=self.facts.dtype, backward=True)

    def _memory(self, name: str, optimizer: Optimizers) -> Footprint:
        subject = self.facts.subject
        options: dict[str, Any] = {"precision_name": name, "optimizer": optimizer}

        def footprint(fake: bool) -> Footprint:
            follow = predict_memory if fake else measure_memory
            return follow(subject.training, subject.batch, **options)

        return self._fake_or_real(footprint)

    def _bound(self, name: str) -> Bound:
        subject = self.facts.subject
        return predict_bound(subject.training, subject.batch, sheet=self.facts.sheet, precision_name=name)

    @gradients_on()
    def _step(self, dtype: torch.dtype | None) -> None:
        subject = self.facts.subject
        place = subject.device.type
        with torch.autocast(place, dtype=dtype) if dtype else nullcontext():
            loss = subject.training(subject.batch)
        loss.backward()
        subject.training.zero_grad()

    def _fake_or_real(self, ask: Callable[[bool], T]) -> T:
        """Ask on fake tensors; of a model that looks at its values, and of those after it, on real ones."""
        if self.fake:
            try:
                return ask(True)
            except Exception as error:
                result = ask(False)  # what fails for another reason fails here too
                self.fake = False
                self.facts.not_done.append(
                    f"memory is measured here instead of predicted, and no largest batch was looked for: the "
                    f"model looks at values, which tensors without data have not ({_said(error)})"
                )
                return result
        return ask(False)

    def _attempt(self, sentence: str, ask: Callable[..., T], *args: Any, **kwargs: Any) -> T | None:
        """Return the answer, or None: then say why, in a sentence that begins with ``sentence``."""
        if time.monotonic() > self.end:
            self.facts.not_done.append(f"{sentence}: the {self.seconds:g} s were over")
            return None
        try:
            return ask(*args, **kwargs)
        except Exception as error:  # whatever somebody's model may raise
            self.facts.not_done.append(f"{sentence}: {_said(error)}")
            return None


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}"
