"""The largest batch that fits into a given memory: by prediction, or by trying on the device."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from amp_lessons._base.arguments import require, require_callable, require_number, require_whole
from amp_lessons.autocast.running import BroughtAlong, fake_mode_of, gradients_on, on_fake_cpu
from amp_lessons.measure.footprint import COMPUTED, MEASURED, Footprint, Kind
from amp_lessons.measure.memory import Factory, check_functions, footprint_of
from amp_lessons.measure.recording import StepRecording, line_through, record_step

LARGEST_BATCH = 2**20  # more than anybody trains with


@dataclass(frozen=True)
class LargestBatch:
    """The largest batch that fits; 0 if not even one sample does.

    ``tried`` says of each batch size that was asked about whether it fits; ``peak_bytes`` are the predicted
    peaks of those sizes, empty after a search on the device. ``warning`` is that of the predictions.
    """

    batch: int
    tried: Mapping[int, bool]
    peak_bytes: Mapping[int, int]
    source: str
    warning: str = ""


@gradients_on()
def predict_largest_batch(
    model: nn.Module,
    make_inputs: Callable[[int], Any],
    capacity_bytes: int,
    *,
    known_peaks: Mapping[int, int] | None = None,
    first: int = 1,
    peak_of: Callable[[Footprint], int] | None = None,
    **options: Any,
) -> LargestBatch:
    """Find the largest batch whose predicted peak is at most ``capacity_bytes``.

    ``make_inputs(batch)`` makes the model's inputs: a tensor, a tuple of positional or a dict of named ones;
    it is called with fake tensors, so that large batches take no memory. ``known_peaks`` are peaks in bytes
    by batch that need not be predicted again. ``first`` is the batch to begin with; batch norm, for one, does
    not train on a single sample. ``peak_of`` says what of a predicted footprint has to fit, the peak itself
    if it is not given. ``options`` are those of ``predict_memory``.
    """
    require_callable(make_inputs, "make_inputs", "a function that makes inputs of a batch size")
    capacity_bytes = int(min(require_number(capacity_bytes, "capacity_bytes", above=0), sys.maxsize))
    require_whole(first, "first")
    if known_peaks is not None:
        require(known_peaks, Mapping, "known_peaks", "a dict of peaks by batch, or None")
    if peak_of is not None:
        require_callable(peak_of, "peak_of", "a function of a footprint that returns bytes, or None")
    fake, _ = on_fake_cpu(model, ())
    optimizer = options.pop("optimizer", torch.optim.AdamW)
    check_functions(optimizer, options.get("loss_fn"))
    predictions = Predictions(
        lambda batch: record_batch(fake, make_inputs, batch, **options), optimizer, capacity_bytes, peak_of
    )
    return predictions.largest_batch(known_peaks or {}, first)


def record_batch(
    model: nn.Module, make_inputs: Callable[[int], Any], batch: int, **options: Any
) -> StepRecording:
    """Record a step of a fake model on a batch that is made of fake tensors, too."""
    mode = fake_mode_of(model.parameters()) or FakeTensorMode()
    with mode, BroughtAlong(mode, {}):
        inputs = make_inputs(batch)
    named = dict(inputs) if isinstance(inputs, Mapping) else {}
    given = () if isinstance(inputs, Mapping) else inputs if isinstance(inputs, tuple) else (inputs,)
    return record_step(model, given, named, **options)


@dataclass
class Predictions:
    """Peaks of memory by batch, read off recordings of a step, of as few as tell.

    ``record`` records a step on a batch; ``base``, a batch with its recording, may be known already. A line
    is drawn from it to the last one, on ``far`` samples; the first time that is about as many as fit. Where
    each storage is as large in both, or in proportion to the batch, what lies between, or little beyond, is
    read off that line.
    """

    record: Callable[[int], StepRecording]
    optimizer: Factory | None
    capacity_bytes: int
    peak_of: Callable[[Footprint], int] | None = None
    base: tuple[int, StepRecording] | None = None
    far: int = 0
    line: Callable[[int], StepRecording] | None = None

    def largest_batch(self, known_peaks: Mapping[int, int], first: int) -> LargestBatch:
        """Find the largest batch that fits, beginning with ``first``."""
        peaks, warnings = dict(known_peaks), set()

        def fits(batch: int) -> bool:
            if batch not in peaks:
                predicted = footprint_of(self.recording(batch), self.optimizer)
                peaks[batch] = predicted.peak_bytes if self.peak_of is None else self.peak_of(predicted)
                warnings.add(predicted.warning)
            return peaks[batch] <= self.capacity_bytes

        def guess() -> int | None:
            guessed, most = _extrapolated(peaks, self.capacity_bytes), self.far * 9 // 8
            return most if self.line and guessed and guessed > most and most not in peaks else guessed

        batch, tried = _largest(fits, guess, first=first)
        return LargestBatch(batch, tried, peaks, COMPUTED, next(filter(None, warnings), ""))

    def recording(self, batch: int) -> StepRecording:
        """Return the recording on a batch: off the line if there is one, else of a step that is followed."""
        if self.base is None or self.base[0] == 1:  # on which some operations take other ways
            self.base = batch, self.record(batch)
            return self.base[1]
        if batch > self.base[0] and not self.far:
            self._draw_line(max(batch, self._fitting(*self.base)))
        if self.line is not None and self.base[0] <= batch <= self.far * 9 // 8:
            return self.line(batch)
        return self._draw_line(batch) if batch > self.base[0] else self.record(batch)

    def _draw_line(self, far: int) -> StepRecording:
        assert self.base is not None
        self.far, recording = far, self.record(far)
        self.line = line_through(self.base[1], recording, (self.base[0], far))
        return recording

    def _fitting(self, batch: int, recording: StepRecording) -> int:
        """Guess how many samples fit: as many as if all grew with them but what belongs to the weights."""
        fitting = [LARGEST_BATCH]
        for moment in footprint_of(recording, self.optimizer).history:
            alike = sum(moment.live_bytes.get(kind, 0) for kind in _OF_WEIGHTS)
            if moment.phase != "optimizer" and moment.total_bytes > alike:
                fitting.append(batch * (self.capacity_bytes - alike) // (moment.total_bytes - alike))
        return min(fitting)


_OF_WEIGHTS: tuple[Kind, ...] = ("parameters", "buffers", "gradients", "optimizer state", "weight copies")


def search_largest_batch(step: Callable[[int], Any], *, largest: int = LARGEST_BATCH) -> LargestBatch:
    """Find the largest batch for which ``step(batch)`` does not run out of memory, by running it.

    Take a step of training, not only a forward pass, and take it twice: the optimizer's state comes with the
    first. On a CPU predict instead: there the system may end the process rather than refuse memory.
    """
    require_callable(step, "step", "a function of the batch size that takes a training step")
    require_whole(largest, "largest")

    def fits(batch: int) -> bool:
        return _survives(step, batch)

    batch, tried = _largest(fits, lambda: None, largest)
    return LargestBatch(batch, tried, {}, MEASURED)


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether this error means that memory ran out, on a GPU or a CPU."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    words = ("can't allocate memory", "out of memory", "ALLOC_FAILED")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


def release_memory() -> None:
    """Give back what a failed attempt left behind, so that the next one does not fail because of it."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _survives(step: Callable[[int], Any], batch: int) -> bool:
    try:
        step(batch)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    else:
        return True
    release_memory()  # not while the error is alive: its traceback holds the tensors of the attempt
    return False


def _largest(
    fits: Callable[[int], bool],
    guess: Callable[[], int | None],
    largest: int = LARGEST_BATCH,
    *,
    first: int = 1,
) -> tuple[int, dict[int, bool]]:
    """Return the largest number that fits, and all that were tried, given that every smaller one fits too.

    ``first`` is tried first. ``guess`` may name the answer after each trial; otherwise the number doubles,
    then the gap halves.
    """
    tried: dict[int, bool] = {}
    low, high, batch = 0, largest + 1, first
    while high - low > 1:
        tried[batch] = fits(batch)
        low, high = (batch, high) if tried[batch] else (low, batch)
        fallback = 2 * low if high > largest else (low + high) // 2
        guessed = guess() if len(tried) < 8 else None
        batch = min(max(fallback if guessed is None else guessed, low + 1), high - 1)
    return low, tried


def _extrapolated(peaks: Mapping[int, int], capacity_bytes: int) -> int | None:
    """Follow the line through the last two peaks to the capacity: memory grows evenly with the batch."""
    if len(peaks) < 2:
        return None
    (before, bytes_before), (last, bytes_last) = list(peaks.items())[-2:]
    slope = (bytes_last - bytes_before) / (last - before)
    return int(last + (capacity_bytes - bytes_last) // slope) if slope > 0 else None
