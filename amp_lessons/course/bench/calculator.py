"""The calculator: what a training step of a model needs, the largest batch that a GPU holds, and serving.

Everything is computed on fake tensors, for the published models of ``WORKLOADS``, the lessons' own small
ones, or any module; no GPU is needed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch._subclasses import fake_tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from amp_lessons import parallel
from amp_lessons._base.whole_process import without_collecting
from amp_lessons.autocast.running import fake_mode_of, fake_tensors, on_fake_cpu
from amp_lessons.course.bench.workloads import SERVED, WORKLOADS, Workload
from amp_lessons.course.material import models
from amp_lessons.formats import parse_whole
from amp_lessons.measure import (
    GPUS,
    OPTIMIZERS,
    Decoding,
    Footprint,
    LargestBatch,
    NoDecoderError,
    decoding_of,
    predict_largest_batch,
    predict_memory,
)
from amp_lessons.measure.batch import LARGEST_BATCH
from amp_lessons.measure.footprint import Moment
from amp_lessons.precisions import precision

LARGEST_SIZE = 2**16  # more than anybody trains with, tokens or pixels of a side
_models_in_use = threading.RLock()
_MISTAKES = (
    RuntimeError,
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    ArithmeticError,
    AssertionError,
    NameError,
)
MakeInputs = Callable[[nn.Module, int, int], Any]


class CannotTellError(ValueError):
    """There is no answer for this model; the message says why."""


@dataclass(frozen=True)
class Subject:
    """A model that the calculator can be asked about.

    ``build(size)`` makes the model on fake tensors, ``make_inputs(model, batch, size)`` a batch for it: a
    tensor, a tuple of positional or a dict of named inputs. ``size_name`` says what ``size`` is; where it is
    empty the model has only one. ``items`` is what a batch consists of.
    """

    name: str
    items: str
    batch: int
    size: int
    size_name: str
    build: Callable[[int], nn.Module]
    make_inputs: MakeInputs


@dataclass(frozen=True)
class TrainingStep:
    """A training step: of which model, on how many items of which size, with what, and in which precision.

    The step is one rank's of ``ranks``, which share the model by ``stage``, one of ``parallel.STAGES``.
    """

    subject: Subject
    batch: int
    size: int
    optimizer: str
    precision: str
    ranks: int = 1
    stage: str = "ddp"


def ask(
    subject: Subject,
    batch: str | int,
    size: str | int,
    optimizer: str,
    precision: str,
    ranks: str | int = 1,
    stage: str = "ddp",
) -> TrainingStep:
    """Make a step from what a learner typed.

    Raises ``ValueError`` for a number that cannot be used, and says why.
    """
    count, length, among = parse_batch(batch), parse_size(size, subject), parse_ranks(ranks)
    return TrainingStep(subject, count, length, optimizer, precision, among, stage if among > 1 else "ddp")


def parse_batch(typed: str | int) -> int:
    """Return the number of items that was typed. Raises ``ValueError`` for what is none."""
    return parse_whole(typed, "The batch", LARGEST_BATCH)


def parse_size(typed: str | int, subject: Subject) -> int:
    """Return the size that was typed, or the subject's only one. Raises ``ValueError`` for what is none."""
    return parse_whole(typed, f"The {subject.size_name}", LARGEST_SIZE) if subject.size_name else subject.size


def parse_ranks(typed: str | int) -> int:
    """Return the number of ranks that was typed. Raises ``ValueError`` for what is none."""
    return parse_whole(typed, "The number of ranks", MOST_RANKS)


@lru_cache(maxsize=64)
def predict(step: TrainingStep) -> Footprint:
    """Predict the memory of the training step that is asked about.

    Raises ``CannotTellError`` where there is no telling, with the reason.
    """
    if step.ranks > 1:
        return _sharing(step).of(predict(replace(step, ranks=1, stage="ddp")))
    with _explaining(step.subject):
        model = _built(step.subject, step.size)
        tensors = [*model.parameters(), *model.buffers()]
        with fake_mode_of(tensors) or fake_tensor.FakeTensorMode():
            inputs = step.subject.make_inputs(model, step.batch, step.size)
        if isinstance(inputs, dict):
            return predict_memory(model, **_options(step), **inputs)
        args = inputs if isinstance(inputs, tuple) else (inputs,)
        return predict_memory(model, *args, **_options(step))


def largest_batch(
    step: TrainingStep, gpu: str, before_each: Callable[[], object] = lambda: None
) -> LargestBatch:
    """Find the largest batch whose training step fits into ``gpu``, one of ``measure.GPUS``.

    ``before_each`` is called before each prediction that this takes; what it raises ends the search.
    """
    model, known = _built(step.subject, step.size), predict(step).peak_bytes
    alone = step.ranks == 1

    def make_inputs(batch: int) -> Any:
        before_each()
        return step.subject.make_inputs(model, batch, step.size)

    with _explaining(step.subject):
        return predict_largest_batch(
            model,
            make_inputs,
            GPUS[gpu].usable_bytes,
            known_peaks={step.batch: known},
            peak_of=lambda found: (found if alone else _sharing(step).of(found)).peak_bytes,
            **_options(step),
        )


def _sharing(step: TrainingStep) -> Sharing:
    itemsize = precision(step.precision).dtype.itemsize
    return sharing(_built(step.subject, step.size), step.ranks, step.stage, itemsize)


def own_subject(model: nn.Module, inputs: Any, name: str = "your model") -> Subject:
    """Ask about a learner's own ``model``.

    ``inputs`` are a batch of its inputs, a tensor, a tuple or a dict, the items along the first dimension of
    the first tensor and of all that are as long; or a function that makes them for a given number of items.
    Raises ``TypeError`` for anything else.
    """
    fake, _ = on_fake_cpu(model, ())
    if callable(inputs):
        return Subject(name, "items", 8, 1, "", lambda _: fake, lambda _, batch, __: inputs(batch))
    tensors = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor) and leaf.dim()]
    if not tensors:
        raise TypeError("inputs are a tensor, a tuple or a dict of tensors, or a function of the batch size")
    count = tensors[0].shape[0]

    def resized(_: nn.Module, batch: int, __: int) -> Any:
        """Make tensors like these with ``batch`` items, where their first dimension counts items."""

        def like(tensor: torch.Tensor) -> torch.Tensor:
            shape = (batch, *tensor.shape[1:]) if tensor.shape[:1] == (count,) else tensor.shape
            return torch.empty(shape, dtype=tensor.dtype)

        return tree_map_only(torch.Tensor, like, inputs)

    return Subject(name, "items", count, 1, "", lambda _: fake, resized)


@contextmanager
def _explaining(subject: Subject) -> Iterator[None]:
    """Turn what goes wrong in a forward pass into a sentence, and leave out PyTorch's own report on it.

    One thread at a time may do so, because the models are shared, and a prediction hangs hooks on them.
    """
    log = logging.getLogger(fake_tensor.__name__)
    _models_in_use.acquire()
    was_disabled, log.disabled = log.disabled, True
    try:
        yield
    except fake_tensor.DataDependentOutputException as error:
        raise CannotTellError(
            f"{subject.name} looks at the value of a tensor ({error.func.name()}), and a prediction has none"
        ) from error
    except CannotTellError:
        raise
    except _MISTAKES as error:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
        raise CannotTellError(
            f"{subject.name} fails on these inputs: {type(error).__name__}: {first}"
        ) from error
    finally:
        log.disabled = was_disabled
        _models_in_use.release()


@lru_cache(maxsize=8)
def _built(subject: Subject, size: int) -> nn.Module:
    with without_collecting():
        return subject.build(size)


def _options(step: TrainingStep) -> dict[str, Any]:
    return {"precision_name": step.precision, "optimizer": OPTIMIZERS[step.optimizer]}


def of_workload(workload: Workload) -> Subject:
    """Ask about a workload, in its full size."""
    full = workload.size("full")
    images = workload.items == "images"

    def build(size: int) -> nn.Module:
        config = {**full.config, "image_size": size} if images else full.config
        with fake_tensors():
            model: Any = replace(workload, sizes={"full": replace(full, config=config)}).build()
        most = getattr(model.config, "max_position_embeddings", size)
        if size > most:
            raise CannotTellError(
                f"{workload.name} knows {most:,} positions, so its sequence length is at most that."
            )
        return model

    return Subject(
        workload.name,
        workload.items,
        full.batch,
        full.length,
        "image side" if images else "sequence length",
        build,
        workload.make_batch,
    )


def _small(build: Callable[[], nn.Module], shape: Callable[[int, int], tuple[int, ...]]) -> dict[str, Any]:
    """Return how a model of the lessons is made, and a batch for it."""
    return {
        "build": lambda _: on_fake_cpu(build(), ())[0],
        "make_inputs": lambda _, batch, size: torch.empty(shape(batch, size)),
    }


_LESSONS = (
    Subject(
        *("the lessons' perceptron", "images", 32, models.PIXELS, ""),
        **_small(models.digits_classifier, lambda batch, pixels: (batch, pixels)),
    ),
    Subject(
        *("the lessons' conv net", "images", 32, 8, "image side"),
        **_small(models.convolutional_classifier, lambda batch, side: (batch, side**2)),
    ),
    Subject(
        *("the lessons' transformer block", "sequences", 8, 64, "sequence length"),
        **_small(models.transformer_block, lambda batch, length: (batch, length, 32)),
    ),
)
SUBJECTS: Mapping[str, Subject] = {
    subject.name: subject for subject in (*map(of_workload, WORKLOADS.values()), *_LESSONS)
}


# --- the same models as a server sees them: what writing text takes

DECODERS: Mapping[str, Subject] = {name: of_workload(workload) for name, workload in SERVED.items()}


@lru_cache(maxsize=16)
def decoding(subject: Subject, context: str | int | None = None) -> Decoding:
    """Return what ``subject`` reads for a token after ``context`` others; ``on`` a GPU it says how fast.

    Raises ``ValueError`` for a context that is no whole number, and ``CannotTellError`` for what writes no
    text, and where the model does not know so many tokens.
    """
    length = None if context is None else parse_whole(context, "The context", LARGEST_SIZE)
    model = _built(subject, subject.size)
    with _explaining(subject):
        try:
            return decoding_of(model, length)
        except NoDecoderError as error:
            raise CannotTellError(f"{subject.name}: {error}") from error


MOST_RANKS = 4096
_HELD = {"parameters": "weights", "gradients": "gradients", "optimizer state": "Adam's moments"}
_GATHERS = 3  # from this stage of ZeRO on


@dataclass(frozen=True)
class Sharing:
    """The share of each kind of memory that a rank holds, and what it ``gathered`` of others', in bytes.

    Activations, inputs and buffers are a rank's own: each has a batch of its own. ``steps_on`` is the share
    of the parameters that its optimizer steps. Buffers of communication are not counted.
    """

    shares: Mapping[str, float]
    gathered: int
    steps_on: float

    def of(self, found: Footprint) -> Footprint:
        """Return what a rank needs of a step that one process alone has this footprint of."""
        history = tuple(self._moment(moment) for moment in found.history)
        worst = max(history, key=lambda moment: moment.total_bytes)
        return replace(
            found,
            parameter_bytes=self._part("parameters", found.parameter_bytes),
            gradient_bytes=self._part("gradients", found.gradient_bytes),
            optimizer_bytes=self._part("optimizer state", found.optimizer_bytes),
            at_peak=worst.live_bytes,
            peak_phase=worst.phase,
            history=history,
        )

    def _part(self, kind: str, nbytes: int) -> int:
        return round(nbytes * self.shares.get(kind, 1.0))

    def _moment(self, moment: Moment) -> Moment:
        live = {kind: self._part(kind, nbytes) for kind, nbytes in moment.live_bytes.items()}
        if moment.phase == "optimizer" and "temporary" in live:
            live["temporary"] = round(live["temporary"] * self.steps_on)
        elif moment.phase != "optimizer" and self.gathered:
            live["parameters"] = live.get("parameters", 0) + self.gathered
            live.pop("weight copies", None)  # what is gathered is in autocast's dtype already
        return Moment(moment.phase, live)


def sharing(model: nn.Module, ranks: int, stage: str, itemsize: int) -> Sharing:
    """Return how ``ranks`` share a model by a ``stage`` of ``parallel.STAGES``.

    From stage 3 on parameters are gathered for computing, in ``itemsize`` bytes each: those of the largest
    block and of the next, which is fetched meanwhile, and those of no block, which stay.
    """
    gathers = parallel.STAGES[stage] >= _GATHERS and ranks > 1
    gathered = {"gathered_parameters": _gathered(model) if gathers else 0, "gathered_itemsize": itemsize}
    whole, part = (
        parallel.memory_per_rank(model, count, stage, "fp32", **sent)
        for count, sent in ((1, {}), (ranks, gathered))
    )
    shares = {kind: part.held[what] / whole.held[what] for kind, what in _HELD.items()}
    return Sharing(shares, part.gathered, shares["optimizer state"])


def _gathered(model: nn.Module) -> int:
    """Return how many parameters FSDP2 holds whole at a time, sharded by blocks, as it usually is."""
    from amp_lessons.parallel.traffic import units_of  # it loads DTensor

    units = (model, *map(model.get_submodule, units_of(model)))
    whole, *blocks = (sum(parameter.numel() for parameter in unit.parameters()) for unit in units)
    return min(whole, whole - sum(blocks) + 2 * max(blocks, default=0))
