"""What a training loop did on a problem: with plain SGD, the gradient that was applied follows from the
weights.

The loop runs in a worker, whose model writes down weights and inputs (``loops_there``). What each update
should have been is computed here, from them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import takewhile
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons import autocast
from amp_lessons.course.exercises import loops_there

_TRIES = 100
_SMALLEST_SCALE = 2.0**6  # with which a loop may begin
_BEYOND_FP16 = 1e5  # a batch that is multiplied by as much overflows in the forward pass, by less behind it
_MOST_ROUNDED = 0.7  # of what is tolerated
_LEAST_LOSS = 0.026  # which is right to 0.2 % where it is rounded to four decimals
_NEVER = 1e3  # no norm reaches such a limit
_CLEARLY = 1.25  # above a limit
TINY_WEIGHT = 2.0**-15  # below it a mean loss in the history may round to zero


@dataclass(frozen=True)
class Problem:
    """One run: which data, in which dtype, and what is done to make mistakes show.

    ``loss_weight`` multiplies the loss; at 2^-22 no unscaled gradient survives fp16, at 2^-5 gradients have a
    norm below 0.1. ``offset`` is added to it: no gradient changes, and a loss in fp16 overflows when it is
    scaled. ``poisoned`` batches overflow in fp16: the forward pass of one, only the gradients of the other.
    ``one_backward`` allows the losses of a window to go through one backward pass together.
    """

    seed: int
    dtype: torch.dtype
    loss_weight: float = 2.0**-5
    poisoned: tuple[tuple[int, float], ...] = ()
    offset: float = 0.0
    batch_sizes: tuple[int, ...] = (8, 8, 8, 8, 5)
    epochs: int = 2
    accumulation_steps: int = 1
    one_backward: bool = False
    max_norm: float | None = None

    @property
    def learning_rate(self) -> float:
        """The rate at which a step moves the weights by a few per cent, whatever the loss weight."""
        return 0.5 / self.loss_weight

    @property
    def tolerance(self) -> float:
        """By which share of its norm a right gradient may be off: that is how far the dtype rounds."""
        near_underflow = self.loss_weight < TINY_WEIGHT  # at a small scale some gradients are subnormal
        return 0.12 if near_underflow else 0.01 if self.dtype == torch.float16 else 0.03

    @cached_property
    def drawn(self) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """The weights at the start, and the batches: samples of very different sizes."""
        draw = torch.Generator().manual_seed(self.seed + 1000)
        shapes = [parameter.shape for parameter in _net().parameters()]
        weights = torch.cat([torch.randn(shape, generator=draw).reshape(-1) * 0.4 for shape in shapes])
        draw, batches = torch.Generator().manual_seed(self.seed), []
        directions = torch.randn(6, 5, generator=draw)
        for index, size in enumerate(self.batch_sizes):
            inputs = torch.randn(size, 6, generator=draw)
            targets = (inputs @ directions).argmax(dim=1)
            inputs = inputs * torch.rand(size, 1, generator=draw).mul(2.0).sub(1.0).exp()
            batches.append((inputs * dict(self.poisoned).get(index, 1.0), targets))
        return weights, batches

    def drawn_anew(self, shift: int) -> Problem:
        """Return the problem with other data, on which what the cards promise of gradients holds.

        Their norms are below 3 before the loss is weighted, so that a clip at 0.1 is harmless where the
        weight is 2^-5, and stay below 4, so that one at 1 is harmless where it is 2^-2; all along, a right
        loop's rounding is within what is tolerated, that of a history to four decimals too. Where the task
        has a limit that can be reached, some are above it and some below, or all that a shorter window has;
        the first is, by more than is tolerated: of it alone it is known where its step begins.
        """
        for seed in range(self.seed + shift, self.seed + shift + _TRIES):
            problem = replace(self, seed=seed)
            norms = list(takewhile(lambda norm: norm < 3.0 * self.loss_weight, problem._norms()))
            if len(norms) < len(self._kept()):
                continue
            if self._has_limit:
                shorter = len(self.batch_sizes) % self.accumulation_steps
                limit = norms[-1] / 2 if shorter else math.sqrt(min(norms) * max(norms))
                problem = replace(problem, max_norm=float(f"{limit:.2g}"))
                if norms[0] < _CLEARLY * limit:
                    continue
            if problem._holds_to_the_end():
                break
        return problem

    @property
    def _has_limit(self) -> bool:
        """Whether there is a limit that gradients reach: not where all are below, or far above it."""
        reached = self.max_norm is not None and self.max_norm <= _NEVER
        return reached and self.loss_weight >= TINY_WEIGHT and not self.poisoned

    def _norms(self) -> Iterator[float]:
        """Yield the norm of the gradient of each window that is not poisoned, at the start."""
        return (float(self._mean_gradient(self.drawn[0], window).norm()) for window in self._kept())

    def _holds_to_the_end(self) -> bool:
        """Whether norms, mean losses and rounding stay within bounds along the steps of plain SGD."""
        weights, along, poisoned = self.drawn[0], [], []
        for window in self._windows() * self.epochs:
            if set(window) & set(dict(self.poisoned)):
                poisoned.append((weights, window))
                continue
            gradient = self._mean_gradient(weights, window)
            if gradient.norm() >= 4.0 * self.loss_weight:
                return False
            along.append((weights, window, gradient))
            weights = weights - self.learning_rate * gradient
        if self.loss_weight >= TINY_WEIGHT and not self.poisoned:  # where the history is looked at
            losses = [self.loss_at(at, batch)[0].detach() for at, window, _ in along for batch in window]
            if (torch.stack(losses).reshape(self.epochs, -1).mean(1) + self.offset < _LEAST_LOSS).any():
                return False
        with autocast.cuda_rules():  # by which the loop runs
            if not all(self._overflows(*each) for each in poisoned[: len(poisoned) // self.epochs]):
                return False
            return all(self._rounds_little(*each) for each in along)

    def _overflows(self, weights: Tensor, window: range) -> bool:
        """Whether the poisoned batches of a window overflow, by their loss or by their gradients alone."""
        for batch, factor in self.poisoned:
            if batch in window:
                gradient, loss = self._in_half(weights, batch, _SMALLEST_SCALE)
                alone = loss.isfinite() and gradient.isinf().any() and not gradient.isnan().any()
                if not (alone if factor < _BEYOND_FP16 else not loss.isfinite()):
                    return False
        return True

    def _rounds_little(self, weights: Tensor, window: range, gradient: Tensor) -> bool:
        rounded = self._mean_gradient(weights, window, half=True)
        return float((rounded - gradient).norm() / gradient.norm()) < _MOST_ROUNDED * self.tolerance

    def _kept(self) -> list[range]:
        """Return the windows of batches that are not poisoned."""
        bad = dict(self.poisoned)
        return [window for window in self._windows() if not set(window) & set(bad)]

    def _windows(self) -> list[range]:
        size, batches = self.accumulation_steps, range(len(self.batch_sizes))
        return [batches[at : at + size] for at in batches[::size]]

    def _mean_gradient(self, weights: Tensor, window: range, half: bool = False) -> Tensor:
        """Return the gradient of a window, in fp32, or in 16 bits by the smallest scale that cards allow."""
        scale = 1.0 if self.dtype == torch.bfloat16 else _SMALLEST_SCALE
        gradients = [
            self.in_half(weights, batch, scale) if half else self.truth(weights, batch)[1] for batch in window
        ]
        return torch.stack(gradients).sum(0) / self.accumulation_steps

    def given(self, names: Sequence[str], constants: Mapping[str, float]) -> dict[str, Any]:
        """Return what the worker is told of it; the fields ``names`` are arguments of the loop, too."""
        weights, batches = self.drawn
        return {
            "weights": weights,
            "batches": [list(batch) for batch in batches],
            "lr": self.learning_rate,
            "factor": self.loss_weight,
            "offset": self.offset,
            "epochs": self.epochs,
            "dtype": self.dtype,
            "poisoned": bool(self.poisoned),
            "options": {**{each: getattr(self, each) for each in names}, **constants},
        }

    def truth(self, weights: Tensor, batch: int) -> tuple[float, Tensor]:
        """Return the loss of a batch at these weights and its gradient, in fp32."""
        loss, parameters = self.loss_at(weights, batch)
        return float(loss.detach()), _flat(torch.autograd.grad(loss, parameters))

    def in_half(self, weights: Tensor, batch: int, scale: float) -> Tensor:
        """Return the gradient that a pass under autocast leaves, scaled by this and unscaled again."""
        return self._in_half(weights, batch, scale)[0]

    def _in_half(self, weights: Tensor, batch: int, scale: float) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=self.dtype):
            loss, parameters = self.loss_at(weights, batch)
        return _flat(torch.autograd.grad(loss * scale, parameters)) / scale, loss.detach()

    def loss_at(self, weights: Tensor, batch: int) -> tuple[Tensor, list[nn.Parameter]]:
        """Return the loss of a batch at these weights, and the parameters that it depends on."""
        model, (inputs, targets) = _net(), self.drawn[1][batch]
        nn.utils.vector_to_parameters(weights.clone(), model.parameters())
        return F.cross_entropy(model(inputs), targets) * self.loss_weight, list(model.parameters())


@cache
def _net() -> nn.Module:
    """Return the model that is given other weights again and again: to draw them takes longer than a pass."""
    return loops_there.Net()


def _flat(gradients: Sequence[Tensor]) -> Tensor:
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


_PLAIN = Problem(seed=1, dtype=torch.float16)
STANDARD = (
    Problem(seed=0, dtype=torch.float16, loss_weight=2.0**-22),
    _PLAIN,
    Problem(seed=2, dtype=torch.bfloat16),
    # the first poisoned batch overflows in the forward pass, the second only in the gradients
    Problem(seed=3, dtype=torch.float16, loss_weight=2.0**-2, poisoned=((1, 1e6), (3, 8e3))),
    replace(_PLAIN, seed=6, offset=2.0),
)


# --- what a worker has written down


@dataclass(frozen=True)
class Call:
    """One call of a scaler's, an optimizer's or clipping's, with the gradients that it found."""

    name: str
    owner: int
    scale: float
    clean: int
    enabled: bool
    inside: bool
    gradients: Tensor
    elements: int = 1
    dtype: torch.dtype | None = None
    arguments: int = 0
    norm: float = math.nan
    limit: float = math.nan


@dataclass(frozen=True)
class Entry:
    """One training loss, the forward pass that led to it, and all that followed until the next.

    ``begun`` holds the gradient with which each backward pass through it began: the loss scale, if all is
    well.
    """

    weights: Tensor
    loss: float
    loss_dtype: torch.dtype
    loss_autocast: bool
    begun: list[float]
    late: bool
    backward_autocast: bool
    filled: list[int]
    leftover: bool
    left: Tensor | None
    calls: list[Call]
    inputs: Tensor | None = None
    input_dtype: torch.dtype = torch.float32
    autocast: torch.dtype | None = None
    weight_dtype: torch.dtype = torch.float32
    stale: bool = False
    training: bool = True
    own: bool = False

    def called(self, *names: str, directly: bool = False) -> list[Call]:
        """List the calls of these names; ``directly`` leaves out what ``scaler.step`` did itself."""
        return [call for call in self.calls if call.name in names and not (directly and call.inside)]


def _calls(told: list[dict[str, Any]]) -> list[Call]:
    return [Call(**call) for call in told]


class Run:
    """What a loop did on one problem.

    ``seen`` and ``order`` leave out passes that came to nothing, where without them there are as many as the
    epochs have batches.
    """

    def __init__(self, problem: Problem, told: dict[str, Any]) -> None:
        self.problem, self.told = problem, told
        self.seen = [Entry(**{**each, "calls": _calls(each["calls"])}) for each in told["seen"]]
        self.start, self.end = problem.drawn[0], told["weights"]
        batches = problem.drawn[1]
        self.order = [_which(entry.inputs, batches) for entry in self.seen]
        counted = [i for i in range(len(self.seen)) if not self._came_to_nothing(i)]
        if len(counted) == problem.epochs * len(batches):
            self.seen, self.order = [self.seen[i] for i in counted], [self.order[i] for i in counted]

    def _came_to_nothing(self, place: int) -> bool:
        """Whether a pass's gradients were cleared unused, or its batch was tried again after an overflow."""
        entry, later = self.seen[place], self.seen[place + 1 : place + 2]
        cleared = any(any(each.filled) and not each.leftover for each in later)
        again = self.order[place : place + 2] == self.order[place : place + 1] * 2
        unused = again or not entry.called("scaler.step", "optimizer.step")
        return cleared and unused and torch.equal(entry.weights, later[0].weights)

    def calls(self, *names: str) -> list[Call]:
        """List all calls of these names."""
        found = (*_calls(self.told["before"]), *(call for each in self.seen for call in each.calls))
        return [call for call in found if call.name in names]

    @cached_property
    def windows(self) -> list[Window]:
        """The windows that the task asks for; the last of an epoch may be shorter."""
        per_epoch, length = len(self.problem.batch_sizes), self.problem.accumulation_steps
        places = range(len(self.seen))
        return [
            Window(self, list(places[at : min(at + length, start + per_epoch)]))
            for start in range(0, len(places), per_epoch)
            for at in range(start, min(start + per_epoch, len(places)), length)
        ]


def _which(inputs: Tensor | None, batches: list[tuple[Tensor, Tensor]]) -> int | None:
    """Recognise a batch by its values, also after a cast to 16 bits."""
    for index, (known, _) in enumerate(batches):
        if inputs is not None and inputs.shape == known.shape:
            finite = inputs.isfinite()  # a poisoned batch cast to fp16 by hand is not
            if finite.any() and torch.allclose(inputs[finite], known[finite], rtol=1e-2, atol=1e-6):
                return index
    return None


@dataclass
class Window:
    """The batches between two updates of the weights, one of them unless gradients are accumulated."""

    run: Run
    places: list[int]
    entries: list[Entry] = field(init=False)

    def __post_init__(self) -> None:
        run = self.run
        self.problem, self.size = run.problem, run.problem.accumulation_steps
        self.entries = [run.seen[place] for place in self.places]
        self.last = self.entries[-1]
        weights = [entry.weights for entry in run.seen] + [run.end]
        self.before, self.after = weights[self.places[0]], weights[self.places[-1] + 1]
        self.applied = (self.before - self.after) / self.problem.learning_rate
        self.moved = not torch.equal(self.before, self.after)
        self.moved_within = any(not torch.equal(weights[i], self.before) for i in self.places)
        self.batches = [run.order[place] for place in self.places]
        bad = dict(self.problem.poisoned)
        self.poisoned = any(batch is None or batch in bad for batch in self.batches)
        scales = [call.scale for call in self.called("scale") if call.enabled]
        self.scale = scales[0] if scales else 1.0
        self.begun = (self.last.begun[-1] if self.last.begun else 1.0) * self.size
        left = [entry.left for entry in self.entries if entry.left is not None]
        self.left = left[-1] if left else None
        passed = any(entry.begun for entry in self.entries)  # torch.autograd.grad leaves nothing in p.grad
        left_over = self.in_half if self.left is None and passed else self.left
        self.overflowed = left_over is not None and not bool(left_over.isfinite().all())
        given = [call.gradients for call in self.called("optimizer.step")]
        self.given = given[0] if given else None
        lost = [e for e in self.entries if not math.isfinite(e.loss)]
        self.left_out = any(not entry.begun for entry in lost)  # by the loop, before backward
        looked_at = [call.gradients for call in self.called("unscale_", "scaler.step")]
        seen = any(not gradients.isfinite().all() for gradients in looked_at)
        spread = any(entry.begun for entry in lost)
        finite = spread and self.left is not None and not self.overflowed and not seen
        # by themselves, too, gradients of a loss that is inf may be numbers
        self.hidden = finite and None not in self.batches and not bool(self.in_half.isfinite().all())

    def called(self, *names: str, directly: bool = False) -> list[Call]:
        """List the calls of these names after any of its batches."""
        return [call for entry in self.entries for call in entry.called(*names, directly=directly)]

    @cached_property
    def truths(self) -> list[tuple[float, Tensor]]:
        """The fp32 loss and gradient of each batch at the weights before the window."""
        return [self.problem.truth(self.before, batch) for batch in self.batches if batch is not None]

    @cached_property
    def gradient(self) -> Tensor:
        """The gradient of the mean loss of a full window."""
        return torch.stack([gradient for _, gradient in self.truths]).sum(0) / self.size

    @cached_property
    def in_half(self) -> Tensor:
        """The same as 16 bits leave it, by the scale with which the loop's backward passes began."""
        pairs = zip(self.batches, self.entries, strict=True)
        halves = [self.problem.in_half(self.before, n, _scale_of(e)) for n, e in pairs if n is not None]
        return torch.stack(halves).sum(0) / self.size

    def wanted(self, gradient: Tensor) -> Tensor:
        """Return the gradient to apply where the true one is ``gradient``: clipped, if the task says so."""
        limit = self.problem.max_norm
        return gradient if limit is None else gradient * min(1.0, limit / (float(gradient.norm()) + 1e-6))

    def close(self, gradient: Tensor) -> bool:
        """Whether the gradient that was applied is this one, clipped, up to the rounding of the dtype."""
        wanted = self.wanted(gradient)
        return bool((self.applied - wanted).norm() <= self.problem.tolerance * wanted.norm())

    @cached_property
    def factor(self) -> float:
        """By which factor the applied gradient differs from the wanted one; NaN if it points elsewhere."""
        wanted = self.wanted(self.gradient)
        factor = float(self.applied @ wanted / (wanted @ wanted))
        off = float((self.applied - factor * wanted).norm() / max(abs(factor) * float(wanted.norm()), 1e-30))
        return factor if off < 0.15 else math.nan

    def rounding(self) -> tuple[float, float]:
        """Return how much of the rounding of 16 bits is in the update, and how much there would be."""
        if None in self.batches:
            return 0.0, 0.0
        share = self.size if self.close(self.gradient) else len(self.batches)
        true = torch.stack([gradient for _, gradient in self.truths]).sum(0) / share
        rounding = self.wanted(self.in_half * self.size / share) - self.wanted(true)
        if not bool(rounding.isfinite().all()):
            return 0.0, 0.0
        return float((self.applied - self.wanted(true)) @ rounding), float(rounding @ rounding)


def _scale_of(entry: Entry) -> float:
    """Return the gradient that backward began with: its rounding depends on it. 1 for what is no number."""
    begun = entry.begun[-1] if entry.begun else 1.0
    return begun if math.isfinite(begun) and begun > 0 else 1.0


def near(a: float, b: float) -> bool:
    """Whether a factor is the expected one, within 10 %."""
    return math.isclose(a, b, rel_tol=0.1)


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two flat gradients are equal, NaN where NaN is."""
    return bool(torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)))
