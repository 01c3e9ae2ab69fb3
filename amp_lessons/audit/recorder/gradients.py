"""The gradient of each parameter: who scaled it, and what has been done to it since.

PyTorch counts the changes of every tensor, so gradients are compared with how they were when somebody last
looked, and nothing is computed. Of each a few numbers are kept, to tell a factor from any other change.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Container, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Literal

import torch
from torch import Tensor

from amp_lessons.audit.recorder.events import Line
from amp_lessons.audit.recorder.later import Lasting, Place, may_read, place_of
from amp_lessons.precisions import HALF_DTYPES

_SAMPLE = 16  # numbers of each gradient
_SAME_FACTOR = 0.02
_EXACT = 1e-3  # a division by the scale, rather than clipping that came to nearly as much
_CLEARLY_SCALED = 16.0
_PASSES = 64  # backward passes that are remembered as used
_MOST_MULTIPLIED = 10_000  # tensors, since the last backward pass

Change = Literal["none", "by a factor", "undone", "made finite", "other"]


@dataclass(frozen=True)
class Added:
    """Gradients were added to some that a step had ``applied`` (on its line), or else to some of other scale.

    ``scalers`` are two where not the same one has scaled both. Where one of the two losses, that on the
    ``line``, was scaled by nobody, it is ``unscaled``. The others are ``left_over`` where another optimizer
    has stepped on what their backward pass gave it.
    """

    applied: bool
    line: Line
    applied_at: Line = None
    scalers: tuple[int, int] | None = None
    unscaled: bool = False
    left_over: bool = False


@dataclass
class _State:
    """A gradient as it was last seen: the tensor, kept alive by nobody here, and its count of changes.

    ``scaled_by`` is the scaler whose scale multiplies it, 0 for none; ``generation`` counts that scaler's
    updates before it was computed; ``unscaled_on`` is the line of a loss that surely nothing has scaled.
    ``applied`` says that a step has used it, and ``applied_at`` on which line, ``change`` what something has
    done to it since backward, "undone" standing for a division by the scale; ``changed_at`` is the line, as
    far as it was heard. It was ``added_to`` gradients of another kind on some line.
    """

    gradient: weakref.ref[Tensor]
    version: int
    sample: Tensor | None
    _: KW_ONLY
    foreign: bool = False  # no backward pass that was seen has filled it
    scaled_by: int = 0
    generation: int = 0
    applied: bool = False
    applied_at: Line = None
    unscaled: bool = False
    divided_by: int = 0  # the scaler that has divided it by its scale
    change: Change = "none"
    changed_at: Line = None
    unscaled_on: tuple[Line] | None = None
    added_to: Added | None = None
    passes: tuple[int, ...] = ()  # the first and the last backward pass that is added up in it

    def take_as_it_is(self, sample: bool = False) -> None:
        """Take what has been done so far for no change, and, where there was a ``sample``, another one."""
        gradient = self.gradient()
        if gradient is not None:
            self.version = gradient._version
        if sample:
            self.sample = None if gradient is None or self.sample is None else sample_of(gradient)

    def notice(self, gradient: Tensor, scale: float | None, line: Line) -> None:
        """Find out what was done to the gradient, on this ``line`` where it was heard.

        A few of its numbers tell, or tell nothing.
        """
        self.version, self.applied = gradient._version, False
        now = sample_of(gradient)
        if self.change == "undone" or self.sample is None or now is None:
            return
        self.changed_at = line
        factor = _factor(self.sample, now)
        finite = self.sample.isfinite()
        if not self.unscaled and bool(now.isfinite().all()) and not bool(finite.all()):
            self.change = "made finite"
        elif factor is None:
            if bool((finite & (self.sample != 0)).any()):
                self.change = "other"
        elif scale is not None and scale >= _CLEARLY_SCALED and abs(factor * scale - 1.0) < _EXACT:
            self.change, self.scaled_by, self.unscaled = "undone", 0, True
        else:
            self.change = "by a factor"


class GradientBook:
    """The gradients of all watched parameters, each with what is known of it.

    A few numbers of each gradient are kept where they may be read.
    """

    def __init__(self) -> None:
        self.passes = 0  # backward passes so far
        self._cleared: set[int] = set()  # parameters, once a step had applied their gradients
        self._summed: dict[int, torch.dtype] = {}  # parameters whose gradients were added up in 16 bits
        self._used: deque[int] = deque(maxlen=_PASSES)  # those of which a step has used gradients
        self._multiplied: dict[Place, tuple[Lasting, Line]] = {}  # a tensor, on which line
        self._states: dict[int, _State] = {}  # by the parameter's id; parameters live as long as optimizers

    def look(self, parameters: Iterable[Tensor], scale: float | None = None) -> None:
        """Notice what has been done to gradients since the last look; ``scale`` is the loss scale now."""
        for parameter in parameters:
            state, gradient = self._states.get(id(parameter)), parameter.grad
            if gradient is None or (state is not None and gradient is not state.gradient()):
                self._states.pop(id(parameter), None)
            elif state is None:
                found = _State(weakref.ref(gradient), gradient._version, None, foreign=True)
                self._states[id(parameter)] = found
            elif gradient._version != state.version:
                scale_now = scale if state.scaled_by or state.unscaled else None
                state.notice(gradient, scale_now, self._multiplied_on(gradient))

    def multiplied(self, tensor: Tensor, line: Line) -> None:
        """Note on which line numbers were multiplied in place that may be a gradient's."""
        lasting = Lasting.of(tensor) if self._states and len(self._multiplied) < _MOST_MULTIPLIED else None
        if lasting is not None:
            self._multiplied[lasting.place] = lasting, line

    def _multiplied_on(self, gradient: Tensor) -> Line:
        place = place_of(gradient)
        lasting, line = self._multiplied.get(place, (None, None)) if place is not None else (None, None)
        return line if lasting is not None and lasting.is_of(gradient) else None

    def undone_at(self, parameters: Iterable[Tensor]) -> Line:
        """Return the line on which somebody divided waiting gradients by the scale, where it was heard."""
        return next((s.changed_at for s in self._of(parameters) if s.change == "undone"), None)

    def cleared(self, parameters: Iterable[Tensor]) -> None:
        """Forget gradients that were set to zero."""
        for parameter in parameters:
            state = self._states.pop(id(parameter), None)
            if state is not None and state.applied:
                self._cleared.add(id(parameter))

    def cleared_applied(self, parameters: Iterable[Tensor]) -> bool:
        """Whether some of these gradients have been set to zero after a step had applied them."""
        return any(id(parameter) in self._cleared for parameter in parameters)

    def after_backward(
        self,
        parameters: Iterable[Tensor],
        scaled_by: int,
        generation: int,
        line: Line,
        unscaled: bool,
        beside: Container[int],
    ) -> bool:
        """Notice which gradients a backward pass on ``line`` has filled; ``look`` came right before it.

        Its loss is surely ``unscaled``, or may have been scaled by hand where nobody has ``scaled_by``. What
        is scaled does not reach the parameters ``beside`` it.
        """
        reached = False
        self._multiplied.clear()
        for parameter in parameters:
            gradient, state = parameter.grad, self._states.get(id(parameter))
            if gradient is None:
                continue
            if state is not None and gradient is state.gradient() and gradient._version == state.version:
                continue
            reached = True
            sample = sample_of(gradient) if may_read(gradient) else None
            by = 0 if id(parameter) in beside else scaled_by
            new = _State(
                weakref.ref(gradient), gradient._version, sample, scaled_by=by, generation=generation
            )
            new.unscaled_on = (line,) if unscaled else None
            before = None if state is None or state.foreign else state
            if before is not None and before.unscaled and not before.applied and not by:
                new.unscaled, new.divided_by = True, before.divided_by  # both have their true size
            first = self.passes if before is None or before.applied else before.passes[0]
            new.passes = first, self.passes
            new.added_to = None if before is None else _added(before, new, line, self._used)
            if first != self.passes and gradient.dtype in HALF_DTYPES:
                self._summed[id(parameter)] = gradient.dtype
            self._states[id(parameter)] = new
        return reached

    def summed_in_half(self, parameters: Iterable[Tensor]) -> torch.dtype | None:
        """Return, once, the dtype in 16 bits in which gradients were added up, None where none were."""
        found = [self._summed.pop(id(p)) for p in parameters if id(p) in self._summed]
        return found[0] if found else None

    def added_to(self, parameters: Iterable[Tensor]) -> Added | None:
        """Say, once, on which line waiting gradients were added to others that they do not belong with."""
        found = [state for state in self._of(parameters) if state.added_to is not None and not state.applied]
        for state in found:
            state.added_to, told = None, state.added_to
        return told if found else None

    def unscaled(self, parameters: Iterable[Tensor]) -> None:
        """Note that a scaler has divided these gradients by its scale."""
        for state in self._of(parameters):
            state.take_as_it_is(sample=True)
            state.scaled_by, state.divided_by, state.change = 0, state.scaled_by, "none"
            state.unscaled = True

    def clipped(self, parameters: Iterable[Tensor]) -> None:
        """Take gradients that were clipped for what they are: what follows is compared with that."""
        self._multiplied.clear()  # by clipping itself, too
        for state in self._of(parameters):
            state.take_as_it_is(sample=True)

    def applied(self, parameters: Iterable[Tensor], line: Line) -> None:
        """Note that a step on this ``line`` has used, or skipped, these gradients."""
        for state in self._of(parameters):
            state.take_as_it_is()
            state.applied, state.applied_at = True, line
            self._used.extend(each for each in state.passes if each not in self._used)

    def is_scaled(self, tensor: Tensor) -> bool:
        """Whether a tensor is one of the gradients, or shows it, and is still scaled."""
        place = place_of(tensor)
        for state in list(self._states.values()):
            gradient = state.gradient() if state.scaled_by and not state.applied else None
            if gradient is not None and (gradient is tensor or place_of(gradient) == place is not None):
                return True
        return False

    def scaled_by(self, parameters: Iterable[Tensor]) -> int:
        """Return the scaler whose scale some of the waiting gradients carry, 0 when none does."""
        return next((s.scaled_by for s in self._of(parameters) if s.scaled_by and not s.applied), 0)

    def scaler_of(self, parameters: Iterable[Tensor]) -> int:
        """Return the scaler that has scaled these gradients, whether or not it has unscaled them."""
        return next(filter(None, (s.scaled_by or s.divided_by for s in self._of(parameters))), 0)

    def outdated(self, parameters: Iterable[Tensor], scaler: int, generation: int) -> bool:
        """Whether waiting gradients were scaled before the scaler's last update."""
        return any(
            s.scaled_by == scaler and not s.applied and s.generation != generation
            for s in self._of(parameters)
        )

    def change(self, parameters: Iterable[Tensor]) -> Change:
        """Say what something has done to waiting gradients since backward: the worst of all."""
        worst: tuple[Change, ...] = ("made finite", "other", "undone", "by a factor")
        found = {state.change for state in self._of(parameters)}
        return next((each for each in worst if each in found), "none")

    def all_finite(self, parameters: Iterable[Tensor]) -> bool:
        """Whether the numbers that are looked at are finite, in all gradients that may be read."""
        gradients = (s.gradient() for s in self._of(parameters))
        samples = (sample_of(g) for g in gradients if g is not None and may_read(g))
        return all(bool(sample.isfinite().all()) for sample in samples if sample is not None)

    def holds_all_scaled(self, parameters: Iterable[Tensor]) -> bool:
        """Whether no other gradients than these are waiting that a scaler has scaled."""
        these = {id(parameter) for parameter in parameters}
        return not any(
            s.scaled_by and not s.applied for key, s in list(self._states.items()) if key not in these
        )

    def unused(self, parameters: Iterable[Tensor], cleared: Iterable[Tensor]) -> bool:
        """Whether gradients of ``parameters`` that are about to be ``cleared`` are of no use to anybody."""
        these = {id(parameter) for parameter in cleared}
        waiting = [s for s in self._of(p for p in parameters if id(p) in these) if not s.applied]
        return any(each not in self._used for s in waiting for each in s.passes)

    def any_unscaled(self, parameters: Iterable[Tensor]) -> bool:
        """Whether some of these gradients have been divided by the scale."""
        return any(s.unscaled for s in self._of(parameters))

    def fresh(self, parameters: Iterable[Tensor]) -> bool:
        """Whether gradients are waiting that no step has used."""
        return any(not s.applied for s in self._of(parameters))

    def waiting(self, parameters: Iterable[Tensor]) -> bool:
        """Whether anything at all is known of these gradients."""
        return any(True for _ in self._of(parameters))

    def _of(self, parameters: Iterable[Tensor]) -> Iterator[_State]:
        found = (self._states.get(id(p)) for p in parameters)
        return (state for state in found if state is not None and not state.foreign)


def sample_of(gradient: Tensor) -> Tensor | None:
    """Copy a few numbers of a gradient, at equal distances in memory; None of one that is not dense."""
    plain = type(gradient) is Tensor and gradient.layout == torch.strided and gradient.numel() > 0
    if not plain:
        return None
    channels_last = gradient.dim() == 4 and gradient.is_contiguous(memory_format=torch.channels_last)
    if not (channels_last or gradient.is_contiguous()):
        return None
    step = max(1, gradient.numel() // _SAMPLE)
    count = min(_SAMPLE, (gradient.numel() + step - 1) // step)
    return gradient.detach().as_strided((count,), (step,), gradient.storage_offset()).clone()


def _factor(before: Tensor, after: Tensor) -> float | None:
    """Return by which factor all of some numbers were multiplied, None if they were changed otherwise."""
    before, after = before.double(), after.double()
    known = before.isfinite() & (before != 0)
    if not bool(known.any()) or bool((after[before == 0] != 0).any()):
        return None
    factors = after[known] / before[known]
    factor = float(factors.median())
    return factor if bool(((factors - factor).abs() <= _SAME_FACTOR * abs(factor)).all()) else None


def _added(before: _State, now: _State, line: Line, used: Container[int]) -> Added | None:
    """Say what a gradient was added to, if it does not belong with it; or what was added to before."""
    if before.added_to is not None:
        return before.added_to
    if before.applied:
        return Added(applied=True, line=line, applied_at=before.applied_at)
    two = before.scaled_by, now.scaled_by
    if all(two):
        scalers = two if two[0] != two[1] else None
        if scalers is None and before.generation == now.generation:
            return None
        return Added(False, line, scalers=scalers, left_over=all(each in used for each in before.passes))
    if now.scaled_by and before.unscaled:
        return Added(False, line)
    on = (now if before.scaled_by else before).unscaled_on
    mixed = any(two) and on is not None and before.change == "none"  # nobody has multiplied them since
    return Added(False, on[0], unscaled=True) if mixed and on is not None else None


def parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return what an optimizer steps, in order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
