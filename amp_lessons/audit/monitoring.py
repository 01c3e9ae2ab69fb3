"""The standing check for long runs: little is looked at, seldom, and what is wrong is said at once."""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons._base.arguments import require, require_number, require_whole
from amp_lessons._base.text.words import counted, listed
from amp_lessons.audit import rules
from amp_lessons.audit.findings import Finding, Sighting
from amp_lessons.audit.numbers.buffers import BufferRecorder, all_finite
from amp_lessons.audit.numbers.layers import Remembered, makes_good
from amp_lessons.audit.numbers.naming import Names
from amp_lessons.audit.numbers.sampler import moving
from amp_lessons.audit.recorder.gradients import parameters_of
from amp_lessons.audit.recorder.places import own_line, place_of
from amp_lessons.audit.recorder.shared import Log
from amp_lessons.audit.rules.rows import sighting
from amp_lessons.audit.seen import mean
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.precisions import HALF_DTYPES

_PAUSE = 100  # times as long as a look took: looking takes a hundredth of the time, and 1.02 is promised
_WINDOW = 100  # steps; a scaler that begins at 65536 may skip up to 17 of them until its scale is 1
_MOST_KEPT = 1000  # looks
_MOST_NAMED = 3


class PrecisionWarning(UserWarning):
    """The warning, or the error, of a monitor: ``finding`` has the code, the words, the cure and the step."""

    def __init__(self, finding: Sighting) -> None:
        super().__init__(finding)
        self.finding = finding

    def __str__(self) -> str:
        return f"step {self.finding.first_step + 1}: {self.finding.message}. Cure: {self.finding.hint}"


@dataclass(frozen=True)
class Look:
    """A look at one step, counted from 0, skipped ones included.

    ``scale`` is the loss scale, None without a scaler; ``skip_rate`` the fraction of the last hundred steps
    that the scaler skipped, None before there were so many; ``lost_updates`` that of the weights with a
    gradient that the step left as they were, None where it was skipped; ``finite`` says that all weights
    were.
    """

    step: int
    scale: float | None
    skip_rate: float | None
    lost_updates: float | None
    finite: bool


@dataclass(frozen=True)
class Limits:
    """From where on a monitor speaks: fractions above two of these, a loss scale below the third."""

    lost_updates: float
    skip_rate: float
    least_scale: float


class Monitor:
    """A training that is monitored, until ``close``: ``looks`` are the last thousand, ``findings`` all.

    ``dtypes`` counts the weights that the optimizer steps, by their dtype, when the monitor was made.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler | None,
        every: int | None,
        raises: bool,
        limits: Limits,
    ) -> None:
        self._optimizer, self._every, self._raises, self._limits = optimizer, every, raises, limits
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self.looks: deque[Look] = deque(maxlen=_MOST_KEPT)
        self.findings: tuple[Sighting, ...] = ()
        self.dtypes = _dtypes(optimizer)
        self._log = Log(lambda event: None)
        self._names = Names([model])
        self._broken: list[Any] = []  # events.BuffersBroken
        self._buffers = BufferRecorder(self._names, lambda: False, self._broken.append, self._log.safely)
        self._step = 0
        self._window = _Window()
        self._skip_rate: float | None = None
        self._next_s = 0.0  # by the monotonic clock
        self._looking_s = 0.0
        self._remembered: Remembered | None = None
        self._due = self._stepped = False
        self._log.safely(self._buffers.look_at, [model])
        self._tell(self._log.safely(lambda: list(self._weights_in_half())))
        self._close = [
            optimizer.register_step_pre_hook(self._before).remove,
            optimizer.register_step_post_hook(self._after).remove,
        ]
        if self._scaler is not None:
            self._close.append(_asking(self._scaler, self._asked))

    def close(self) -> None:
        """Look no more, and leave optimizer and scaler as they were; a second call does nothing."""
        while self._close:
            self._close.pop()()

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        said = "; ".join(finding.code for finding in self.findings) or "nothing to say"
        return f"<Monitor: {counted(self._step, 'step')}, {counted(len(self.looks), 'look')}, {said}>"

    def _asked(
        self, step: Callable[..., Any], given: torch.optim.Optimizer, *args: Any, **kwargs: Any
    ) -> Any:
        """Stand in for the scaler's ``step``: of a step that it skips, the optimizer hears nothing."""
        if given is not self._optimizer or not self._close:
            return step(given, *args, **kwargs)
        self._stepped = False
        self._decide()
        answer = step(given, *args, **kwargs)
        self._done(self._stepped)
        return answer

    def _before(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._scaler is None:
            self._decide()
        if self._due:
            with self._looking():
                self._remembered = self._log.safely(_remembered, self._names, optimizer)

    def _after(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._stepped = True
        found_inf = getattr(optimizer, "found_inf", None)  # a fused step skips by itself, on its device
        if isinstance(found_inf, Tensor):
            self._log.safely(self._window.count_on_device, found_inf)
            if self._due and bool(found_inf):
                self._remembered = None  # nothing was to be changed
        if self._scaler is None:
            self._done(True)

    def _decide(self) -> None:
        """Decide whether the step that begins is looked at."""
        now = time.monotonic()
        self._due = now >= self._next_s if self._every is None else self._step % self._every == 0

    def _done(self, happened: bool) -> None:
        """Count a step, look where that is due, and tell what was found."""
        self._window.count(happened)
        step, self._step = self._step, self._step + 1
        if self._due:
            with self._looking():
                found = self._log.safely(lambda: list(self._look(step)))
            self._next_s = time.monotonic() + _PAUSE * self._looking_s
            self._due, self._remembered, self._looking_s = False, None, 0.0
            self._tell(found, step)

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """Count what happens inside as looking."""
        start = time.monotonic()
        yield
        self._looking_s += time.monotonic() - start

    def _look(self, step: int) -> Iterator[Finding]:
        yield from self._weights_in_half()
        lost = self._remembered.lost() if self._remembered is not None else {}
        yield from self._updates_lost(lost)
        scale = self._scaler.get_scale() if self._scaler is not None else None
        if scale is not None and scale < self._limits.least_scale:
            largest = torch.finfo(torch.float16).max / scale if scale else math.inf
            yield rules.scaler.scale_fell(scale, largest)
        yield from self._skipped()
        finite = all_finite(parameters_of(self._optimizer))
        if finite and self._remembered is not None:  # after a skipped step a loop may put them back
            yield from self._buffers_broken()
        elif not finite:
            by_layer = self._names.by_layer(parameters_of(self._optimizer))
            broken = [name for name, parameters in by_layer.items() if not all_finite(parameters)]
            yield rules.numbers.weights_broken(_few(broken))
        self.looks.append(Look(step, scale, self._skip_rate, mean(lost.values()), finite))

    def _weights_in_half(self) -> Iterator[Finding]:
        if torch.float16 in _dtypes(self._optimizer) and not makes_good(self._optimizer):
            yield rules.dtypes.half_parameters()

    def _updates_lost(self, lost: dict[str, float]) -> Iterator[Finding]:
        """Report weights in 16 bits that stand still; those in fp32 do so at a small learning rate, too."""
        by_layer = self._names.by_layer(parameters_of(self._optimizer))
        half = {name: p[0].dtype for name, p in by_layer.items() if p[0].dtype in HALF_DTYPES}
        fractions = [lost[name] for name in half if name in lost]
        if not fractions or makes_good(self._optimizer):
            return
        fraction, dtype = sum(fractions) / len(fractions), dtype_name(next(iter(half.values())))
        if fraction > self._limits.lost_updates:
            seen = f"a step left {fraction:.0%} of the weights in {dtype} with a gradient as they were"
            yield rules.dtypes.updates_rounded_away(seen, dtype)

    def _skipped(self) -> Iterator[Finding]:
        if self._scaler is None or self._window.steps < _WINDOW:
            return
        steps, skipped = self._window.steps, self._window.skipped()
        self._window, self._skip_rate = _Window(), skipped / steps
        if skipped == steps:
            yield rules.scaler.always_overflows(steps)
        elif self._skip_rate > self._limits.skip_rate:
            interval = self._scaler.get_growth_interval()
            yield rules.scaler.skipped_too_often(skipped, steps, interval)

    def _buffers_broken(self) -> Iterator[Finding]:
        self._buffers.look_at_all()
        for event in self._broken:
            seen = f"{_few(event.names)} hold inf or NaN"
            yield rules.numbers.buffers_not_finite(seen, event.statistics)
        self._broken.clear()

    def _tell(self, found: list[Finding] | None, step: int = 0) -> None:
        """Warn of each code once, or raise it; of the monitor's own trouble, too, which ends nothing."""
        while self._log.troubles:
            self._warn(RuntimeWarning(f"audit.monitor's own trouble: {self._log.troubles.pop()}"))
        known = {finding.code for finding in self.findings}
        for finding in found or ():
            if finding.code in known:
                continue
            seen = sighting(finding, place=place_of(own_line()), first_step=step)
            self.findings += (seen,)
            if self._raises:
                raise PrecisionWarning(seen)
            self._warn(PrecisionWarning(seen))

    def _warn(self, warning: Warning) -> None:
        file, line = own_line() or (__file__, 0)
        warnings.warn_explicit(warning, type(warning), file, line)


class _Window:
    """Steps since skipped ones were last judged; those that a fused step skips are counted on its device."""

    def __init__(self) -> None:
        self.steps = 0
        self._skipped = 0
        self._on_device: Tensor | None = None

    def count(self, happened: bool) -> None:
        self.steps += 1
        self._skipped += not happened

    def count_on_device(self, found_inf: Tensor) -> None:
        if self._on_device is None:
            self._on_device = torch.zeros_like(found_inf)
        self._on_device += found_inf

    def skipped(self) -> int:
        """Return how many were skipped, waiting for the device."""
        return self._skipped + (0 if self._on_device is None else int(self._on_device))


def _asking(scaler: torch.amp.GradScaler, asked: Callable[..., Any]) -> Callable[[], None]:
    """Let ``asked`` stand between this scaler and its ``step``; return what undoes that.

    Where another monitor has come to stand before it since, this one has to stay.
    """
    before = vars(scaler).get("step")

    def step(*args: Any, **kwargs: Any) -> Any:
        return asked(before or partial(type(scaler).step, scaler), *args, **kwargs)

    def undo() -> None:
        if vars(scaler).get("step") is step:
            del vars(scaler)["step"]
            vars(scaler).update({} if before is None else {"step": before})

    vars(scaler)["step"] = step
    return undo


def _remembered(names: Names, optimizer: torch.optim.Optimizer) -> Remembered:
    return Remembered(names.by_layer(moving(optimizer)))


def _dtypes(optimizer: torch.optim.Optimizer) -> Counter[torch.dtype]:
    weights: Counter[torch.dtype] = Counter()
    for parameter in parameters_of(optimizer):
        weights[parameter.dtype] += parameter.numel()
    return weights


def _few(names: Sequence[str]) -> str:
    """Name three at most: "`a`, `b` and 5 more"."""
    more = len(names) - _MOST_NAMED
    shown = [f"`{name}`" for name in names[:_MOST_NAMED]]
    return listed([*shown, f"{more} more"] if more > 0 else shown)


def _own(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Return PyTorch's own optimizer, on which hooks hang, where Accelerate has wrapped it."""
    inner = getattr(optimizer, "optimizer", None)
    return _own(inner) if isinstance(inner, torch.optim.Optimizer) else optimizer


def monitor(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler | None = None,
    *,
    every: int | None = None,
    raises: bool = False,
    lost_updates: float = 0.5,
    skip_rate: float = 0.25,
    least_scale: float = 1.0,
) -> Monitor:
    """Watch over a long run from now on: ``audit.monitor(model, optimizer, scaler)``, before the loop.

    It hangs on the hooks of the ``optimizer``'s steps and on the ``scaler``'s ``step``. It looks at the first
    step and then as often as a hundredth of the time allows, or at every ``every``-th step, and warns once
    of each of these (``PrecisionWarning``), or ``raises`` the same:

    - weights that the optimizer steps are fp16 (also before the first step), inf or NaN,
    - a step left more than ``lost_updates`` of the weights in 16 bits that have a gradient as they were,
    - more than ``skip_rate`` of a hundred steps or more were skipped, or all of them,
    - the loss scale fell below ``least_scale``,
    - a buffer of ``model`` became inf or NaN while the weights are finite.

    Results are, bit for bit, those without it. No device is waited for between the steps that are looked
    at. ``close()``, or the end of a ``with`` block, ends it. Of distributed weights it looks at this rank's
    part, and sends nothing. Raises TypeError or ValueError for arguments of the wrong kind.
    """
    require(model, nn.Module, "model", "an nn.Module")
    require(optimizer, torch.optim.Optimizer, "optimizer", "an optimizer of PyTorch's")
    if scaler is not None:
        require(scaler, torch.amp.GradScaler, "scaler", "a torch.amp.GradScaler, or None")
    limits = Limits(
        require_number(lost_updates, "lost_updates", above=0),
        require_number(skip_rate, "skip_rate", above=0),
        require_number(least_scale, "least_scale", above=0),
    )
    every = None if every is None else require_whole(every, "every")
    return Monitor(model, _own(optimizer), scaler, every, raises, limits)
