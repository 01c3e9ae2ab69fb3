"""One mixed precision training step, taken apart: each phase is performed for real, one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons._base.arguments import require, require_whole
from amp_lessons.autocast.running import for_autograd, gradients_on
from amp_lessons.scaling.backward import stored_values
from amp_lessons.scaling.checks import (
    check_autocast_dtype,
    check_batch,
    check_device_type,
    check_loss,
    check_scale,
    trainable_parameters,
)

PHASES = ("forward", "scale", "backward", "unscale", "check", "step", "update")
WATCHED = 4


def make_scaler(
    device_type: str,
    *,
    init_scale: float = 2.0**16,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
) -> torch.amp.GradScaler:
    """Return a working ``torch.amp.GradScaler``; its defaults are PyTorch's.

    Raises RuntimeError for "cuda" without a GPU, where PyTorch would return a scaler that does nothing;
    ValueError or TypeError for an ``init_scale`` that is not positive and finite in fp32, a ``growth_factor``
    that is not above 1, a ``backoff_factor`` that is not between 0 and 1, a ``growth_interval`` that is not a
    whole number of at least 1.
    """
    check_scale(init_scale, "init_scale")
    if check_scale(growth_factor, "growth_factor", 2.0) <= 1:
        raise ValueError(
            f"growth_factor must be above 1, such as 2.0, or the scale would not grow; got {growth_factor}"
        )
    if check_scale(backoff_factor, "backoff_factor", 0.5) >= 1:
        raise ValueError(f"backoff_factor must lie between 0 and 1, such as 0.5; got {backoff_factor}")
    require_whole(growth_interval, "growth_interval")
    if device_type == "cuda" and not torch.cuda.is_available():
        raise RuntimeError('GradScaler("cuda") does nothing without a GPU, and torch sees none; use "cpu"')
    return torch.amp.GradScaler(
        device_type,
        init_scale=float(init_scale),
        growth_factor=float(growth_factor),
        backoff_factor=float(backoff_factor),
        growth_interval=growth_interval,
    )


@dataclass(frozen=True)
class PhaseSnapshot:
    """The values right after one phase of a mixed precision step.

    ``gradients`` and ``weights`` are the first few values of one parameter, ``watched``: the gradients scaled
    after ``backward``, true-sized after ``unscale``, and those of rows that were looked up where they are
    sparse. ``outputs`` and ``output_gradients`` are the first few values of the model's output, if that is a
    tensor, and of the gradient that reached it, in the dtype in which gradients travel. What does not exist
    yet in this cycle is None, or absent from ``dtypes``.
    """

    cycle: int
    phase: str
    scale: float
    growth_tracker: int
    dtypes: dict[str, torch.dtype]
    loss: float | None
    scaled_loss: float | None
    watched: str
    outputs: tuple[float, ...] | None
    output_gradients: tuple[float, ...] | None
    gradients: tuple[float, ...] | None
    weights: tuple[float, ...]
    gradients_finite: bool | None
    skipped: bool | None


class AmpCycle:
    """Walk through the mixed precision training step, phase by phase, over and over.

    Each ``advance()`` performs the phase named by ``phase`` on the model, with a real
    ``torch.amp.GradScaler``:

    - ``forward``: gradients cleared, next batch, model and loss under autocast
    - ``scale``: loss × loss scale
    - ``backward``: gradients of the scaled loss
    - ``unscale``: gradients divided by the loss scale, in place
    - ``check``: is every gradient finite?
    - ``step``: the optimizer steps, unless the scaler skips it because a gradient is not finite
    - ``update``: the scaler backs off, counts a clean step, or grows

    The model trains, and keeps what it learns. ``loader`` is any iterable of (inputs, targets) that can be
    iterated again and again; batches are moved to the model's device. ``dtype`` is fp16, bf16, or fp32 for no
    autocast. Each phase runs with gradients on, also under ``torch.no_grad`` or ``torch.inference_mode``.

    Raises as ``check_device_type`` and ``make_scaler`` do; TypeError for an optimizer or scaler that is none;
    ValueError for a fused optimizer, which would skip inside its kernel, unseen, and for a disabled scaler.
    """

    def __init__(
        self,
        model: nn.Module,
        loader: Iterable[tuple[Any, Any]],
        optimizer: torch.optim.Optimizer,
        loss_fn: Callable[[Any, Any], Tensor],
        *,
        scaler: torch.amp.GradScaler | None = None,
        device_type: str | torch.device | None = None,
        dtype: torch.dtype = torch.float16,
    ) -> None:
        self._device_type = check_device_type(model, device_type)
        self._dtype = check_autocast_dtype(dtype)
        self._model, self._optimizer, self._loss_fn = model, _check_optimizer(optimizer), loss_fn
        self._parameters = trainable_parameters(model)
        self._watched_name, self._watched = list(self._parameters.items())[-1]
        self._batches = _endless(loader)
        self.scaler = _check_scaler(make_scaler(self._device_type) if scaler is None else scaler)
        self._cycle = 0
        self._phase = 0
        self._overflow_is_due = False
        self._forget_cycle()

    @property
    def phase(self) -> str:
        """The phase that the next ``advance()`` will perform."""
        return PHASES[self._phase]

    @property
    def overflow_is_due(self) -> bool:
        """Whether an injected overflow waits for the next backward phase."""
        return self._overflow_is_due

    def inject_overflow(self) -> None:
        """Let the coming backward phase overflow: afterwards, one gradient value is replaced by inf."""
        self._overflow_is_due = True

    @gradients_on()
    def advance(self) -> PhaseSnapshot:
        """Perform the next phase, and return what there is afterwards."""
        phase = self.phase
        getattr(self, f"_{phase}")()
        snapshot = self._snapshot(phase)
        self._phase = (self._phase + 1) % len(PHASES)
        if self._phase == 0:
            self._cycle += 1
            self._forget_cycle()
        return snapshot

    def advance_cycle(self) -> tuple[PhaseSnapshot, ...]:
        """Perform every phase up to the end of the cycle, and return a snapshot of each."""
        snapshots = [self.advance()]
        while self._phase:
            snapshots.append(self.advance())
        return tuple(snapshots)

    def _forget_cycle(self) -> None:
        self._dtypes = {"weight": self._watched.dtype}
        self._output: Tensor | None = None
        self._loss: Tensor | None = None
        self._scaled_loss: Tensor | None = None
        self._finite: bool | None = None
        self._skipped: bool | None = None

    def _forward(self) -> None:
        inputs, targets = (
            for_autograd(part.to(self._watched.device)) if isinstance(part, Tensor) else part
            for part in check_batch(next(self._batches))
        )
        self._optimizer.zero_grad()
        autocast_dtype = None if self._dtype == torch.float32 else self._dtype
        with torch.autocast(self._device_type, autocast_dtype, enabled=autocast_dtype is not None):
            output = self._model(inputs)
            self._loss = check_loss(self._loss_fn(output, targets))
        if isinstance(output, Tensor) and output.requires_grad:
            self._output = output
            output.retain_grad()
        self._note_dtypes(input=inputs, output=output, loss=self._loss)

    def _scale(self) -> None:
        assert self._loss is not None
        self._scaled_loss = self.scaler.scale(self._loss)
        self._note_dtypes(scaled_loss=self._scaled_loss)

    def _backward(self) -> None:
        assert self._scaled_loss is not None
        self._scaled_loss.backward()
        if self._overflow_is_due:
            _overflow(next(p for p in (self._watched, *self._parameters.values()) if p.grad is not None))
            self._overflow_is_due = False
        self._note_dtypes(gradient=self._watched.grad, output_gradient=_gradient_of(self._output))

    def _unscale(self) -> None:
        self.scaler.unscale_(self._optimizer)

    def _check(self) -> None:
        found = [p.grad for p in self._parameters.values() if p.grad is not None]
        self._finite = all(bool(torch.isfinite(stored_values(gradient)).all()) for gradient in found)

    def _step(self) -> None:
        # Until the optimizer reports otherwise: scaler.step() itself returns None either way.
        self._skipped = True
        witness = self._optimizer.register_step_post_hook(self._note_step)
        try:
            self.scaler.step(self._optimizer)
        finally:
            witness.remove()

    def _note_step(self, *_: Any) -> None:
        self._skipped = False

    def _update(self) -> None:
        self.scaler.update()

    def _note_dtypes(self, **values: Any) -> None:
        self._dtypes |= {name: value.dtype for name, value in values.items() if isinstance(value, Tensor)}

    def _snapshot(self, phase: str) -> PhaseSnapshot:
        return PhaseSnapshot(
            cycle=self._cycle,
            phase=phase,
            scale=self.scaler.get_scale(),
            growth_tracker=self.scaler.state_dict().get("_growth_tracker", 0),
            dtypes=dict(self._dtypes),
            loss=None if self._loss is None else self._loss.item(),
            scaled_loss=None if self._scaled_loss is None else self._scaled_loss.item(),
            watched=self._watched_name,
            outputs=_first_values(self._output),
            output_gradients=_first_values(_gradient_of(self._output)),
            gradients=_first_values(self._watched.grad),
            weights=_first_values(self._watched) or (),
            gradients_finite=self._finite,
            skipped=self._skipped,
        )


def _check_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    require(optimizer, torch.optim.Optimizer, "the optimizer", "a torch.optim.Optimizer")
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        raise ValueError("a fused optimizer skips inside its kernel, where nobody can watch; use fused=False")
    return optimizer


def _check_scaler(scaler: torch.amp.GradScaler) -> torch.amp.GradScaler:
    require(scaler, torch.amp.GradScaler, "the scaler", "a torch.amp.GradScaler")
    if not scaler.is_enabled():
        raise ValueError(
            'the scaler is disabled, so it would do nothing; on the CPU use torch.amp.GradScaler("cpu")'
        )
    return scaler


def _endless(loader: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            raise ValueError(
                "the loader has no batch (left); pass a list of batches or a DataLoader, not a generator"
            )


def _overflow(parameter: Tensor) -> None:
    """Replace the first value of the gradient by inf."""
    assert parameter.grad is not None
    if parameter.grad.is_sparse:
        parameter.grad = parameter.grad.coalesce()  # or another part of the same row might be added to it
    values = stored_values(parameter.grad)
    values[(0,) * values.dim()] = math.inf


def _gradient_of(output: Tensor | None) -> Tensor | None:
    return None if output is None else output.grad


def _first_values(tensor: Tensor | None) -> tuple[float, ...] | None:
    return None if tensor is None else tuple(stored_values(tensor.detach()).reshape(-1)[:WATCHED].tolist())
