"""Look closely at every K-th step of each optimizer, and note every other one and what broke weights."""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import torch
from torch import Tensor

from amp_lessons.audit.numbers.buffers import all_finite
from amp_lessons.audit.numbers.frames import FrameRecorder
from amp_lessons.audit.numbers.layers import Remembered, dtypes_of, layer_step, makes_good, state_of
from amp_lessons.audit.numbers.naming import Names, part_of, replicas
from amp_lessons.audit.recorder.events import (
    Event,
    GradientsZero,
    Line,
    ShardsInHalf,
    StepDone,
    Underflow,
    UpdatesLost,
    WeightsBroken,
    WeightsInHalf,
    Zeros,
)
from amp_lessons.audit.recorder.gradients import parameters_of, sample_of
from amp_lessons.audit.recorder.later import Later, is_captured, is_distributed, may_read, read_together
from amp_lessons.audit.recorder.places import line_outside
from amp_lessons.audit.seen import LayerSeen, LayerStep, StepSeen, mean
from amp_lessons.precisions import HALF_DTYPES

_FIRST_SCALE = 2.0**16  # a scaler's, unless it is told otherwise
_FEW_BITS = 2.0**-20  # below, a number in fp16 has at most four significant bits
_NO_BINADE = -1000  # of zeros
_MANY = 0.5  # of a layer's weights: of a norm that begins with 1 and 0, the ones stand still
_MOST_ZERO = 0.9  # of a layer's gradients: units that are off at a batch leave fewer
_LONGEST = 128  # steps of a layer that are kept
_SMALL_RATE = 1e-6  # below, it is asked whether fp32 itself would keep an update
_HALF_A_SPACING = 2.0**-25  # of a number in fp32, as a part of it, at least
_MOST_TRIES = 3  # to look at a step that is made, where others were skipped
_Earlier = Callable[[], Sequence[StepSeen]]


@dataclass
class _Line:
    """A step as it is kept until its numbers are read from the device."""

    seen: StepSeen
    scale: Later
    loss: Later
    found_inf: Later  # by a fused optimizer, which skips its step then

    @property
    def numbers(self) -> tuple[Later, ...]:
        return self.scale, self.loss, self.found_inf

    @property
    def known(self) -> bool:
        return all(number.known for number in self.numbers)

    def read(self) -> StepSeen:
        happened = self.seen.happened and not self.found_inf.read()
        return replace(self.seen, happened=happened, scale=self.scale.read() or 0.0, loss=self.loss.read())


class Sampler:
    """Lines of all steps, and the history of each layer."""

    def __init__(
        self,
        names: Names,
        frames: FrameRecorder,
        every: int,
        report: Callable[[Event], None],
        origin: Callable[[Tensor], tuple[str, Line]],
    ) -> None:
        self.names, self.frames, self._report, self._origin = names, frames, report, origin
        self.broken = BrokenWeights(names, report)
        self._every = every
        self._lines: list[_Line] = []
        self._read = 0  # of the lines: their numbers lie on no device any more
        self._layers: dict[str, LayerSeen] = {}
        self._optimizers: dict[int, int] = {}
        self._asked: Counter[int] = Counter()
        self._again: Counter[int] = Counter()  # how often a step to look at was skipped, and the next is due
        self._remembered: Remembered | None = None
        self._before_closure: tuple[int, Remembered | None] = (0, None)  # of which optimizer
        self._now: dict[str, LayerStep] = {}
        self._under_autocast = False
        self._told_of_halves: set[int] = set()  # optimizers
        self._all_zero: set[int] = set()  # optimizers whose gradients were, when they were last looked at
        self.sampling = False
        self._replicas: dict[int, frozenset[int]] = {}  # of each optimizer, looked for once

    @property
    def steps(self) -> tuple[StepSeen, ...]:
        """All steps so far, in order."""
        return tuple(line.read() for line in list(self._lines))

    def steps_from(self, first: int, wait: bool) -> Iterator[StepSeen]:
        """Yield the steps from the ``first`` on; without ``wait`` as far as no device is waited for."""
        return (line.read() for line in takewhile(lambda line: wait or line.known, self._lines[first:]))

    @property
    def layers(self) -> dict[str, LayerSeen]:
        """All layers that were looked at, in the order of the optimizers' parameters."""
        return dict(self._layers)

    def _is_due(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether the step is one to look at: every K-th, or the next if that was skipped."""
        return self._asked[id(optimizer)] % self._every == 0 or self._again[id(optimizer)] > 0

    def closure_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Remember some weights where this step is one to look at; its gradients come with its closure."""
        if self._is_due(optimizer) and not is_captured():
            self._before_closure = id(optimizer), Remembered(self.names.by_layer(moving(optimizer)))

    def before_step(
        self,
        optimizer: torch.optim.Optimizer,
        step: int,
        carried: Later,
        scale: Later,
        used: torch.dtype | None,
    ) -> None:
        """Look at the gradients and remember some weights, where this step is one to look at.

        With a closure this comes when the step is over, and ``closure_begins`` before.
        """
        self.sampling = self._is_due(optimizer) and not is_captured()
        self.broken.before_step(optimizer)
        self._asked[id(optimizer)] += 1
        self._now, self._remembered, self._under_autocast = {}, None, used is not None
        (of, before), self._before_closure = self._before_closure, (0, None)
        if not self.sampling:
            return
        by_layer = self.names.by_layer(parameters_of(optimizer))
        factor, loss_scale = carried.read() or 1.0, scale.read() or 1.0
        looks = {each: layer_step(p, step, factor, loss_scale, used) for each, p in by_layer.items()}
        self._now = {layer: look() for layer, look in looks.items() if look is not None}
        if before is not None and of == id(optimizer):
            self._remembered = before
            before.closure_is_over()
        elif isinstance(optimizer, torch.optim.Optimizer):  # what stands in for one moves no weights
            self._remembered = Remembered(self.names.by_layer(moving(optimizer)))
        self._tell_of_zeros(optimizer, step, loss_scale, used)
        self._tell_of_underflow(step, loss_scale, used)

    def after_step(
        self, optimizer: torch.optim.Optimizer, done: StepDone, scale: Later, loss: Later, found_inf: Later
    ) -> None:
        """Write the step down, and what it made of the weights."""
        lost: dict[str, float] = {}
        if self._remembered is not None and done.happened:
            lost = self._remembered.lost()
            self._tell_of_lost_updates(optimizer, done, lost)
        number = self._optimizers.setdefault(id(optimizer), len(self._optimizers))
        self.broken.after_step(
            optimizer, done, lambda: [s for s in self.steps if s.optimizer == number and s.happened]
        )
        rate = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
        seen = StepSeen(
            index=done.step,
            optimizer=number,
            happened=done.happened,
            scale=1.0,
            sampled=self.sampling,
            gradient_norm=_norm(self._now.values()),
            lost_updates=mean(lost.values()),
            learning_rate=float(rate) if isinstance(rate, (int, float)) else None,
            backwards=done.backwards,
        )
        self._lines.append(_Line(seen, scale, loss, found_inf))
        if self.sampling:
            read_together(number for line in self._lines[self._read :] for number in line.numbers)
            self._read = len(self._lines)
            self._tell_of_shards(optimizer, done)
            self._tell_of_halves(optimizer, done)
            self._keep(optimizer, lost)
            tries = self._again[id(optimizer)]
            self._again[id(optimizer)] = 0 if done.happened or tries == _MOST_TRIES else tries + 1
        self.frames.begin(done.step + 1, armed=self._is_due(optimizer) or not done.happened)

    def _tell_of_zeros(
        self, optimizer: torch.optim.Optimizer, step: int, scale: float, used: torch.dtype | None
    ) -> None:
        """Report gradients that are mostly exactly 0; all of them, at two steps: one may be a batch's own."""
        shares = {layer: now.zero_fraction for layer, now in self._now.items()}
        most = {layer: share for layer, share in shares.items() if share > _MOST_ZERO}
        if most:
            self._report(Zeros(step=step, line=line_outside(), shares=most))
        if not self._now or any(each.zero_fraction < 1.0 for each in self._now.values()):
            self._all_zero.discard(id(optimizer))
            return
        if id(optimizer) in self._all_zero:
            self._report(GradientsZero(step=step, line=line_outside(), used=used, scale=scale))
        self._all_zero.add(id(optimizer))

    def _tell_of_underflow(self, step: int, scale: float, used: torch.dtype | None) -> None:
        """Report gradients that all lie at the lower end of fp16, at a scale that could be larger."""
        if used is not torch.float16 or not 1.0 <= scale < _FIRST_SCALE or not self._now:
            return
        found = [each.census for each in self._now.values() if each.census is not None]
        largest = max((max(census.binades, default=_NO_BINADE) for census in found), default=_NO_BINADE)
        overflowed = any(census.nonfinite for census in found)
        if not overflowed and largest > _NO_BINADE and math.ldexp(scale, largest) < _FEW_BITS:
            self._report(Underflow(step=step, line=line_outside(), scale=scale))

    def _tell_of_lost_updates(
        self, optimizer: torch.optim.Optimizer, done: StepDone, lost: dict[str, float]
    ) -> None:
        """Report weights in 16 bits that the step left as they were."""
        groups = optimizer.param_groups
        would_move = [p for group in groups for p in group["params"] if _is_enough(group.get("lr"), p)]
        by_layer = self.names.by_layer(would_move)
        half = {name: p for name, p in by_layer.items() if p[0].dtype in HALF_DTYPES and name in lost}
        if not half or makes_good(optimizer):
            return
        first = next(iter(half.values()))[0]
        sizes = {name: sum(p.numel() for p in parameters) for name, parameters in half.items()}
        self._report(
            UpdatesLost(
                step=done.step,
                line=done.line,
                dtype=first.dtype,
                share=sum(lost[name] * sizes[name] for name in half) / sum(sizes.values()),
                layers=len(half),
                still=tuple(name for name in half if lost[name] >= _MANY),
                since=self._origin(first)[1],
            )
        )

    def _tell_of_shards(self, optimizer: torch.optim.Optimizer, done: StepDone) -> None:
        """Report weights in 16 bits of which no rank holds more than a part."""
        for layer, parameters in self.names.by_layer(parameters_of(optimizer)).items():
            for each in parameters:
                if each.dtype in HALF_DTYPES and part_of(each):
                    self._report(ShardsInHalf(step=done.step, line=done.line, layer=layer, dtype=each.dtype))
                    return

    def _tell_of_halves(self, optimizer: torch.optim.Optimizer, done: StepDone) -> None:
        """Report, once, weights in 16 bits that are whole, and the moments that are kept of them."""
        half = next((p for p in parameters_of(optimizer) if p.dtype in HALF_DTYPES), None)
        told = id(optimizer) in self._told_of_halves or not done.happened
        if half is None or told or part_of(half) or makes_good(optimizer):
            return
        self._told_of_halves.add(id(optimizer))
        kept = state_of(optimizer).get(half, {}).items()
        origin, since = self._origin(half)
        self._report(
            WeightsInHalf(
                step=done.step,
                line=done.line,
                dtype=half.dtype,
                moments=tuple(name for name, value in kept if getattr(value, "dtype", None) == half.dtype),
                under_autocast=self._under_autocast,
                origin=origin,
                since=since,
            )
        )

    def _keep(self, optimizer: torch.optim.Optimizer, lost: dict[str, float]) -> None:
        if id(optimizer) not in self._replicas:
            self._replicas[id(optimizer)] = replicas()
        replicated = self._replicas[id(optimizer)]
        of_models = [pair for model in reversed(self.names.models) for pair in model.named_parameters()]
        names = {id(parameter): name.rpartition(".")[2] for name, parameter in of_models}  # within a layer
        for layer, parameters in self.names.by_layer(parameters_of(optimizer)).items():
            if layer not in self._now:
                continue
            now = replace(self._now[layer], lost_update_fraction=lost.get(layer))
            history = self._layers[layer].history if layer in self._layers else ()
            if len(history) >= _LONGEST:  # every second step is left out, but for the newest
                history = (*history[:-1:2], history[-1])
            named = {names.get(id(p), f"parameter {i}"): p for i, p in enumerate(parameters)}
            self._layers[layer] = LayerSeen(
                name=layer,
                parameters=sum(p.numel() for p in parameters),
                dtype_names=dict(dtypes_of(named, [optimizer])),
                history=(*history, now),
                part="; ".join(sorted({part_of(p) for p in parameters} - {""})),
                replicated=any(id(p) in replicated for p in parameters),
            )


def _norm(layers: Collection[LayerStep]) -> float | None:
    """Return the norm of all gradients: inf where one of them is not finite, None without any."""
    if not layers:
        return None
    finite = all(one.nonfinite == 0 for each in layers for one in each.counterfactual.values())
    return math.hypot(*(each.norm for each in layers)) if finite else math.inf


def moving(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the parameters that a step may change: not those whose rate is 0, at a warm-up's first step."""
    return [p for group in optimizer.param_groups if not _is_zero(group.get("lr")) for p in group["params"]]


def _is_zero(rate: object) -> bool:
    free = not isinstance(rate, Tensor) or may_read(rate)
    return free and rate == 0


def _is_enough(rate: object, parameter: Tensor) -> bool:
    """Whether a step at that rate, a warm-up's for one, would change a parameter if it were fp32."""
    if not isinstance(rate, (int, float)) or abs(rate) >= _SMALL_RATE:
        return True
    if is_distributed(parameter) or not may_read(parameter):
        return True
    gradient = parameter.grad
    largest = 1.0 if gradient is None or not gradient.numel() else float(gradient.abs().max())
    return abs(rate) * max(1.0, largest) > _HALF_A_SPACING * float(parameter.detach().abs().mean())


class BrokenWeights:
    """Report once of each optimizer that weights are inf or NaN, and since which of its steps.

    A few numbers of two gradients are read before a step, where nobody waits for them; weights are looked at
    only where one of those is no finite number, and once more at the end where the last steps were not looked
    at, on a device. What a loop has put back until the next step, did no harm.
    """

    def __init__(self, names: Names, report: Callable[[Event], None]) -> None:
        self.first: WeightsBroken | None = None
        self._names, self._report = names, report
        self._told: set[int] = set()
        self._suspected: dict[int, tuple[torch.optim.Optimizer, WeightsBroken]] = {}
        self._before: tuple[str, ...] | None = None  # layers, where the gradients of this step are broken
        self._unread: dict[int, tuple[weakref.ref[torch.optim.Optimizer], StepDone, _Earlier]] = {}

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Look at the gradients that are about to be applied."""
        self._confirm(optimizer)
        suspicious = id(optimizer) not in self._told and _few_are_broken(optimizer)
        self._before = self._layers(optimizer) if suspicious else None

    def after_step(self, optimizer: torch.optim.Optimizer, done: StepDone, earlier: _Earlier) -> None:
        """Look at the weights; ``earlier`` returns the steps that this optimizer has made so far."""
        before, self._before = self._before, None
        self._unread.pop(id(optimizer), None)
        if isinstance(optimizer, torch.optim.Optimizer) and not any(map(may_read, _ends(optimizer))):
            self._unread[id(optimizer)] = weakref.ref(optimizer), done, earlier
        elif before:
            self._suspect(optimizer, before, done, earlier)
        elif before is not None and done.happened and (layers := self._layers(optimizer)):
            in_backward = done.loss is not None and math.isfinite(done.loss)
            event = WeightsBroken(step=done.step, line=done.line, layers=layers, in_backward=in_backward)
            self._suspected[id(optimizer)] = optimizer, event

    def is_over(self) -> None:
        """Report what is broken at the end."""
        for reference, done, earlier in self._unread.values():
            optimizer = reference()
            if optimizer is not None and id(optimizer) not in self._told and not is_captured():
                self._suspect(optimizer, self._layers(optimizer), done, earlier)
        for optimizer, _ in list(self._suspected.values()):
            self._confirm(optimizer)

    def _suspect(
        self, optimizer: torch.optim.Optimizer, layers: tuple[str, ...], done: StepDone, earlier: _Earlier
    ) -> None:
        """Take the last step whose loss was finite for the one that broke these layers, if there is one."""
        finite = [each for each in earlier() if each.loss is not None and math.isfinite(each.loss)]
        if layers and finite:
            event = WeightsBroken(step=finite[-1].index, line=done.line, layers=layers, in_backward=False)
            self._suspected[id(optimizer)] = optimizer, event

    def _confirm(self, optimizer: torch.optim.Optimizer) -> None:
        _, event = self._suspected.pop(id(optimizer), (None, None))
        if event is not None and self._layers(optimizer):
            self._told.add(id(optimizer))
            self.first = self.first or event
            self._report(event)

    def _layers(self, optimizer: torch.optim.Optimizer) -> tuple[str, ...]:
        """Name the layers with trained weights that are not finite."""
        trained = [p for p in parameters_of(optimizer) if p.requires_grad]
        return tuple(name for name, own in self._names.by_layer(trained).items() if not all_finite(own))


def _ends(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the first and the last gradient."""
    gradients = [p.grad for p in parameters_of(optimizer) if p.grad is not None]
    return [gradients[0], gradients[-1]] if gradients else []


def _few_are_broken(optimizer: torch.optim.Optimizer) -> bool:
    if is_captured():
        return False
    samples = [sample_of(each) for each in _ends(optimizer) if may_read(each)]
    return not all(bool(each.isfinite().all()) for each in samples if each is not None)
