"""Recognize moving averages of the weights by what is computed, and tell which numbers they took in.

Certain is an average that takes in a weight itself: by ``lerp_``, by ``mul_`` and ``add_`` with parts that
make up one, or as an ``AveragedModel``. Where the weights were multiplied, cast or added up on the way, only
numbers say that they were weights: such an average resembles one, and is not reported before it has done so
in two steps. Nothing is concluded from a tensor's size alone, from memory that a library fills again, or
from weights that no optimizer steps under this watch: another training's may still be in memory.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from amp_lessons.audit.recorder import events
from amp_lessons.audit.recorder.gradients import parameters_of
from amp_lessons.audit.recorder.later import Lasting, Place, local, may_read, place_of
from amp_lessons.audit.recorder.spies import Recorder
from amp_lessons.precisions import HALF_DTYPES

_SMALL_PART = 0.1  # of the weights, in a moving average
_A_FEW = 64  # numbers of a tensor, by which it is known again
_ROUNDED = 2.0**-7  # how far two roundings to bf16 may move a number
_SAME_PART = 1e-3  # of a part: 1 − 0.999 is not quite 0.001


class _Sum(NamedTuple):
    """The result of an addition, kept alive by nobody here, and a few numbers of its two terms."""

    result: weakref.ref[Tensor]
    terms: tuple[Tensor, Tensor]


class _Weights:
    """The weights that the optimizers of this training step, with each its optimizer."""

    def __init__(self, optimizers: Mapping[int, torch.optim.Optimizer]) -> None:
        self._owned = [(p, key) for key, each in optimizers.items() for p in parameters_of(each)]
        self.shapes = frozenset(p.shape for p, _ in self._owned if p.dim())  # one number tells nothing

    @cached_property
    def _by_place(self) -> dict[Place | None, tuple[Tensor, int]]:
        return {place_of(parameter): (parameter, key) for parameter, key in self._owned}

    def optimizer_of(self, tensor: Tensor) -> int | None:
        """Return the optimizer of the weight that a tensor is, or shows; None of any other."""
        place = place_of(tensor)
        weight, optimizer = self._by_place.get(place, (None, None))
        # a weight may have been given other memory since, and the tensor what it had
        return optimizer if place is not None and place == place_of(weight) else None

    def like(self, tensor: Tensor) -> Iterator[Tensor]:
        """Yield the weights of a tensor's shape."""
        return (p for p, _ in self._owned if p.shape == tensor.shape)


class Averages:
    """The moving averages of one training."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._known: tuple[int, _Weights] = -1, _Weights({})
        self._decayed: tuple[Lasting, float] | None = None  # the last one multiplied, the part that this took
        self._sum: _Sum | None = None  # the last one that is as large as a weight
        self._parts: dict[Place, tuple[Lasting, float]] = {}  # large ones that were taken in last, by where

    def model_averaged(self, before: Any, average: Any, model: Any) -> None:
        """Report an averaged model that takes in the weights of ``model``."""
        self._report(before, next(average.module.parameters()), next(model.parameters()))

    # what PyTorch calls ``weight`` here is the part of each average that is replaced by the weights

    def lerped(self, before: Any, average: Tensor, end: Any, weight: Any = 1.0) -> None:
        """Report an average that moves towards weights by a small part of the way."""
        if self._is_of_average(weight, average):
            self._took_in(before, average, end)

    def many_lerped(self, before: Any, averages: Any, tensors1: Any, weight: Any = 1.0) -> None:
        """Report averages that do: the first one shows which."""
        if averages and isinstance(tensors1, (tuple, list)):
            self.lerped(before, averages[0], tensors1[0], weight)

    def multiplied(self, tensors: Any, factor: Any) -> None:
        """Remember what was multiplied by a number below 1: an average may take in weights next."""
        decays = isinstance(factor, float) and tensors and 0.0 <= factor < 1.0
        lasting = Lasting.of(tensors[0]) if decays else None
        self._decayed = (lasting, 1.0 - factor) if lasting is not None else None

    def added_to(self, before: Any, average: Tensor, other: Any, *, alpha: Any = 1.0) -> bool:
        """Report an average that has decayed by a part, and takes in as much of the weights."""
        if self._decayed is None or not self._decayed[0].is_of(average):
            return False
        (_, part), self._decayed = self._decayed, None
        taken = 1.0 if _is_same(alpha, part) else part  # else it was multiplied on the way
        if not _is_same(alpha, part / taken) or not self._is_of_average(part, average):
            return False
        return self._took_in(before, average, other, taken)

    def subtracted(self, before: Any, average: Any, other: Any, *, alpha: Any = 1.0) -> None:
        """Report an average from which a small part of the way to weights was taken: diffusers' spelling."""
        after, taken = _few(average), _few(other) if isinstance(other, Tensor) else None
        if after is None or taken is None or alpha != 1.0 or not self._may_be_average(average):
            return
        was = before if before is not None else after + taken
        for weights in self._weights_now().like(average):
            few = _few(weights)
            way = None if few is None else was.float() - few.float()
            part = math.nan if way is None else _part(taken, way)
            if way is not None and _is_small(part) and _is_multiple(taken, part, way):
                self._report(before, average, weights, resembles=True)
                return

    def many_added(self, before: Any, averages: Any, other: Any, *, alpha: Any = 1.0) -> None:
        """Report averages that do: the first one shows which."""
        if averages and isinstance(other, (tuple, list)):
            self.added_to(before, averages[0], other[0], alpha=alpha)

    def added(self, result: Any, first: Tensor, second: Any) -> None:
        """Remember the terms of a sum: with ``copy_`` an average may take it in next."""
        if not isinstance(result, Tensor) or result.requires_grad or self._recorder.in_step():
            return
        if result.shape in self._weights_now().shapes and isinstance(second, Tensor):
            one, other = _few(first), _few(second)
            if first.shape == second.shape and one is not None and other is not None:
                self._sum = _Sum(weakref.ref(result), (one, other))

    def before_copy(self, average: Any = None, src: Any = None, *args: Any, **kwargs: Any) -> Tensor | None:
        """Copy a few numbers of a tensor that is about to take in the sum just computed, else nothing."""
        return _few(average) if self._sum is not None and src is self._sum.result() is not None else None

    def copied(self, before: Tensor | None, average: Tensor, *args: Any, **kwargs: Any) -> None:
        """Report a copy of the sum of most of what was there before, and a small part of weights."""
        if before is None or self._sum is None or not self._may_be_average(average):
            return
        for weights in self._weights_now().like(average):
            few = _few(weights)
            if few is not None and _is_mean(before, few, *self._sum.terms):
                self._report(before, average, weights, resembles=True)
                return

    def _is_of_average(self, part: Any, average: Any) -> bool:
        """Whether a moving average takes in that part: a small one, or on a ramp less than the time before.

        Half and half, time after time, is no average of many steps, but slow weights that look ahead.
        """
        if _is_small(part) or not isinstance(part, float) or not 0.0 < part <= 1.0:
            return _is_small(part)
        place = Lasting.of(average)
        if place is None:
            return False
        kept, last = self._parts.get(place.place, (place, part))
        self._parts[place.place] = place, part
        return kept.is_of(average) and part < last

    def _weights_now(self) -> _Weights:
        if self._known[0] != self._recorder.steps:
            self._known = self._recorder.steps, _Weights(self._recorder.known.in_use())
        return self._known[1]

    def _took_in(self, before: Any, average: Any, taken: Any, part: float = 1.0) -> bool:
        """Report an average that took in a tensor, if that is a weight, or a part of one by its numbers."""
        if not isinstance(taken, Tensor) or not self._may_be_average(average) or average.shape != taken.shape:
            return False
        if part == 1.0 and self._weights_now().optimizer_of(taken) is not None:
            return self._report(before, average, taken)
        few = _few(taken)
        for weights in self._weights_now().like(taken):
            theirs = _few(weights)
            if few is not None and theirs is not None and _is_multiple(few, part, theirs):
                return self._report(before, average, weights, resembles=True)
        return False

    def _may_be_average(self, average: Any) -> bool:
        """Whether a tensor is neither trained nor a gradient, which weight decay by hand moves, too."""
        if not isinstance(average, Tensor) or average.requires_grad or self._recorder.in_step():
            return False
        weights, place = self._weights_now(), place_of(average)
        if average.shape not in weights.shapes or weights.optimizer_of(average) is not None or place is None:
            return False
        return all(p.grad is None or place_of(p.grad) != place for p in weights.like(average))

    def _report(self, before: Any, average: Tensor, weights: Tensor, resembles: bool = False) -> bool:
        after, target = few_of(average), _few(weights)
        stuck = None
        if before is not None and after is not None and target is not None:
            stuck = bool((target.float() != after.float()).any()) and torch.equal(before, after)
        self._recorder.record(
            events.Averaged,
            optimizer=self._weights_now().optimizer_of(weights),
            dtype=average.dtype,
            weight_dtype=weights.dtype,
            stuck=stuck,
            resembles=resembles,
            in_step=self._recorder.in_step(),
        )
        return True


def few_of(owner: Any = None, *args: Any, **kwargs: Any) -> Tensor | None:
    """Copy a few numbers, in 16 bits, of a tensor or of the first one of a list or of an averaged model."""
    tensor = next(owner.module.parameters()) if isinstance(owner, AveragedModel) else owner
    tensor = tensor[0] if isinstance(tensor, (tuple, list)) and tensor else tensor
    return _few(tensor) if isinstance(tensor, Tensor) and tensor.dtype in HALF_DTYPES else None


def _few(tensor: Tensor) -> Tensor | None:
    """Copy the first numbers of a tensor, or of this rank's part of it; None of one that has none to read."""
    if place_of(tensor) is None or not may_read(tensor):
        return None
    return local(tensor).detach().reshape(-1)[:_A_FEW].clone()


def _is_small(part: Any) -> bool:
    return isinstance(part, float) and 0.0 < part <= _SMALL_PART * (1.0 + _SAME_PART)


def _is_same(part: Any, other: float) -> bool:
    return isinstance(part, (int, float)) and math.isclose(part, other, rel_tol=_SAME_PART)


def _is_multiple(numbers: Tensor, part: float, of: Tensor) -> bool:
    """Whether all numbers are that part of others, but for rounding in their format."""
    wanted, least = part * of.float(), torch.finfo(numbers.dtype).tiny if numbers.is_floating_point() else 0.0
    return bool(wanted.any()) and torch.allclose(numbers.float(), wanted, rtol=_ROUNDED, atol=least)


def _is_mean(before: Tensor, weights: Tensor, first: Tensor, second: Tensor) -> bool:
    """Whether a sum of two terms moves what was there before towards weights by a small part of the way."""
    there, way = weights.float(), weights.float() - before.float()
    for rest, term in ((first, second), (second, first)):
        part, of_way = _part(term, there), _part(term, way)
        if _is_small(part) and _is_multiple(term, part, there) and _is_multiple(rest, 1.0 - part, before):
            return True
        if _is_small(of_way) and _is_multiple(term, of_way, way) and _is_multiple(rest, 1.0, before):
            return True
    return False


def _part(numbers: Tensor, of: Tensor) -> float:
    """Return the part of others that numbers are at best, by least squares; NaN where the others are 0."""
    return float((numbers.float() * of).sum() / (of * of).sum())
