"""What a training step of a model needs, for which nobody has to own the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn

from amp_lessons import parallel
from amp_lessons._base.drawing.axes import leave_to_bars, write_beside
from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import INK, KIND_COLOURS, SMALL, ZONES, house_style
from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons._base.text.words import memory
from amp_lessons.course.bench.calculator import (
    SUBJECTS,
    Subject,
    TrainingStep,
    ask,
    largest_batch,
    own_subject,
    parse_batch,
    parse_ranks,
    parse_size,
    predict,
)
from amp_lessons.course.views.base.controls import ControlValue, Slider, dropdown, row, text_field
from amp_lessons.course.views.base.latest import Latest, Ticket
from amp_lessons.course.views.base.view import View
from amp_lessons.course.views.widgets.memory import draw_peak
from amp_lessons.measure import GPUS, OPTIMIZERS, Footprint, LargestBatch
from amp_lessons.measure.batch import LARGEST_BATCH
from amp_lessons.measure.bounds import CONTEXT_BYTES
from amp_lessons.precisions import HALVES

STRATEGIES = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3 (FSDP2)")  # by their stages in parallel.STAGES
PRECISIONS = {"fp32": "fp32", **{f"{name} autocast": name for name in HALVES}}
OWN = "your model"
_PARTS_IN_WORDS = 4
_TIGHT = 0.1  # of a GPU's memory: kernels and the allocator's gaps may need as much
_BUFFERS = "Communication buffers come on top."
_BUCKETS = "Its buckets come on top, as large as the gradients, unless gradient_as_bucket_view=True."
_PHASES = {"forward": "forward pass", "backward": "backward pass", "optimizer": "optimizer's step"}


class CalculatorView(View):
    """Choose a model, a batch, an optimizer and a precision: bytes by category, and what fits into a GPU."""

    on_pages = ()
    why_still = "each of its many choices is a prediction of seconds"

    model = ControlValue[str]("_model", "The name of the model that is asked about.")
    batch = ControlValue[int | str](
        "_batch", "The number of items as typed. Setting it is typing it: text is welcome, and answered."
    )
    size = ControlValue[int | str](
        "_size",
        "The length of a sequence or the side of an image, as typed; empty where a model has only one.",
    )
    optimizer = ControlValue[str]("_optimizer", "The optimizer's name, one of ``measure.OPTIMIZERS``.")
    precision = ControlValue[str]("_precision", "fp32, or the dtype of autocast, fp16 or bf16.")
    gpu = ControlValue[str]("_gpu", "The GPU's name, one of ``measure.GPUS``.")
    ranks = ControlValue[int | str](
        "_ranks", "How many ranks train together, as typed, each with such a GPU and such a batch."
    )

    def __init__(
        self,
        model: str | nn.Module = "GPT-2",
        inputs: Any = None,
        *,
        batch: int | str | None = None,
        size: int | str | None = None,
        optimizer: str = "AdamW",
        precision: str = "fp16",
        gpu: str = "A100 SXM 40 GB",
        ranks: int | str = 1,
        strategy: str = "ddp",
    ) -> None:
        """Begin with ``model``: a name from the list, or a module with a batch of its ``inputs``.

        Inputs are a tensor, a tuple or a dict, items along the first dimension, or a function that makes them
        for a number of items. ``size`` is the length of a sequence or the side of an image. Several
        ``ranks`` share the model by ``strategy``. What is computed takes seconds for large models; the
        controls answer meanwhile, and only the latest choice counts.
        """
        self._subjects = dict(SUBJECTS)
        if not isinstance(model, str):
            self._subjects = {OWN: own_subject(model, inputs, OWN), **SUBJECTS}
        self._step: TrainingStep | None = None
        self._footprint: Footprint | None = None
        self._largest: LargestBatch | None = None
        self._latest = Latest(self._deliver)
        self._model = dropdown("model", list(self._subjects), model if isinstance(model, str) else OWN)
        self._batch, self._size = text_field("batch", ""), text_field("size", "")
        self._optimizer = dropdown("optimizer", list(OPTIMIZERS), optimizer)
        self._precision = dropdown("precision", list(PRECISIONS.items()), precision)
        self._gpu = dropdown("GPU", list(GPUS), gpu)
        self._ranks = text_field("ranks", str(ranks))
        # a slider, for JupyterLab takes the arrow keys away from a list that has the focus
        self._strategy = Slider("strategy", 0, len(STRATEGIES) - 1, _stage(strategy), STRATEGIES.__getitem__)
        self._fill_in(batch, size)
        controls = [self._model, self._batch, self._size, self._optimizer, self._precision, self._gpu]
        controls += [self._ranks, self._strategy]
        super().__init__([row(*controls)], alt="Bars of the memory of a training step.")
        self._ask()
        self.follow(self._model_chosen, self._model)
        self.follow(self._ask, *controls[1:])

    @property
    def footprint(self) -> Footprint | None:
        """What the step needs; waits for it. None if there is no answer: field or caption says why."""
        self.wait()
        return self._footprint

    @property
    def largest_batch(self) -> LargestBatch | None:
        """The largest batch that fits into the GPU; waits for it. None if there is no answer."""
        self.wait()
        return self._largest

    @property
    def strategy(self) -> str:
        """How the ranks share the model, one of ``parallel.STAGES``; "zero3" is what "fsdp2" does too."""
        return next(name for name, stage in parallel.STAGES.items() if stage == self._strategy.value)

    @strategy.setter
    def strategy(self, strategy: str) -> None:
        self._strategy.value = _stage(strategy)

    def wait(self) -> None:
        """Wait until the page shows the answer to the latest choice."""
        self._latest.wait()

    def _model_chosen(self) -> None:
        with self.held():  # the fields change one by one, and only all of them make a step
            self._fill_in(None, None)
        self._ask()

    def _fill_in(self, batch: int | str | None, size: int | str | None) -> None:
        """Put into the fields what the chosen model is usually trained with, and name its size."""
        subject = self._subject
        self._batch.value = str(subject.batch if batch is None else batch)
        self._size.label = subject.size_name or "size"
        self._size.disabled = not subject.size_name
        self._size.value = str(subject.size if size is None else size) if subject.size_name else ""

    @property
    def is_outdated(self) -> bool:
        """Whether the picture is still that of an earlier choice."""
        return self._footprint is None

    @property
    def _subject(self) -> Subject:
        return self._subjects[self.model]

    def _ask(self) -> None:
        self._step = self._footprint = self._largest = None
        if not self._understood():
            self.turn_page()  # the picture is of an earlier choice, and is faded
            return
        sharing = self.ranks, self.strategy
        asked = ask(self._subject, self.batch, self.size, self.optimizer, self.precision, *sharing)
        self._step, gpu = asked, self.gpu
        self.begin_work(_in_words(asked))
        self._latest.ask(lambda ticket: _answers(asked, gpu, ticket))

    def _understood(self) -> bool:
        """Whether what stands in the fields can be used; what is wrong with it stands at each of them."""
        with self.answering(self._batch):
            parse_batch(self.batch)
        with self.answering(self._size):
            parse_size(self.size, self._subject)
        with self.answering(self._ranks):
            parse_ranks(self.ranks)
        return not any(field.error for field in (self._batch, self._size, self._ranks))

    def _deliver(self, found: Footprint | LargestBatch | Exception) -> None:
        if self._step is None:  # a number that cannot be used was typed meanwhile
            return
        if isinstance(found, Exception):
            self.say(self._with_answer(f"{found}" if self.is_outdated else f"No largest batch: {found}"))
        elif isinstance(found, Footprint):
            self._footprint = found
            usable, ranks = GPUS[self.gpu].usable_bytes, self._step.ranks
            picture = calculator_picture(found, self.gpu, usable, ranks)
            self.show(picture, self._with_answer("The largest batch: working …"))
        else:
            self._largest = found
            self.say(self._with_answer(_say_largest(found)))

    def _with_answer(self, sentence: str) -> str:
        if self._step is None or self._footprint is None:
            return sentence
        return f"{describe(self._step, self._footprint, self.gpu)} {sentence}"

    def stored(self) -> dict[str, str]:
        """Return the final answer."""
        self.wait()
        return super().stored()


def _answers(asked: TrainingStep, gpu: str, ticket: Ticket) -> Iterator[Footprint | LargestBatch]:
    yield predict(asked)
    yield largest_batch(asked, gpu, ticket.check)


def describe(asked: TrainingStep, found: Footprint, gpu: str) -> str:
    """Describe the peak and its largest parts, what it leaves out, and whether it fits into the GPU."""
    parts = sorted(found.at_peak.items(), key=lambda part: -part[1])
    said = ", ".join(f"{kind} {memory(nbytes)}" for kind, nbytes in parts[:_PARTS_IN_WORDS])
    more = ", and a little more" if len(parts) > _PARTS_IN_WORDS else ""
    warning = f" {found.warning}" if found.warning else ""
    if asked.ranks > 1:
        warning += f" {_BUFFERS if _stage(asked.stage) else _BUCKETS}"
    usable, peak_bytes = GPUS[gpu].usable_bytes, found.peak_bytes
    fits = "fits into" if peak_bytes <= usable else "does not fit into"
    room = f"the {memory(usable)} that {gpu} has for tensors, after some {memory(CONTEXT_BYTES)} for itself"
    is_tight = (1 - _TIGHT) * usable < peak_bytes <= usable
    tight = ", but so tightly that kernels may not find room to work in" if is_tight else ""
    return (
        f"{_in_words(asked)}: {memory(peak_bytes)} at the peak, in the {_PHASES[found.peak_phase]}, "
        f"{found.source}: {said}{more}.{warning} It {fits} {room}{tight}."
    )


def _in_words(asked: TrainingStep) -> str:
    subject = asked.subject
    unit = {"sequence length": "tokens", "image side": "pixels a side"}.get(subject.size_name)
    size = f" of {asked.size:,} {unit}" if unit else ""
    precision = "fp32" if asked.precision == "fp32" else f"{asked.precision} autocast"
    items = f"{asked.batch:,} {subject.items[:-1] if asked.batch == 1 else subject.items}"
    step = f"{subject.name[:1].upper()}{subject.name[1:]}, {items}{size}, {asked.optimizer}, {precision}"
    if asked.ranks == 1:
        return step
    strategy = STRATEGIES[_stage(asked.stage)]
    return f"{step}, on each of {asked.ranks:,} ranks that share by {strategy}"


def _stage(strategy: str) -> int:
    """Return the stage of a strategy. Raises ValueError for what is none."""
    if strategy not in parallel.STAGES:
        known = did_you_mean(strategy, parallel.STAGES)
        raise ValueError(f"there is no strategy {strategy!r}; {known}")
    return parallel.STAGES[strategy]


def _say_largest(found: LargestBatch) -> str:
    if not found.batch:
        return "Not even a batch of 1 fits."
    if found.batch == LARGEST_BATCH:
        return f"Every batch up to {LARGEST_BATCH:,} fits."
    return f"The largest batch that fits: {found.batch:,}."


_LEFT, _RIGHT = 0.17, 0.9


def calculator_picture(found: Footprint, gpu: str, usable_bytes: int, ranks: int = 1) -> Picture:
    """Draw the whole peak, of each rank, against what ``gpu`` has for tensors, and each category below it."""
    kinds = [kind for kind in KIND_COLOURS if kind in found.at_peak]
    with house_style():
        height = 1.0 + 0.26 * len(kinds)
        figure = Figure(figsize=(9, height))
        above = figure.add_axes((_LEFT, 1 - 0.72 / height, _RIGHT - _LEFT, 0.42 / height))
        below = figure.add_axes((_LEFT, 0.1 / height, _RIGHT - _LEFT, 0.26 * len(kinds) / height))
        _draw_whole(above, found, gpu, usable_bytes)
        write_beside(above, 0, "peak of the step" if ranks == 1 else f"peak, each of {ranks:,}", 0.01)
        _draw_kinds(below, kinds, found)
        below.set_xlim(above.get_xlim())  # one scale, so that the parts add up to the whole
    return Picture(figure)


def _draw_whole(axes: Axes, found: Footprint, gpu: str, usable_bytes: int) -> None:
    """Draw the stacked bar; what lies beyond the GPU's memory is hatched as an overflow is."""
    longest = 1.02 * max(found.peak_bytes, min(usable_bytes, 4 * found.peak_bytes))
    draw_peak(axes, 0, found)
    overflow = ZONES["overflowed"]
    if found.peak_bytes > usable_bytes:
        excess = found.peak_bytes - usable_bytes
        axes.barh(
            0,
            excess,
            left=usable_bytes,
            height=0.8,
            fc="none",
            ec=overflow.colour,
            hatch=overflow.hatch,
            lw=0,
        )
    if usable_bytes <= longest:
        axes.axvline(usable_bytes, color=INK, lw=1.4, ls=(0, (4, 2)), clip_on=False)
        side = "left" if usable_bytes < longest / 2 else "right"
        axes.text(
            usable_bytes, 0.72, f" {gpu}: {memory(usable_bytes)} ", ha=side, va="bottom", fontsize=SMALL
        )
    else:
        axes.text(
            longest, 0.72, f"{gpu}: {memory(usable_bytes)}, far to the right →", ha="right", fontsize=SMALL
        )
    axes.set_ylim(-0.55, 0.7)
    axes.set_xlim(0, longest)
    leave_to_bars(axes)


def _draw_kinds(axes: Axes, kinds: list[str], found: Footprint) -> None:
    for y, kind in enumerate(kinds):
        nbytes = found.at_peak[kind]
        axes.barh(y, nbytes, height=0.72, facecolor=KIND_COLOURS[kind])
        axes.text(nbytes, y, f" {memory(nbytes)}", va="center", fontsize=SMALL, color=INK)
        write_beside(axes, y, kind, 0.01)
    axes.set_ylim(len(kinds) - 0.4, -0.6)
    leave_to_bars(axes)
