"""What is known of each parameter's gradient: who scaled it, and what has been done to it since.

Nothing is copied and nothing is computed: PyTorch counts the changes of every tensor, and gradients are
compared with how they were when somebody last looked.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class _State:
    """A gradient as it was last seen: the tensor, kept alive by nobody here, and its count of changes.

    ``scaled_by`` is the scaler whose scale multiplies it, 0 for none; ``generation`` counts that scaler's
    updates before it was computed. ``applied`` says that a step has used it, ``changed`` that something has
    changed it since backward.
    """

    gradient: weakref.ref[Tensor]
    version: int
    scaled_by: int = 0
    generation: int = 0
    applied: bool = False
    changed: bool = False
    unscaled: bool = False

    def take_as_it_is(self) -> None:
        """See no change in what has been done so far."""
        gradient = self.gradient()
        if gradient is not None:
            self.version = gradient._version


@dataclass(frozen=True)
class Reached:
    """What a backward pass did to some parameters: it reached them, adding to gradients already applied, or
    to gradients of another scale.
    """

    any: bool
    onto_applied: bool
    mixed: bool


class GradientBook:
    """The gradients of all watched parameters, each with what is known of it."""

    def __init__(self) -> None:
        self._states: dict[int, _State] = {}  # by the parameter's id; parameters live as long as optimizers

    def look(self, parameters: Iterable[Tensor]) -> None:
        """Notice what has been done to gradients since the last look: gone, or changed."""
        for parameter in parameters:
            state, gradient = self._states.get(id(parameter)), parameter.grad
            if state is None:
                continue
            if gradient is None or gradient is not state.gradient():
                del self._states[id(parameter)]
            elif gradient._version != state.version:
                state.version, state.changed, state.applied = gradient._version, True, False

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
            self._states[id(parameter)] = _State(
                weakref.ref(gradient), gradient._version, scaled_by, generation
            )
        return Reached(reached, onto_applied, mixed)

    def unscaled(self, parameters: Iterable[Tensor]) -> None:
        """Note that a scaler has divided these gradients by its scale."""
        for state in self._of(parameters):
            state.take_as_it_is()
            state.scaled_by, state.changed, state.unscaled = 0, False, True

    def applied(self, parameters: Iterable[Tensor]) -> None:
        """Note that a step has used, or skipped, these gradients."""
        for state in self._of(parameters):
            state.take_as_it_is()
            state.applied = True

    def scaled_by(self, parameters: Iterable[Tensor]) -> int:
        """Return the scaler whose scale some of the waiting gradients carry, 0 when none does."""
        return next((s.scaled_by for s in self._of(parameters) if s.scaled_by and not s.applied), 0)

    def outdated(self, parameters: Iterable[Tensor], scaler: int, generation: int) -> bool:
        """Whether waiting gradients were scaled before the scaler's last update."""
        return any(
            s.scaled_by == scaler and not s.applied and s.generation != generation
            for s in self._of(parameters)
        )

    def changed(self, parameters: Iterable[Tensor]) -> bool:
        """Whether something has changed waiting gradients since backward."""
        return any(s.changed for s in self._of(parameters))

    def any_unscaled(self, parameters: Iterable[Tensor]) -> bool:
        """Whether ``unscale_`` has divided some of these gradients."""
        return any(s.unscaled for s in self._of(parameters))

    def fresh(self, parameters: Iterable[Tensor]) -> bool:
        """Whether gradients are waiting that no step has used."""
        return any(not s.applied for s in self._of(parameters))

    def waiting(self, parameters: Iterable[Tensor]) -> bool:
        """Whether anything at all is known of these gradients."""
        return any(True for _ in self._of(parameters))

    def _of(self, parameters: Iterable[Tensor]) -> Iterator[_State]:
        return (self._states[id(p)] for p in parameters if id(p) in self._states)


def _same(gradient: Tensor, state: _State) -> bool:
    return gradient is state.gradient() and gradient._version == state.version


def parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return what an optimizer steps, in order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
