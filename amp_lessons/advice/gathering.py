"""Asking one instrument after another about a model, within a time."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar

import torch

from amp_lessons import audit
from amp_lessons._base.text.bars import with_bar
from amp_lessons.advice.facts import Facts, autocast_dtype, dtype_here
from amp_lessons.advice.subject import Subject, describe_error
from amp_lessons.autocast import Ledger, fake_copy, find_islands, in_fp32, record, region
from amp_lessons.autocast.cuda_on_cpu import ProductsInFp32
from amp_lessons.autocast.running import gradients_on
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.measure import (
    DataSheet,
    Footprint,
    Timing,
    decoding_of,
    measure_memory,
    predict_bound,
    predict_memory,
    time_steps,
)
from amp_lessons.measure.batch import Predictions, record_batch
from amp_lessons.measure.bounds import bound_of
from amp_lessons.measure.decoding import writes_text
from amp_lessons.measure.memory import footprint_of
from amp_lessons.measure.recording import StepRecording, record_step
from amp_lessons.precisions import HALF_DTYPES, precision_name

T = TypeVar("T")

# What PyTorch raises where an operation needs the values of fake tensors.
_OF_VALUES = ("DataDependentOutput", "DynamicOutputShape", "data-dependent", "GuardOnDataDependent")

# Parts of the time that is given; what is left over goes to those that come later.
_FOR_ISLANDS, _FOR_STEPS, _FOR_TIMING, _FOR_OTHER_ISLANDS = 0.3, 0.3, 0.1, 0.1
# What a part takes at least, in steps without autocast: two passes, and some modules; a step that is watched.
_STEPS_OF_ISLANDS, _STEPS_OF_AUDIT = 2, 3
_REPEATED = 0.5  # of the ledger's time: the rest is done only once
_LONGEST_TIMING_S, _MOST_SAMPLES = 2.0, 48  # where steps take turns with others' work, many take very long
_CALLS_OF_A_TIMING = 18  # at least: warming up, and a sample in each of twelve rounds


def gather_facts(
    subject: Subject,
    sheet: DataSheet,
    *,
    optimizer: Optimizers,
    steps: int,
    context: int | None,
    start: float,
    seconds: float,
) -> Facts:
    """Run every instrument on the model, and return what they found; where one fails, the others still run.

    The ``seconds`` count from ``start``, a reading of ``time.monotonic``. What would take longer than what is
    left of them is not begun, as far as that can be known: steps are reckoned by the one that was taken, and
    what runs on fake tensors by the ledger.
    """
    facts = Facts(subject, sheet, autocast_dtype(sheet), dtype_here(subject.device))
    gathering = _Gathering(facts, start, seconds)
    others = HALF_DTYPES - {facts.dtype}
    parts: list[Callable[[], None]] = [
        gathering.record,
        partial(gathering.find_islands, facts.dtype, _FOR_ISLANDS),
        partial(gathering.look_at_memory, optimizer),
        gathering.bound,
        partial(gathering.find_decoding, context),
        partial(gathering.look_at_memory_here, optimizer),
        partial(gathering.audit, optimizer, steps),
        gathering.time,
        *(partial(gathering.find_islands, other, _FOR_OTHER_ISLANDS) for other in others),
        partial(gathering.find_largest_batches, optimizer),
    ]
    for part in with_bar(parts, "advice", within_s=seconds):
        part()
    return facts


class _OutOfTimeError(Exception):
    """There is no time left for what would come next."""


class _Gathering:
    """Adds one part after another to the facts."""

    def __init__(self, facts: Facts, start: float, seconds: float) -> None:
        self.facts, self.seconds = facts, seconds
        self.end = start + seconds
        self.fake = True  # until a model turns out to need values
        self.fake_s = 0.0  # what following the model on fake tensors takes
        self.recordings: dict[str, StepRecording] = {}  # of the step, by precision

    @property
    def left(self) -> float:
        """The seconds that are left; none or less where they are over."""
        return self.end - time.monotonic()

    def record(self) -> None:
        """Write the ledger of a step, on fake tensors if the model allows it; find what CUDA refuses."""
        start = time.monotonic()
        try:
            self.facts.ledger = self._ledger()
        except Exception as error:
            self._look_for_refusal(error)
        self.fake_s = _REPEATED * (time.monotonic() - start)

    def find_islands(self, dtype: torch.dtype, share: float) -> None:
        """Look for islands in one dtype."""
        subject = self.facts.subject
        if self.facts.refused is not None:
            return
        found = self._attempt(
            f"islands in {dtype_name(dtype)} could not be looked for",
            find_islands,
            subject.training,
            subject.batch,
            dtype=dtype,
            seconds=max(min(self.left, share * self.seconds), 0.01),
            least_s=_STEPS_OF_ISLANDS * subject.step_s,
        )
        if found is not None:
            self.facts.islands[dtype] = found

    def look_at_memory(self, optimizer: Optimizers) -> None:
        """Predict the memory of a step, without and with autocast; where that fails, measure it."""
        if self.fake:
            self._remember("predicted", self._predict, self.facts.half, optimizer, self.fake_s)
        if not self.fake:
            # A CPU without fp16 takes fifty times as long for it, and bf16 is as large.
            half = precision_name(self._dtype_of_steps())
            least_s = _STEPS_OF_AUDIT * self.facts.subject.step_s
            self._remember("measured", measure_memory, half, optimizer, least_s)

    def look_at_memory_here(self, optimizer: Optimizers) -> None:
        """Predict the same for a CPU, if the model lies there: somebody may measure it to compare."""
        facts, subject = self.facts, self.facts.subject
        if not self.fake or "fp32" not in facts.memory or subject.device.type != "cpu":
            return
        recording, least_s = self.recordings["fp32"], 0.0
        ask = partial(footprint_of, recording)
        if recording.saw_gpu_kernels:
            ask, least_s = partial(predict_memory, subject.training, subject.batch), self.fake_s
        sentence = "what a step takes on this CPU is not known"
        facts.memory_here = self._attempt(
            sentence, ask, optimizer=optimizer, device_type="cpu", least_s=least_s
        )

    def bound(self) -> None:
        """Say the least time of a step on the GPU."""
        facts, subject = self.facts, self.facts.subject
        halves = () if facts.refused else (facts.half,)
        for name in ("fp32", "tf32", *halves):
            if name in facts.sheet.flop_per_s and self.fake:
                ask, least_s = partial(predict_bound, subject.training, subject.batch), self.fake_s
                recording = self.recordings.get("fp32" if name == "tf32" else name)
                if recording and not (recording.saw_recurrent_kernel or recording.trains_others):
                    ask, least_s = partial(bound_of, recording), 0.0
                ask = partial(ask, sheet=facts.sheet, precision_name=name)
                bound = self._attempt(f"the least time in {name} is not known", ask, least_s=least_s)
                if bound is not None:
                    facts.bounds[name] = bound

    def find_decoding(self, context: int | None) -> None:
        """Find out what a language model reads for a token; any other is asked only for a ``context``."""
        model = self.facts.subject.model
        if context is not None or writes_text(model):
            self.facts.decoding = self._attempt(
                "what decoding takes is not known", decoding_of, model, context, least_s=self.fake_s
            )

    def audit(self, optimizer: Optimizers, steps: int) -> None:
        """Watch a few steps in the dtype for the GPU, or, where that is slow here, in the one that is not."""
        facts = self.facts
        if facts.refused is not None:
            return
        facts.audited_in = self._dtype_of_steps()
        islands = facts.islands.get(facts.audited_in)
        facts.audit = self._attempt(
            "no steps were audited",
            audited_steps,
            facts.subject,
            facts.audited_in,
            islands.names if islands else (),
            optimizer=optimizer,
            steps=steps,
            seconds=min(self.left, _FOR_STEPS * self.seconds),
            least_s=_STEPS_OF_AUDIT * facts.subject.step_s,
        )

    def time(self) -> None:
        """Time a forward and backward pass where the model lies, in fp32 and in what is fast there."""
        facts, here = self.facts, self.facts.here
        if here is None:
            return
        timings = self._attempt(
            "steps here were not timed",
            self._timings,
            here,
            least_s=(_CALLS_OF_A_TIMING + 2) * facts.subject.step_s,
        )
        facts.timings = timings or {}

    def find_largest_batches(self, optimizer: Optimizers) -> None:
        """Find what fits into the GPU, by as many predictions as that takes."""
        facts, subject = self.facts, self.facts.subject
        if subject.listed:
            facts.not_done.append("the largest batch was not looked for: its samples come in a list")
        for name, footprint in facts.memory.items() if self.fake and not subject.listed else ():
            recording = self.recordings[name]
            record = partial(
                record_batch, recording.model, self._batch_in_time, precision_name=recording.precision.name
            )
            base = subject.samples, recording
            found = self._attempt(
                f"the largest batch in {name} is not known",
                Predictions(record, optimizer, facts.sheet.usable_bytes, base=base).largest_batch,
                {subject.samples: footprint.peak_bytes},
                max(1, subject.samples),
                least_s=2 * self.fake_s,
            )
            if found is not None:
                facts.largest_batch[name] = found

    def _ledger(self) -> Ledger:
        """Write it on fake tensors; of a model that cannot run on them, and from then on, on real ones."""
        subject = self.facts.subject
        follow = partial(record, dtype=self.facts.dtype, backward=True)
        try:
            return follow(fake_copy(subject.training), subject.batch)
        except Exception as error:
            ledger = follow(subject.training, subject.batch)  # what fails for another reason fails here too
            self._give_up_on_fake(error)
            return ledger

    def _look_for_refusal(self, error: Exception) -> None:
        """Take a step by CUDA's rules: if that fails too, autocast is to blame, for without it none did."""
        facts = self.facts
        facts.not_done.append(f"there is no ledger: {describe_error(error)}")
        try:
            on_cpu = facts.subject.device.type == "cpu"
            with torch.random.fork_rng(), ProductsInFp32(torch.float16) if on_cpu else nullcontext():
                facts.subject.take_step(region("cuda", facts.dtype, facts.subject.device))
        except Exception:
            facts.refused = audit.explain(error)
            facts.not_done.append(
                f"islands, memory and steps in {facts.half} were not looked for: the model does not run in it"
            )

    def _remember(
        self, how: str, follow: Callable[..., Footprint], half: str, optimizer: Optimizers, least_s: float
    ) -> None:
        """Take down the memory of a step without autocast and with it, both predicted or both measured."""
        facts, found = self.facts, {}
        for name in ("fp32",) if facts.refused else ("fp32", half):
            try:
                self._require_time(least_s)
                start = time.monotonic()
                found[name] = follow(
                    facts.subject.training, facts.subject.batch, precision_name=name, optimizer=optimizer
                )
                least_s = time.monotonic() - start  # the first time it includes what is done only once
            except _OutOfTimeError as error:
                facts.not_done.append(f"memory in {name} is not known: {error}")
            except Exception as error:
                if self.fake:
                    self._give_up_on_fake(error)
                    return
                facts.not_done.append(f"memory in {name} could not be {how}: {describe_error(error)}")
        facts.memory = found
        if self.fake and found:
            self.fake_s = least_s

    def _predict(self, training: Any, batch: Any, *, precision_name: str, optimizer: Optimizers) -> Footprint:
        """Record the step in one precision, and read its memory off that."""
        recording = record_step(training, (batch,), {}, precision_name=precision_name)
        self.recordings[precision_name] = recording
        return footprint_of(recording, optimizer)

    def _give_up_on_fake(self, error: Exception) -> None:
        self.fake = False
        text, why = describe_error(error), "does not run on tensors without data"
        if any(word in text for word in _OF_VALUES):
            why = "looks at values, which tensors without data have not"
        self.facts.not_done.append(
            "memory is measured here instead of predicted, and neither the least time on the GPU nor the "
            f"largest batch was looked for: the model {why} ({text})"
        )

    def _dtype_of_steps(self) -> torch.dtype:
        """Return the dtype of the real steps that are taken here: not fp16 on a CPU that is slow at it."""
        facts = self.facts
        slow = facts.subject.device.type == "cpu" and facts.here is not torch.float16
        return torch.bfloat16 if slow else facts.dtype

    def _batch_in_time(self, samples: int) -> tuple[Any]:
        self._require_time(self.fake_s)
        return (self.facts.subject.batch_of(samples),)

    def _timings(self, here: torch.dtype) -> dict[str, Timing]:
        """Time steps; the first one in 16 bits tells whether there is time for all of them."""
        subject = self.facts.subject
        autocast = torch.autocast(subject.device.type, dtype=here)
        start = time.monotonic()
        subject.take_step(autocast)
        took = time.monotonic() - start
        self._require_time(_CALLS_OF_A_TIMING * (subject.step_s + took))
        return time_steps(
            {"fp32": subject.take_step, precision_name(here): lambda: subject.take_step(autocast)},
            device=subject.device,
            warmup=1,
            seconds=min(_LONGEST_TIMING_S, _FOR_TIMING * self.seconds) / 2,
            max_samples=_MOST_SAMPLES,
        )

    def _require_time(self, least_s: float) -> None:
        """Refuse to begin what takes longer than is left. Raises ``_OutOfTimeError``, which says so."""
        left = self.left
        if left <= 0:
            raise _OutOfTimeError(f"the {self.seconds:g} s were over")
        if least_s > left:
            raise _OutOfTimeError(
                f"it would take about {least_s:.2g} s, and of the {self.seconds:g} s {left:.2g} were left"
            )

    def _attempt(
        self, sentence: str, ask: Callable[..., T], *args: Any, least_s: float = 0.0, **kwargs: Any
    ) -> T | None:
        """Return the answer, or None: then say why, in a sentence that begins with ``sentence``."""
        try:
            self._require_time(least_s)
            return ask(*args, **kwargs)
        except _OutOfTimeError as error:
            self.facts.not_done.append(f"{sentence}: {error}")
        except Exception as error:  # whatever somebody's model may raise
            self.facts.not_done.append(f"{sentence}: {describe_error(error)}")
        return None


# --- a few steps of training in mixed precision, audited

Optimizers = Callable[[Iterable[Any]], torch.optim.Optimizer]


def default_optimizer(parameters: Iterable[Any]) -> torch.optim.Optimizer:
    """Make the optimizer that is taken where none is given."""
    return torch.optim.AdamW(parameters, lr=1e-4)


@gradients_on()
def audited_steps(
    subject: Subject,
    dtype: torch.dtype,
    islands: tuple[str, ...],
    *,
    optimizer: Optimizers,
    steps: int,
    seconds: float,
) -> audit.Report:
    """Train a copy of the model for ``steps`` steps on its batch, by CUDA's rules, watched; fewer in haste.

    ``islands`` run in fp32, and in fp16 the loss is scaled: it is the training that the advice is to be for.
    """
    training = copy.deepcopy(subject.training)
    updates = optimizer([each for each in training.parameters() if each.requires_grad])
    scaler = torch.amp.GradScaler(subject.device.type, enabled=dtype is torch.float16)
    deadline, longest_s = time.monotonic() + seconds, 0.0
    every = max(1, steps // 4)
    with (
        torch.random.fork_rng(),
        audit.watch(training.model, every=every) as seen,
        in_fp32(training, islands),
    ):
        for _ in range(steps):
            start = time.monotonic()
            updates.zero_grad()
            with region("cuda", dtype, subject.device):
                loss = training(subject.batch)
            scaler.scale(loss).backward()
            scaler.step(updates)
            scaler.update()
            longest_s = max(longest_s, time.monotonic() - start)
            if time.monotonic() + longest_s > deadline:
                break
    return seen.report
