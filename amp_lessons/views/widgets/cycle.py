"""One training step under a loss scale, one phase at a press."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.scaling import PHASES, AmpCycle, PhaseSnapshot, make_scaler
from amp_lessons.text.marks import MEASURED_MARK
from amp_lessons.text.words import number, power_of_two
from amp_lessons.views.base.controls import button, row
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.view import View
from amp_lessons.views.figures.cycle import Quantity, cycle_picture

WHAT_HAPPENED = {
    "forward": "The forward pass ran under autocast: the output is {output}, the loss {loss}.",
    "scale": "The loss was multiplied by {scale}. Only a number changed; no gradient exists yet.",
    "backward": "Backward ran from the scaled loss: every gradient is {scale} times too large. "
    "It travelled as {output} and arrived in .grad as fp32.{overflow}",
    "unscale": "Every gradient was divided by {scale}. These are the true gradients: clip or log them now.",
    "check": "GradScaler looked for inf and nan among the gradients and found {verdict}.",
    "step": "{stepped}",
    "update": "{updated}",
}


# What the picture lists: a name, its field and its dtype's key in a PhaseSnapshot, the phases that change it.
SHOWN = (
    ("parameter", "weights", "weight", ("step",)),
    ("output", "outputs", "output", ("forward",)),
    ("loss", "loss", "loss", ("forward",)),
    ("loss × scale", "scaled_loss", "scaled_loss", ("scale",)),
    ("gradient of the output, scaled", "output_gradients", "output_gradient", ("backward",)),
    ("gradient in .grad, {size}", "gradients", "gradient", ("backward", "unscale")),
)


class CycleView(View):
    """Press to perform the next phase of a training step for real."""

    def __init__(
        self,
        model: nn.Module,
        loader: Iterable[tuple[Tensor, Tensor]],
        loss_fn: Callable[[Tensor, Tensor], Tensor],
        *,
        dtype: torch.dtype = torch.float16,
    ) -> None:
        """Train ``model`` itself with SGD and a GradScaler of its own, which grows after 3 clean steps."""
        device_type = next(model.parameters()).device.type
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = make_scaler(device_type, growth_interval=3)
        self._cycle = AmpCycle(model, loader, optimizer, loss_fn, scaler=scaler, dtype=dtype)
        advance = button("Next phase", "perform the next phase of this training step")
        inject = button("Inject an overflow", "the coming backward will leave one inf among the gradients")
        advance.on_click(lambda _: self.advance())
        inject.on_click(lambda _: self.inject_overflow())
        super().__init__([row(advance, inject)], alt="The phases of one training step.")
        self.advance()

    def advance(self, phases: int = 1) -> PhaseSnapshot:
        """Perform the next phase, or several, and return what is in memory after it."""
        for _ in range(phases):
            self._before, self.snapshot = getattr(self, "snapshot", None), self._cycle.advance()
        self.show(_picture(self.snapshot), self._describe(), mark=MEASURED_MARK)
        return self.snapshot

    def inject_overflow(self) -> None:
        """Let the coming backward leave one inf among the gradients."""
        self._cycle.inject_overflow()
        self.say("The next backward will leave one inf among the gradients. Press on, and watch the scaler.")

    def _describe(self) -> str:
        now, before = self.snapshot, self._before
        scale_before = before.scale if before else now.scale
        return WHAT_HAPPENED[now.phase].format(
            output=dtype_name(now.dtypes["output"]),
            loss=dtype_name(now.dtypes["loss"]),
            scale=power_of_two(scale_before),
            overflow=""
            if _finite(now.gradients)
            else " One of them was set to inf: the overflow you asked for.",
            verdict="none" if now.gradients_finite else "at least one",
            stepped=_say_step(now),
            updated=_say_update(scale_before, now),
        )


def _finite(values: tuple[float, ...] | None) -> bool:
    return all(map(math.isfinite, values or ()))


def _say_step(now: PhaseSnapshot) -> str:
    if now.skipped:
        return "The step was skipped: optimizer.step() was not called, and the parameters are as they were."
    return (
        "The optimizer stepped. The parameters are fp32: they are the master weights, there is no other copy."
    )


def _say_update(scale_before: float, now: PhaseSnapshot) -> str:
    if now.scale < scale_before:
        return (
            f"The scale was halved to {power_of_two(now.scale)}, and the count of clean steps starts again."
        )
    if now.scale > scale_before:
        return f"Enough clean steps in a row: the scale was doubled to {power_of_two(now.scale)}."
    return f"The scale stays at {power_of_two(now.scale)}. Clean steps in a row: {now.growth_tracker}."


def _picture(now: PhaseSnapshot) -> Picture:
    rows = [row for row in (_row(now, *shown) for shown in SHOWN) if row]
    scale = Quantity("loss scale", "", power_of_two(now.scale), fresh=now.phase == "update")
    return cycle_picture(PHASES, PHASES.index(now.phase), bool(now.skipped), [*rows, scale])


def _row(
    now: PhaseSnapshot, name: str, field: str, dtype: str, changed_by: tuple[str, ...]
) -> Quantity | None:
    values = getattr(now, field)
    if values is None:
        return None
    values = values if isinstance(values, tuple) else (values,)
    fresh = now.phase in changed_by and not (field == "weights" and now.skipped)
    text = "".join(number(value).ljust(12) for value in values)
    bad = not _finite(values)
    name = name.format(size="scaled" if now.phase == "backward" else "true size")
    return Quantity(name, dtype_name(now.dtypes[dtype]), text, fresh, bad)
