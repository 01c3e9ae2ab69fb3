"""What is known of each parameter's gradient: who scaled it, and what has been done to it since.

PyTorch counts the changes of every tensor, so gradients are compared with how they were when somebody last
looked, and nothing is computed. Of each a few numbers are kept, to tell a factor from any other change.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

_SAMPLE = 16  # numbers of each gradient
_SAME_FACTOR = 0.02

Change = Literal["none", "by a factor", "undone", "other", "unknown"]


@dataclass
class _State:
    """A gradient as it was last seen: the tensor, kept alive by nobody here, and its count of changes.

    ``scaled_by`` is the scaler whose scale multiplies it, 0 for none; ``generation`` counts that scaler's
    updates before it was computed. ``applied`` says that a step has used it, ``change`` what something has
    done to it since backward, "undone" standing for a division by the scale.
    """

    gradient: weakref.ref[Tensor]
    version: int
    sample: Tensor | None
    scaled_by: int = 0
    generation: int = 0
    applied: bool = False
    unscaled: bool = False
    change: Change = "none"

    def take_as_it_is(self) -> None:
        """See no change in what has been done so far."""
        gradient = self.gradient()
        if gradient is not None:
            self.version = gradient._version

    def notice(self, gradient: Tensor, scale: float | None) -> None:
        """Find out what was done to the gradient."""
        self.version, self.applied = gradient._version, False
        if self.change == "undone":
            return
        if self.sample is None:
            self.change = "unknown"
            return
        factor = _factor(self.sample, sample_of(gradient))
        if factor is None:
            self.change = "other"
        elif scale is not None and scale > 1.0 and abs(factor * scale - 1.0) < _SAME_FACTOR:
            self.change, self.scaled_by, self.unscaled = "undone", 0, True
        else:
            self.change = "by a factor"


@dataclass(frozen=True)
class Reached:
    """What a backward pass did: it reached some parameters, adding to gradients that a step had applied, or
    to gradients of another scale.
    """

    any: bool
    onto_applied: bool
    mixed: bool


class GradientBook:
    """The gradients of all watched parameters, each with what is known of it.

    A few numbers of each gradient are kept where it lies on the CPU, and elsewhere while ``sampling``.
    """

    def __init__(self) -> None:
        self.sampling = False
        self._states: dict[int, _State] = {}  # by the parameter's id; parameters live as long as optimizers

    def look(self, parameters: Iterable[Tensor], scale: float | None = None) -> None:
        """Notice what has been done to gradients since the last look; ``scale`` is the loss scale now."""
        for parameter in parameters:
            state, gradient = self._states.get(id(parameter)), parameter.grad
            if state is None:
                continue
            if gradient is None or gradient is not state.gradient():
                del self._states[id(parameter)]
            elif gradient._version != state.version:
                state.notice(gradient, scale if state.scaled_by else None)

    def cleared(self, parameters: Iterable[Tensor]) -> None:
        """Forget gradients that were set to zero."""
        for parameter in parameters:
            self._states.pop(id(parameter), None)

    def after_backward(self, parameters: Iterable[Tensor], scaled_by: int, generation: int) -> Reached:
        """Notice which gradients a backward pass has filled, and how; ``look`` came right before it."""
        reached, onto_applied, mixed = False, False, False
        for parameter in parameters:
            gradient, state = parameter.grad, self._states.get(id(parameter))
            if gradient is None or (state is not None and _same(gradient, state)):
                continue
            reached = True
            if state is not None:
                onto_applied |= state.applied
                another_scale = (state.scaled_by, state.generation) != (scaled_by, generation)
                mixed |= another_scale and not state.applied and bool(state.scaled_by or state.unscaled)
            sample = sample_of(gradient) if self.sampling or gradient.device.type == "cpu" else None
            seen = _State(weakref.ref(gradient), gradient._version, sample, scaled_by, generation)
            self._states[id(parameter)] = seen
        return Reached(reached, onto_applied, mixed)

    def unscaled(self, parameters: Iterable[Tensor]) -> None:
        """Note that a scaler has divided these gradients by its scale."""
        for state in self._of(parameters):
            state.take_as_it_is()
            state.scaled_by, state.change, state.unscaled, state.sample = 0, "none", True, None

    def applied(self, parameters: Iterable[Tensor]) -> None:
        """Note that a step has used, or skipped, these gradients."""
        for state in self._of(parameters):
            state.take_as_it_is()
            state.applied = True

    def is_scaled(self, tensor: Tensor) -> bool:
        """Whether a tensor is one of the gradients, or shows it, and is still scaled."""
        for state in self._states.values():
            gradient = state.gradient() if state.scaled_by and not state.applied else None
            if gradient is not None and gradient.data_ptr() == tensor.data_ptr():
                return True
        return False

    def scaled_by(self, parameters: Iterable[Tensor]) -> int:
        """Return the scaler whose scale some of the waiting gradients carry, 0 when none does."""
        return next((s.scaled_by for s in self._of(parameters) if s.scaled_by and not s.applied), 0)

    def outdated(self, parameters: Iterable[Tensor], scaler: int, generation: int) -> bool:
        """Whether waiting gradients were scaled before the scaler's last update."""
        return any(
            s.scaled_by == scaler and not s.applied and s.generation != generation
            for s in self._of(parameters)
        )

    def change(self, parameters: Iterable[Tensor]) -> Change:
        """Say what something has done to waiting gradients since backward: the worst of all."""
        worst: tuple[Change, ...] = ("other", "unknown", "undone", "by a factor")
        found = {state.change for state in self._of(parameters)}
        return next((each for each in worst if each in found), "none")

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
        return (self._states[id(p)] for p in parameters if id(p) in self._states)


def sample_of(gradient: Tensor) -> Tensor | None:
    """Copy a few numbers of a gradient, at equal distances in memory; None of one that is not dense."""
    plain = type(gradient) is Tensor and gradient.layout == torch.strided and gradient.numel() > 0
    if not plain or not (gradient.is_contiguous() or _channels_last(gradient)):
        return None
    step = max(1, gradient.numel() // _SAMPLE)
    count = min(_SAMPLE, (gradient.numel() + step - 1) // step)
    return gradient.detach().as_strided((count,), (step,), gradient.storage_offset()).clone()


def _channels_last(gradient: Tensor) -> bool:
    return gradient.dim() == 4 and gradient.is_contiguous(memory_format=torch.channels_last)


def _factor(before: Tensor, after: Tensor | None) -> float | None:
    """Return by which factor all of some numbers were multiplied, None if they were changed otherwise."""
    if after is None:
        return None
    before, after = before.double(), after.double()
    known = before.isfinite() & (before != 0)
    if not bool(known.any()) or bool((after[before == 0] != 0).any()):
        return None
    factors = after[known] / before[known]
    factor = float(factors.median())
    return factor if bool(((factors - factor).abs() <= _SAME_FACTOR * abs(factor)).all()) else None


def _same(gradient: Tensor, state: _State) -> bool:
    return gradient is state.gradient() and gradient._version == state.version


def parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return what an optimizer steps, in order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
