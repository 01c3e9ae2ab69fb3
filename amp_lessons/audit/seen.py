"""Records of a training, in numbers: its steps, its layers, its first inf or NaN, and how it was audited.

These records are what a report holds, shows and is as JSON. Nothing here loads PyTorch: dtypes are kept by
their names, so that whoever only reads a report does not wait for it, and become PyTorch's when asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, Literal, NamedTuple

from amp_lessons.audit.findings import INPUT_OF, Place
from amp_lessons.formats.dtypes import dtype_of
from amp_lessons.scaling.fates import Census

if TYPE_CHECKING:
    import torch

Phase = Literal["forward", "backward"]
AS_TRAINED = "as trained"  # the format that autocast used, at the loss scale


@dataclass(frozen=True)
class PrecisionSeen:
    """In which precision a training ran: ``autocast`` names the dtypes that losses were computed under.

    ``autocast_off`` says that contexts of autocast were entered and switched off (``enabled=False``);
    ``scaler`` that a gradient scaler was in use, ``scaler_off`` that one was made and switched off.
    ``by_hand`` are dtypes in 16 bits that losses were computed in without autocast, by casts of one's own.
    """

    autocast_names: tuple[str, ...] = field(default=(), metadata={"key": "autocast"})
    autocast_off: bool = False
    scaler: bool = False
    scaler_off: bool = False
    by_hand_names: tuple[str, ...] = field(default=(), metadata={"key": "by_hand"})

    @property
    def autocast(self) -> tuple[torch.dtype, ...]:
        """The dtypes of autocast that losses were computed under."""
        return tuple(map(dtype_of, self.autocast_names))

    @property
    def by_hand(self) -> tuple[torch.dtype, ...]:
        """The dtypes in 16 bits that losses were computed in without autocast."""
        return tuple(map(dtype_of, self.by_hand_names))


@dataclass(frozen=True)
class StepSeen:
    """One step that an optimizer was asked for.

    ``index`` counts all steps from 0, ``optimizer`` the optimizers from 0. ``happened`` is False where the
    scaler skipped the step. ``scale`` is the loss scale under which its gradients were computed, 1 without
    a scaler; ``loss`` is what its gradients are of, unscaled: the sum of the losses of its
    ``backwards`` backward passes, None where nothing was seen of them. ``sampled``
    marks the steps of which more is known: ``gradient_norm``, the Euclidean norm of the unscaled gradients,
    and ``lost_updates``, the share of the weights with a gradient that the step left as they were.

    Of several ranks: ``happened`` on all of them, ``loss`` and ``lost_updates`` are means over ranks,
    ``gradient_norm`` is that of all shards, ``scale`` the lowest rank's.
    """

    index: int
    optimizer: int
    happened: bool
    scale: float
    loss: float | None = None
    sampled: bool = False
    gradient_norm: float | None = None
    lost_updates: float | None = None
    learning_rate: float | None = None
    backwards: int = 1


def mean(numbers: Iterable[float | None], weights: Iterable[float] = repeat(1.0)) -> float | None:
    """Return the mean of the numbers that are known, None where none is."""
    known = [(each, weight) for each, weight in zip(numbers, weights, strict=False) if each is not None]
    total = sum(weight for _, weight in known)
    return sum(each * weight for each, weight in known) / total if total else None


@dataclass(frozen=True)
class LayerStep:
    """One layer's gradients at one sampled step.

    ``census`` says what became of the gradients, multiplied by the loss scale, in the format that autocast
    used; None where autocast was off. ``counterfactual`` says what a cast of the unscaled gradients to other
    formats would make of them. ``norm`` is that of the unscaled gradients. ``zero_fraction`` counts the exact
    zeros among them: some are underflows that happened inside the backward pass.
    """

    step: int
    census: Census | None
    counterfactual: Mapping[str, Census]
    norm: float
    zero_fraction: float
    lost_update_fraction: float | None = None

    @property
    def censuses(self) -> dict[str, Census]:
        """The censuses by format, that of the format that autocast used first, under ``AS_TRAINED``."""
        return ({} if self.census is None else {AS_TRAINED: self.census}) | dict(self.counterfactual)


@dataclass(frozen=True)
class LayerSeen:
    """One layer that owns trainable parameters, and what was seen of it at each sampled step.

    ``dtypes`` maps what belongs to the layer to its dtype: its parameters and buffers by name,
    ``"gradient"``, ``"output"``, and the optimizer's state by name, as in ``"optimizer.exp_avg"``.
    ``part`` says which part of it this rank holds, and so what its history is of: "1/2" is the first of two
    shards, "" all of it. ``replicated`` says that ``DistributedDataParallel`` keeps it equal on all ranks.
    """

    name: str
    parameters: int
    dtype_names: Mapping[str, str] = field(default_factory=dict, metadata={"key": "dtypes"})
    history: tuple[LayerStep, ...] = ()
    part: str = ""
    replicated: bool = False

    @property
    def dtypes(self) -> Mapping[str, torch.dtype]:
        """The dtype of what belongs to the layer; ValueError for one that this PyTorch does not have."""
        return {what: dtype_of(name) for what, name in self.dtype_names.items()}

    @property
    def census(self) -> Census | None:
        """The last census in the format that autocast used, at the loss scale; None without one."""
        return self.history[-1].census if self.history else None

    @property
    def counterfactual(self) -> Mapping[str, Census]:
        """The last censuses of the unscaled gradients in formats that were not used, by their short names."""
        return self.history[-1].counterfactual if self.history else {}

    @property
    def lost_update_fraction(self) -> float | None:
        """The share of the weights with a gradient that the last sampled step left as they were."""
        known = [each.lost_update_fraction for each in self.history if each.lost_update_fraction is not None]
        return known[-1] if known else None


class ScaleFrom(NamedTuple):
    """The loss scale that a rank had from a step on."""

    step: int
    scale: float


@dataclass(frozen=True)
class RankSeen:
    """One rank of a training on several: how many ``steps`` its optimizers were asked for.

    ``skipped`` are the numbers of those that its scaler skipped, ``scales`` the loss scales that it had, one
    after another; ``ended`` says how it ended, if not well.
    """

    rank: int
    steps: int
    skipped: tuple[int, ...] = ()
    scales: tuple[ScaleFrom, ...] = ()
    ended: str = ""


@dataclass(frozen=True)
class Frame:
    """One module's turn in a pass: the largest magnitude of what it returned, or of its output's gradient."""

    module: str
    kind: str
    operation: str
    largest: float
    dtype_name: str = field(metadata={"key": "dtype"})

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of what it returned."""
        return dtype_of(self.dtype_name)


@dataclass(frozen=True)
class Nonfinite:
    """The first inf or NaN: where it appeared, and the frames that led there, the last one being its own.

    ``operation`` is the last operation of the module, by autograd's name ("addmm", "softmax"); ``step``
    counts optimizer steps from 0. ``recovered`` says that it was an overflow of the kind the scaler is there
    for, ``rank`` on which of several ranks it was.
    """

    module: str
    operation: str
    phase: Phase
    step: int
    before: tuple[Frame, ...] = ()
    place: Place | None = None
    recovered: bool = False
    rank: int | None = None

    def __str__(self) -> str:
        at = f" ({self.operation})" if self.operation else ""
        on = f" on rank {self.rank}" if self.rank is not None else ""
        bare = self.module.removeprefix(INPUT_OF)
        where = f"`{bare}`" if bare == self.module else f"the {INPUT_OF}`{bare}`"
        return f"In {where}{at}{on}, in the {self.phase} pass before step {self.step + 1}."


@dataclass(frozen=True)
class How:
    """The versions, the device, when it ``began`` (ISO 8601), and the seconds that it took.

    ``seconds`` is the time between beginning and the last that was seen; ``looking_seconds`` is how much of
    it the audit spent around the optimizers' steps, where nearly all of its own work is done.
    """

    torch: str
    amp_lessons: str
    python: str
    device: str
    began: str
    seconds: float
    looking_seconds: float


class Clock:
    """Measure how long a training takes, and how much of it is the audit's own work."""

    def __init__(self) -> None:
        self._began = datetime.now().astimezone().replace(microsecond=0)
        self._start = time.perf_counter()
        self._end: float | None = None
        self._looking_s = 0.0

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Count what happens inside as the audit's work."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._looking_s += time.perf_counter() - start

    def stop(self) -> None:
        """Count no further."""
        self._end = time.perf_counter()

    def how(self, device: torch.device | None) -> How:
        """Say how the audit was done so far; ``device`` is the model's, None where none was seen."""
        import platform  # whoever only reads a report waits for none of these

        import torch

        return How(
            torch=torch.__version__,
            amp_lessons=_own_version(),
            python=platform.python_version(),
            device="no device" if device is None else device_name(device),
            began=self._began.isoformat(),
            seconds=(self._end or time.perf_counter()) - self._start,
            looking_seconds=self._looking_s,
        )


@cache
def device_name(device: torch.device) -> str:
    """Return the product's name of a CPU or a CUDA GPU, of others their type."""
    if device.type == "cuda":
        import torch

        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return device.type
    from amp_lessons.devices import cpu_name  # only when a report is made

    return cpu_name()


@cache
def _own_version() -> str:
    from importlib import metadata

    try:
        return metadata.version("amp-lessons")
    except metadata.PackageNotFoundError:
        return "(not installed)"
