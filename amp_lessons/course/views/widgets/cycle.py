"""Training steps under a loss scale, phase by phase."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from torch import Tensor, nn

from amp_lessons._base.drawing.axes import sheet
from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import ACCENT, GRID, INK, PAPER, QUIET, ZONES, house_style
from amp_lessons._base.text.words import MEASURED_MARK, number, power_of_two
from amp_lessons.course.views.base.controls import ControlValue, Slider, dropdown
from amp_lessons.course.views.base.number_line import draw_chip
from amp_lessons.course.views.base.view import View
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.scaling import PHASES, AmpCycle, PhaseSnapshot, make_scaler

STEPS = 2  # enough to see a step skipped, a scale halved, and one doubled
WHAT_HAPPENED = {
    "forward": "The forward pass ran under autocast: the output is {output}, the loss {loss}.",
    "scale": "The loss was multiplied by {scale}. Only a number changed; no gradient exists yet.",
    "backward": "Backward ran from the scaled loss: every gradient is {scale} times too large. "
    "It travelled as {output} and arrived in .grad as fp32.{overflow}",
    "unscale": "Every gradient was divided by {scale}. {unscaled}",
    "check": "GradScaler looked for inf and nan among the gradients and found {verdict}.",
    "step": "{stepped}",
    "update": "{updated}",
}
_ASKED_FOR = " One of them was set to inf: the overflow you asked for."
_TRUE = "These are the true gradients: clip or log them now."
_STILL_INF = "An inf stays inf."


# What the picture lists: a name, its field and its dtype's key in a PhaseSnapshot, the phases that change it.
SHOWN = (
    ("parameter", "weights", "weight", ("step",)),
    ("output", "outputs", "output", ("forward",)),
    ("loss", "loss", "loss", ("forward",)),
    ("loss × scale", "scaled_loss", "scaled_loss", ("scale",)),
    ("output's gradient, scaled", "output_gradients", "output_gradient", ("backward",)),
    ("gradient in .grad, {size}", "gradients", "gradient", ("backward", "unscale")),
)


class CycleView(View):
    """Two training steps, phase by phase: a slider goes through them, a list says which one overflows."""

    overflow = ControlValue[int]("_overflow", "The step that overflows, from 1; 0 is none.")

    def __init__(
        self,
        model: nn.Module,
        loader: Iterable[tuple[Tensor, Tensor]],
        loss_fn: Callable[[Tensor, Tensor], Tensor],
        *,
        dtype: torch.dtype = torch.float16,
    ) -> None:
        """Train copies of ``model`` with SGD and a GradScaler, which grows after as many clean steps."""
        batches = list(islice(loader, STEPS))
        self._runs = {step: _run(model, batches, loss_fn, dtype, overflow=step) for step in range(STEPS + 1)}
        self._phase = Slider("phase", 0, STEPS * len(PHASES) - 1, 0, words=_called)
        choices = [("no step", 0), *((f"step {step}", step) for step in range(1, STEPS + 1))]
        self._overflow = dropdown("overflow in", choices, 0)
        super().__init__([self._phase, self._overflow], alt="The phases of a training step.")
        self._refresh()
        self.follow(self._refresh, self._phase, self._overflow)

    @property
    def snapshot(self) -> PhaseSnapshot:
        """Return what is in memory after the phase that is shown."""
        return self._runs[self.overflow][self._phase.value]

    def advance(self, phases: int = 1) -> PhaseSnapshot:
        """Go on by so many phases, up to the last, and return what is in memory after it."""
        self._phase.value += phases
        return self.snapshot

    def inject_overflow(self) -> None:
        """Choose the run in which the next backward pass overflows, or the last where none is to come."""
        done, phase = divmod(self._phase.value, len(PHASES))
        self.overflow = min(done + 1 + (phase >= PHASES.index("backward")), STEPS)

    def _refresh(self) -> None:
        now = self.snapshot
        rows = [row for row in (_row(now, *shown) for shown in SHOWN) if row]
        scale = Quantity("loss scale", "", power_of_two(now.scale), fresh=now.phase == "update")
        picture = cycle_picture(PHASES, PHASES.index(now.phase), bool(now.skipped), [*rows, scale])
        self.show(picture, self._describe(), mark=MEASURED_MARK)

    def _describe(self) -> str:
        now, run = self.snapshot, self._runs[self.overflow]
        scale_before = run[max(self._phase.value - 1, 0)].scale
        said = WHAT_HAPPENED[now.phase].format(
            output=dtype_name(now.dtypes["output"]),
            loss=dtype_name(now.dtypes["loss"]),
            scale=power_of_two(scale_before),
            overflow="" if _finite(now.gradients) else _ASKED_FOR,
            unscaled=_TRUE if _finite(now.gradients) else _STILL_INF,
            verdict="none" if now.gradients_finite else "at least one",
            stepped=_say_step(now),
            updated=_say_update(scale_before, now),
        )
        overflows_at = (self.overflow - 1) * len(PHASES) + PHASES.index("backward")
        to_come = f" Step {self.overflow}'s backward pass will leave one inf."
        return said + (to_come if self._phase.value < overflows_at else "")


def _run(
    model: nn.Module,
    batches: Sequence[tuple[Tensor, Tensor]],
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    dtype: torch.dtype,
    overflow: int,
) -> list[PhaseSnapshot]:
    """Train a copy of ``model`` for ``STEPS`` steps, of which number ``overflow`` overflows; 0 is none."""
    model = copy.deepcopy(model)
    scaler = make_scaler(next(model.parameters()).device.type, growth_interval=STEPS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    cycle = AmpCycle(model, batches, optimizer, loss_fn, scaler=scaler, dtype=dtype)
    snapshots: list[PhaseSnapshot] = []
    for step in range(1, STEPS + 1):
        if step == overflow:
            cycle.inject_overflow()
        snapshots += cycle.advance_cycle()
    return snapshots


def _called(position: int) -> str:
    step, phase = divmod(position, len(PHASES))
    return f"step {step + 1}: {PHASES[phase]}"


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
        return f"{STEPS} clean steps in a row are enough here: the scale is now {power_of_two(now.scale)}."
    return f"The scale stays at {power_of_two(now.scale)}. Clean steps in a row: {now.growth_tracker}."


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


ROWS = 7  # room for everything that a step ends up with, so that no row moves while it goes on


@dataclass(frozen=True)
class Quantity:
    """One line of what is in memory: its name, the short name of its dtype, its values in words.

    ``fresh`` marks what the phase just performed has changed, ``bad`` what is not finite.
    """

    name: str
    dtype: str
    values: str
    fresh: bool = False
    bad: bool = False


def cycle_picture(
    phases: Sequence[str], current: int, skipped: bool, quantities: Sequence[Quantity]
) -> Picture:
    """Draw the phases in a row with ``current`` lit (-1: none yet), and what is in memory after it below."""
    with house_style():
        figure = Figure(figsize=(9, 3.6))
        _draw_phases(figure.add_axes((0.01, 0.78, 0.98, 0.22)), phases, current, skipped)
        _draw_quantities(sheet(figure, 1, ROWS, (0.01, 0.02, 0.98, 0.74)), quantities)
    return Picture(figure)


def _draw_phases(axes: Axes, phases: Sequence[str], current: int, skipped: bool) -> None:
    axes.set_axis_off()
    axes.set_xlim(0, len(phases))
    axes.set_ylim(0, 1)
    for i, phase in enumerate(phases):
        _draw_phase(axes, i, phase, current, crossed_out=skipped and phase == "step" and i <= current)
        if i + 1 < len(phases):
            ends = (i + 0.89, 0.52), (i + 1.06, 0.52)
            axes.add_patch(FancyArrowPatch(*ends, arrowstyle="-|>", mutation_scale=10, color=QUIET))


def _draw_phase(axes: Axes, i: int, phase: str, current: int, crossed_out: bool) -> None:
    """Draw the ``i``-th phase as a box with its name, or what became of it."""
    lit, done = i == current, i < current
    fill = ZONES["overflowed"].colour if crossed_out else ACCENT if lit else GRID if done else PAPER
    look: dict[str, Any] = {"fc": fill, "ec": ACCENT if lit else QUIET, "lw": 1.2, "mutation_aspect": 0.4}
    axes.add_patch(FancyBboxPatch((i + 0.08, 0.32), 0.78, 0.4, boxstyle="round,pad=0.02", **look))
    colour, weight = PAPER if lit or crossed_out else INK, "bold" if lit else "normal"
    word = "skipped" if crossed_out else phase
    axes.text(i + 0.47, 0.52, word, ha="center", va="center", color=colour, fontweight=weight)


def _draw_quantities(axes: Axes, quantities: Sequence[Quantity]) -> None:
    for place, quantity in enumerate(quantities):
        y = place + 0.5
        if quantity.fresh:
            axes.axhspan(place + 0.04, place + 0.96, color=ACCENT, alpha=0.09, lw=0)
        axes.text(0.01, y, quantity.name, va="center", fontweight="bold" if quantity.fresh else "normal")
        if quantity.dtype:
            draw_chip(axes, 0.3, y, quantity.dtype)
        colour = ZONES["overflowed"].colour if quantity.bad else INK
        weight = "bold" if quantity.bad else "normal"
        # Numbers stand below each other; in a power, digits as wide as all others would lie apart.
        family = "DejaVu Sans Mono" if quantity.dtype else "DejaVu Sans"
        style: dict[str, Any] = {"family": family, "color": colour, "fontweight": weight}
        axes.text(0.35, y, quantity.values, va="center", fontsize=9, **style)
