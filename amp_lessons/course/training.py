"""The training loops of lesson 04, in float32 and in mixed precision, and what a run leaves behind.

``training_steps`` is the loop, one step at a time, so that a view can draw while it trains and stop whenever
it likes; ``train_fp32`` and ``train_with_amp`` run it to its end, ``compare`` runs several from the same
start.
"""

from __future__ import annotations

import contextlib
import copy
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons._base.text import bars
from amp_lessons._base.text.tables import Table
from amp_lessons._base.text.words import MEASURED_MARK, memory
from amp_lessons.precisions import HALVES, precision_name

Loader = Iterable[Sequence[Tensor]]
LossFn = Callable[[Tensor, Tensor], Tensor]
_MIB = 2**20


@dataclass(frozen=True)
class Step:
    """One optimizer step; ``loss`` and ``accuracy`` are still on the device, and reading one waits for it.

    ``accuracy`` is None where the targets are not classes. ``loss_scale`` is the scale this step was made
    with (1 without scaling); ``skipped`` says that its gradients were not finite.
    """

    epoch: int
    loss: Tensor
    accuracy: Tensor | None
    loss_scale: float
    skipped: bool


@dataclass(frozen=True)
class Epoch:
    """One pass over the data: means over its batches, duration, and the scaler's life step by step."""

    loss: float
    accuracy: float | None
    seconds: float
    loss_scales: tuple[float, ...]
    skipped: tuple[bool, ...]


@dataclass(frozen=True)
class History:
    """What a training run leaves behind.

    ``peak_mib`` is the largest memory that PyTorch had allocated on the GPU, None on a CPU, where PyTorch
    does not count.
    """

    precision: str
    device: str
    epochs: tuple[Epoch, ...]
    peak_mib: float | None = None

    @property
    def losses(self) -> list[float]:
        """Mean loss of each epoch."""
        return [epoch.loss for epoch in self.epochs]

    @property
    def accuracies(self) -> list[float | None]:
        """Mean accuracy of each epoch on the training batches, None where the targets are not classes."""
        return [epoch.accuracy for epoch in self.epochs]

    @property
    def seconds(self) -> float:
        """Duration of all epochs."""
        return sum(epoch.seconds for epoch in self.epochs)

    @property
    def loss_scales(self) -> list[float]:
        """The loss scale of every step."""
        return [scale for epoch in self.epochs for scale in epoch.loss_scales]

    @property
    def skipped_steps(self) -> int:
        """How many steps were skipped because a gradient was not finite."""
        return sum(skipped for epoch in self.epochs for skipped in epoch.skipped)

    def __str__(self) -> str:
        return str(table({self.precision: self}))

    __repr__ = __str__


@dataclass(frozen=True)
class Comparison:
    """Runs that began with the same weights and saw the same batches, by precision ("fp32" first)."""

    runs: dict[str, History]
    seed: int

    @property
    def largest_difference(self) -> float:
        """The largest relative difference of an epoch's loss from that of the first run.

        It is inf if any loss is NaN or inf, and if only the first run's is 0: no run that broke looks alike.
        """
        reference, *others = (history.losses for history in self.runs.values())
        pairs = [(a, b) for other in others for a, b in zip(reference, other, strict=True)]
        return max((relative_difference(a, b) for a, b in pairs), default=0.0)

    def __str__(self) -> str:
        return str(comparison(self.runs))

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return comparison(self.runs)._repr_mimebundle_()


def relative_difference(reference: float, loss: float) -> float:
    """Return inf where there is no number to say: NaN would be passed over by max()."""
    if not (math.isfinite(reference) and math.isfinite(loss)):
        return math.inf
    if reference == loss:
        return 0.0
    return abs(reference - loss) / abs(reference) if reference else math.inf


def training_steps(
    model: nn.Module,
    loader: Loader,
    optimizer: torch.optim.Optimizer,
    loss_fn: LossFn,
    epochs: int,
    *,
    device_type: str,
    dtype: torch.dtype | None = None,
    scaler: torch.amp.GradScaler | None = None,
) -> Iterator[Step]:
    """Train step by step: each item of the iterator is one step that has been made.

    ``dtype`` None means float32. In float16 the loss is scaled by ``scaler``, by default one of PyTorch's
    with its default settings; in bfloat16 and float32 it is not. Batches are moved to the device of the
    model.
    """
    _check(epochs, dtype)
    if scaler is None:
        scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    device = _device_of(model)
    for epoch in range(epochs):
        for batch in loader:
            inputs, targets = (tensor.to(device) for tensor in batch)
            optimizer.zero_grad()
            with torch.autocast(device_type, dtype=dtype, enabled=dtype is not None):
                outputs = model(inputs)
                loss = loss_fn(outputs, targets)
            loss_scale = scaler.get_scale()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            # without an enabled scaler nothing is skipped, and nothing waits for the GPU here
            skipped = scaler.is_enabled() and scaler.get_scale() < loss_scale
            yield Step(epoch, loss.detach(), _accuracy(outputs, targets), loss_scale, skipped)


def _check(epochs: int, dtype: torch.dtype | None) -> None:
    if dtype not in (None, *HALVES.values()):
        raise ValueError(f"dtype must be torch.float16 or torch.bfloat16 (None for float32), not {dtype}")
    if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1:
        raise ValueError(f"epochs must be a positive integer, not {epochs!r}")


def _device_of(model: nn.Module) -> torch.device:
    parameter = next(model.parameters(), None)
    if parameter is None:
        raise ValueError(f"{type(model).__name__} has no parameters, so there is nothing to train")
    return parameter.device


def _accuracy(outputs: Tensor, targets: Tensor) -> Tensor | None:
    if targets.is_floating_point() or outputs.shape[:-1] != targets.shape:
        return None
    return (outputs.detach().argmax(-1) == targets).float().mean()


def train_fp32(
    model: nn.Module,
    loader: Loader,
    optimizer: torch.optim.Optimizer,
    loss_fn: LossFn,
    epochs: int,
    *,
    progress: bool = False,
) -> History:
    """Train in float32. ``progress`` shows a bar.

    Raises ValueError for a wrong number of epochs, or a model without parameters.
    """
    return _trained(model, loader, optimizer, loss_fn, epochs, None, progress)


def train_with_amp(
    model: nn.Module,
    loader: Loader,
    optimizer: torch.optim.Optimizer,
    loss_fn: LossFn,
    epochs: int,
    *,
    device_type: str | None = None,
    dtype: torch.dtype = torch.float16,
    progress: bool = False,
) -> History:
    """Train in mixed precision: autocast in ``dtype``, with loss scaling if that is float16.

    ``device_type`` is that of the model if left out. Raises as ``train_fp32``, and ValueError for another
    dtype or a device type on which the model is not: autocast and the scaler would then do nothing.
    """
    own = _device_of(model).type
    if device_type not in (None, own):
        raise ValueError(
            f"device_type is {device_type!r}, but the model is on {own!r}: autocast would do nothing"
        )
    return _trained(model, loader, optimizer, loss_fn, epochs, dtype, progress)


def _trained(
    model: nn.Module,
    loader: Loader,
    optimizer: torch.optim.Optimizer,
    loss_fn: LossFn,
    epochs: int,
    dtype: torch.dtype | None,
    progress: bool,
) -> History:
    device = _device_of(model)
    _check(epochs, dtype)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    steps = training_steps(model, loader, optimizer, loss_fn, epochs, device_type=device.type, dtype=dtype)
    if progress:
        total = len(loader) * epochs if isinstance(loader, Sized) else None
        steps = bars.with_bar(steps, f"training in {precision_name(dtype)}", total)
    collected = tuple(_by_pass(steps, device))
    if len(collected) < epochs:
        raise ValueError(
            f"the loader gave batches for {len(collected)} of {epochs} epochs; it must give them anew each "
            "time"
        )
    peak_mib = torch.cuda.max_memory_allocated(device) / _MIB if device.type == "cuda" else None
    return History(precision_name(dtype), str(device), collected, peak_mib)


def _by_pass(steps: Iterator[Step], device: torch.device) -> Iterator[Epoch]:
    """Gather steps into epochs, reading losses once per epoch: reading one waits for the device."""
    gathered: list[Step] = []
    started = _now(device)
    for step in steps:
        if gathered and step.epoch != gathered[0].epoch:
            yield _epoch(gathered, _now(device) - started)
            gathered, started = [], _now(device)
        gathered.append(step)
    if gathered:
        yield _epoch(gathered, _now(device) - started)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _epoch(steps: list[Step], seconds: float) -> Epoch:
    accuracies = [step.accuracy for step in steps if step.accuracy is not None]
    return Epoch(
        loss=torch.stack([step.loss.float() for step in steps]).mean().item(),
        accuracy=torch.stack(accuracies).mean().item() if len(accuracies) == len(steps) else None,
        seconds=seconds,
        loss_scales=tuple(step.loss_scale for step in steps),
        skipped=tuple(step.skipped for step in steps),
    )


def compare(
    make_model: Callable[[], nn.Module],
    loader: Loader,
    loss_fn: LossFn,
    epochs: int,
    *,
    make_optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] | None = None,
    dtypes: Sequence[torch.dtype | None] = (None, torch.float16),
    device: torch.device | str | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Comparison:
    """Train one model in several precisions from the same start.

    The model is made once, under ``seed``, and each run gets a copy of it; the generators are put back to the
    same state before each run, so that a shuffling loader gives the same batches and dropout the same masks.
    ``make_optimizer`` takes the parameters, by default SGD with learning rate 0.1. The global random state is
    left as it was. Raises as ``train_fp32``, and ValueError if ``dtypes`` names a precision twice or
    ``device`` is not there.
    """
    if len(set(dtypes)) != len(dtypes) or not dtypes:
        raise ValueError(f"dtypes must name each precision once, not {list(dtypes)}")
    target = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if target.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("there is no cuda device here; device='cpu' trains on the processor")
    make_optimizer = make_optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    runs = {}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        start = make_model().to(target)
        for dtype in dtypes:
            model = copy.deepcopy(start)
            optimizer = make_optimizer(model.parameters())
            torch.manual_seed(seed)
            with _generator_kept(loader):
                history = _trained(model, loader, optimizer, loss_fn, epochs, dtype, progress)
            runs[history.precision] = history
    return Comparison(runs, seed)


@contextlib.contextmanager
def _generator_kept(loader: Loader) -> Iterator[None]:
    """Put a loader's own generator back, so that the next run shuffles as this one did."""
    generator = getattr(loader, "generator", None)
    state = generator.get_state() if generator is not None else None
    try:
        yield
    finally:
        if generator is not None:
            generator.set_state(state)


def table(runs: Mapping[str, History], caption: str = "", notes: Iterable[str] = ()) -> Table:
    """Return loss and accuracy of every epoch, with columns for each of ``runs``, which are given by name."""
    columns = {"epoch": [str(i + 1) for i in range(len(next(iter(runs.values())).epochs))]}
    for name, history in runs.items():
        columns[f"{name} loss"] = [f"{loss:.3f}" for loss in history.losses]
        if None not in history.accuracies:
            columns[f"{name} accuracy"] = [f"{accuracy:.1%}" for accuracy in history.accuracies]
    return Table(tuple(columns), zip(*columns.values(), strict=True), caption, notes)


def comparison(runs: Mapping[str, History]) -> Table:
    """Return the same of runs that began alike, and what each of them cost on this machine."""
    caption = "Mean loss and accuracy of each epoch: same initial weights, same batches"
    return table(
        runs, caption, [f"{MEASURED_MARK} {name}: {_cost(history)}" for name, history in runs.items()]
    )


def _cost(history: History) -> str:
    peak = "" if history.peak_mib is None else f", peak {memory(round(history.peak_mib * 2**20))}"
    return f"{history.seconds:.2f} s on {history.device}{peak}, {history.skipped_steps} steps skipped"
