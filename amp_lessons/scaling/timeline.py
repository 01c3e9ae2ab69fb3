"""The life of a loss scale: what a real ``torch.amp.GradScaler`` does while a model really trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons.scaling.checks import check_device_type
from amp_lessons.scaling.cycle import AmpCycle, make_scaler


@dataclass(frozen=True)
class ScalerStep:
    """One training step, as the scaler saw it.

    ``scale`` is the scale that the step was taken with, ``next_scale`` the one it left; ``growth_tracker``
    counts the clean steps in a row after this one, towards the next growth.
    """

    step: int
    loss: float
    scale: float
    next_scale: float
    growth_tracker: int
    gradients_finite: bool
    skipped: bool


class ScalerTimeline:
    """Train a model in mixed precision, and keep what its loss scaler did, step by step.

    Each ``advance()`` is one real training step: the model, the optimizer and the scaler go on from where
    they are. ``ScalerTimeline.record`` runs many. The knobs are those of ``torch.amp.GradScaler``, with its
    defaults. Raises as ``AmpCycle`` and ``make_scaler`` do.
    """

    def __init__(
        self,
        model: nn.Module,
        loader: Iterable[tuple[Any, Any]],
        optimizer: torch.optim.Optimizer,
        loss_fn: Callable[[Any, Any], Tensor],
        *,
        device_type: str | torch.device | None = None,
        dtype: torch.dtype = torch.float16,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        scaler = make_scaler(
            check_device_type(model, device_type),
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
        )
        self._cycle = AmpCycle(model, loader, optimizer, loss_fn, scaler=scaler, dtype=dtype)
        self._steps: list[ScalerStep] = []

    @classmethod
    def record(
        cls,
        model: nn.Module,
        loader: Iterable[tuple[Any, Any]],
        optimizer: torch.optim.Optimizer,
        loss_fn: Callable[[Any, Any], Tensor],
        *,
        steps: int,
        overflow_at: Iterable[int] = (),
        **knobs: Any,
    ) -> ScalerTimeline:
        """Train for ``steps`` steps, and return the timeline.

        In the steps numbered in ``overflow_at`` (from 0), one gradient value is replaced by inf after the
        backward pass. A loader with fewer batches starts again. ``knobs`` are the keyword arguments of
        ``ScalerTimeline``. Raises ValueError unless ``steps`` is a whole number of at least 1 and
        ``overflow_at`` lies within them, TypeError for a single number.
        """
        if not isinstance(overflow_at, Iterable):
            raise TypeError(f"overflow_at is a collection of steps, such as [3], not {overflow_at!r:.60}")
        overflow_at = frozenset(overflow_at)
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
            raise ValueError(f"steps is a whole number of at least 1, not {steps!r:.60}")
        if not overflow_at <= frozenset(range(steps)):
            raise ValueError(
                f"overflow_at names steps from 0 to {steps - 1}, not {sorted(overflow_at, key=str)}"
            )
        timeline = cls(model, loader, optimizer, loss_fn, **knobs)
        for step in range(steps):
            timeline.advance(overflow=step in overflow_at)
        return timeline

    @property
    def steps(self) -> tuple[ScalerStep, ...]:
        """Every step so far."""
        return tuple(self._steps)

    @property
    def scales(self) -> tuple[float, ...]:
        """The scale that each step was taken with."""
        return tuple(step.scale for step in self._steps)

    @property
    def growth_interval(self) -> int:
        """The number of clean steps in a row after which the scaler grows."""
        return self._cycle.scaler.get_growth_interval()

    @property
    def grown(self) -> tuple[int, ...]:
        """The numbers of the steps after which the scale grew."""
        return tuple(step.step for step in self._steps if step.next_scale > step.scale)

    @property
    def skipped(self) -> tuple[int, ...]:
        """The numbers of the steps that the scaler skipped."""
        return tuple(step.step for step in self._steps if step.skipped)

    def advance(self, overflow: bool = False) -> ScalerStep:
        """Train one step; with ``overflow``, replace one gradient value by inf after the backward pass."""
        if overflow:
            self._cycle.inject_overflow()
        first, *_, last = self._cycle.advance_cycle()
        assert last.loss is not None
        step = ScalerStep(
            step=len(self._steps),
            loss=last.loss,
            scale=first.scale,
            next_scale=last.scale,
            growth_tracker=last.growth_tracker,
            gradients_finite=bool(last.gradients_finite),
            skipped=bool(last.skipped),
        )
        self._steps.append(step)
        return step
