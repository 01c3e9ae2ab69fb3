"""One case of a benchmark: take training steps of a model, say how long and how much memory, or why not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cache, lru_cache
from typing import Any

import torch
from torch import nn

from amp_lessons._base.text.words import memory
from amp_lessons.autocast import fake_tensors
from amp_lessons.course.bench import eight_bits
from amp_lessons.course.bench.results import Key, Mode, Outcome, Result
from amp_lessons.course.bench.workloads import WORKLOADS
from amp_lessons.devices import free_bytes
from amp_lessons.measure import (
    Precision,
    Timing,
    fp32_products,
    measure_memory,
    precision,
    predict_memory,
    time_step,
)
from amp_lessons.measure.batch import is_out_of_memory, release_memory


@dataclass(frozen=True)
class BenchCase:
    """What is to be measured: a model of ``WORKLOADS`` in one of its presets, in one precision and mode."""

    model: str
    precision: str
    mode: Mode
    preset: str

    @property
    def key(self) -> Key:
        """What its result is found by."""
        return self.model, self.precision, self.mode

    def __str__(self) -> str:
        return " ".join(self.key)


def all_cases(
    models: Iterable[str], precisions: Iterable[str], modes: Iterable[Mode], preset: str
) -> list[BenchCase]:
    """Return every combination, model by model, so that what is compared is measured close together."""
    names = tuple(precisions)
    return [BenchCase(model, name, mode, preset) for model in models for mode in modes for name in names]


def fitting_batch(model: str, preset: str, device: torch.device) -> int:
    """Halve the batch of the preset until a step in fp32 is predicted to fit; 0 if not even one item does."""
    batch = WORKLOADS[model].size(preset).batch
    while batch and predicted_bytes(model, preset, batch, "fp32", device.type) > free_bytes(device):
        batch //= 2
    return batch


@cache
def predicted_bytes(model: str, preset: str, batch: int, precision_name: str, device_type: str) -> int:
    """Predict the peak of an uncompiled training step with AdamW."""
    fake, inputs = _fake_case(model, preset, batch)
    return predict_memory(fake, precision_name=precision_name, device_type=device_type, **inputs).peak_bytes


@lru_cache(maxsize=1)  # all precisions are asked about in turn, and building takes as long as predicting
def _fake_case(model: str, preset: str, batch: int) -> tuple[nn.Module, dict[str, Any]]:
    workload = WORKLOADS[model]
    with fake_tensors():
        fake = workload.build(preset)
        return fake, workload.batch(fake, batch, preset)


def measure(case: BenchCase, *, batch: int, device: torch.device, seconds: float) -> Result:
    """Measure a case for about ``seconds``; whatever fails, except by interruption, is told in the result."""
    result = Result(*case.key, "failed", batch, datetime.now(timezone.utc).isoformat(timespec="seconds"))
    if message := _unsupported(case.precision, device):
        return replace(result, outcome="not supported", message=message)
    if not batch:
        return replace(result, outcome="does not fit", message=f"not even a batch of one: {_free(device)}")
    predicted = predicted_bytes(
        case.model, case.preset, batch, eight_bits.surrounding(case.precision), device.type
    )
    if case.precision != eight_bits.FP8:  # which is not predicted: what it is beside bf16 has to fit at least
        result = replace(result, predicted_bytes=predicted)
    if predicted > free_bytes(device):
        message = f"a step needs about {memory(predicted)}, {_free(device)}"
        return replace(result, outcome="does not fit", message=message)
    try:
        timing, peak_bytes = _timed(case, batch, device, seconds)
    except NothingToConvertError as error:
        result = replace(result, outcome="not supported", message=f"{error}")
    except Exception as error:
        outcome: Outcome = "out of memory" if is_out_of_memory(error) else "failed"
        first = next((line for line in str(error).splitlines() if line.strip()), "no message")
        message = f"{type(error).__name__}: {first.strip()[:300]}"
        result = replace(result, outcome=outcome, message=message)
    else:
        result = replace(
            result,
            outcome="measured",
            peak_bytes=peak_bytes,
            samples_ms=timing.samples_ms,
            first_call_ms=timing.first_call_ms,
            calls_per_sample=timing.calls_per_sample,
        )
    release_memory()  # not while the error is alive: its traceback holds the model
    return result


class NothingToConvertError(ValueError):
    """A model has no layer that FP8 kernels could compute."""


def _unsupported(name: str, device: torch.device) -> str:
    """Explain why this device has no such precision; nothing where it has."""
    if name in eight_bits.precisions_on(device):
        return ""
    reason = eight_bits.refusal(device) if name == eight_bits.FP8 else None
    return f"{device.type} has no {name}" + (f": {reason}" if reason else "")


def training_step(
    model: nn.Module, inputs: dict[str, Any], kind: Precision, mode: Mode, device_type: str
) -> Callable[[], None]:
    """Return a function that takes one step of training as the lessons write it, with AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    scaler = torch.amp.GradScaler(device_type, enabled=kind.needs_scaler)
    autocast: dict[str, Any] = {"dtype": kind.autocast_dtype, "enabled": kind.autocast_dtype is not None}
    forward = torch.compile(model) if mode == "compiled" else model

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device_type, **autocast):
            loss = forward(**inputs).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def _timed(case: BenchCase, batch: int, device: torch.device, seconds: float) -> tuple[Timing, int | None]:
    """Return the time of a step and its peak memory."""
    workload, kind = WORKLOADS[case.model], precision(eight_bits.surrounding(case.precision))
    elsewhere = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    torch.manual_seed(0)
    with torch.device(device):
        model = workload.build(case.preset)
        inputs = workload.batch(model, batch, case.preset)
    if case.precision == eight_bits.FP8 and not eight_bits.convert(model):
        raise NothingToConvertError("no layer is an nn.Linear whose sides are multiples of 16")
    torch._dynamo.reset()
    step = training_step(model, inputs, kind, case.mode, device.type)
    with fp32_products(tf32=kind.tf32):
        timing = time_step(step, device=device, seconds=seconds)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            step()
            return timing, torch.cuda.max_memory_allocated(device) - elsewhere
    if case.mode == "compiled" or case.precision == eight_bits.FP8:
        return timing, None  # compiled code, and kernels for 8 bits, allocate where nobody can follow
    return timing, measure_memory(model, precision_name=case.precision, **inputs).peak_bytes


def _free(device: torch.device) -> str:
    return f"{memory(free_bytes(device))} are free on {device.type}"
