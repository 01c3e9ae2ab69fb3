"""The life of a loss scale: train a real network, turn GradScaler's knobs, inject an overflow."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from torch import Tensor, nn

from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import ACCENT, GRID, INK, POWERS, QUIET, ZONES, house_style
from amp_lessons._base.text.words import MEASURED_MARK, counted, power, power_of_two
from amp_lessons.course.views.base.controls import Slider, button, dropdown, row
from amp_lessons.course.views.base.view import View
from amp_lessons.scaling import ScalerTimeline

STEPS_A_PRESS = 20
_MOST_NAMED = 8


class ScalerView(View):
    """A real GradScaler over real training steps; changing a knob starts the run again."""

    on_pages = ("_interval", "_growth")  # lesson 03 asks for every second step to be skipped

    def __init__(
        self,
        model: nn.Module,
        loader: Iterable[tuple[Tensor, Tensor]],
        loss_fn: Callable[[Tensor, Tensor], Tensor],
        *,
        init_scale: float = 2.0**24,
        growth_interval: int = 10,
        steps: int = 40,
    ) -> None:
        """Train a copy of ``model`` with SGD for ``steps`` steps, and wait for what the learner presses."""
        self._start, self._loader, self._loss_fn, self._first_steps = model, loader, loss_fn, steps
        exponent = torch.tensor(init_scale).log2().round().int().item()
        self._init_exponent = Slider("init_scale", 0, 40, int(exponent), words=lambda e: power(2, e))
        self._interval = Slider(
            "growth_interval", 1, 40, growth_interval, words=lambda n: counted(n, "clean step")
        )
        self._growth = dropdown("growth_factor", [1.5, 2.0, 4.0], 2.0)
        self._backoff = dropdown("backoff_factor", [0.25, 0.5, 0.75], 0.5)
        more = f"Train {STEPS_A_PRESS} more steps"
        overflow = "one more step, with one value of its gradients set to inf"
        knobs = row(self._growth, self._backoff)
        buttons = row(
            button(more, "continue the run with real training steps", lambda: self.train(STEPS_A_PRESS)),
            button("Inject an overflow", overflow, self.inject_overflow),
            button("Start again", "back to the first step", self.restart),
        )
        super().__init__(
            [self._init_exponent, self._interval, knobs, buttons], alt="Loss scale over training steps."
        )
        self.restart()
        self.follow(self.restart, self._init_exponent, self._interval, self._growth, self._backoff)

    def restart(self) -> None:
        """Start the run again from the first step, with the knobs as they stand."""
        model = copy.deepcopy(self._start)
        self.timeline = ScalerTimeline(
            model,
            self._loader,
            torch.optim.SGD(model.parameters(), lr=0.05),
            self._loss_fn,
            init_scale=2.0**self._init_exponent.value,
            growth_interval=self._interval.value,
            growth_factor=self._growth.value,
            backoff_factor=self._backoff.value,
        )
        self.train(self._first_steps)

    def train(self, steps: int) -> None:
        """Continue the run for ``steps`` training steps."""
        self.begin_work(f"Training {steps} steps")
        for _ in range(steps):
            self.timeline.advance()
        self._refresh()

    def inject_overflow(self) -> None:
        """Train one more step, in whose gradients one value is set to inf."""
        self.timeline.advance(overflow=True)
        self._refresh()

    def _refresh(self) -> None:
        self.in_short = _in_short(self.timeline)
        self.show(timeline_picture(self.timeline), describe(self.timeline), mark=MEASURED_MARK)


def describe(timeline: ScalerTimeline) -> str:
    """Describe a timeline in two sentences."""
    first, last = timeline.steps[0], timeline.steps[-1]
    skipped, grown = timeline.skipped, timeline.grown
    steps = ", ".join(str(step + 1) for step in skipped[:_MOST_NAMED])  # a learner counts from 1
    which = f" (steps {steps}{', …' if len(skipped) > _MOST_NAMED else ''})" if skipped else ""
    return (
        f"{len(timeline.steps)} steps from a scale of {power_of_two(first.scale)}: "
        f"{len(skipped)} skipped{which}, {len(grown)} followed by growth. "
        f"The scale now stands at {power_of_two(last.next_scale)}, "
        f"{last.growth_tracker} clean steps of {timeline.growth_interval} towards the next growth."
    )


def _in_short(timeline: ScalerTimeline) -> str:
    """Say how many of the last steps were skipped: before them the scale may have had to fall."""
    last = [step.skipped for step in timeline.steps[-20:]]
    said = f"{sum(last)} of the last {len(last)} steps were skipped"
    every_second = len(last) == 20 and 6 < sum(last) < 14
    return f"✓ {said}: about every second." if every_second else f"{said}."


def timeline_picture(timeline: ScalerTimeline) -> Picture:
    """Draw the loss scale of every step, the clean steps counted towards growth, and the skipped steps."""
    return Picture(_figure(timeline, 9, left=0.09), narrow=lambda: Picture(_figure(timeline, 3.5, left=0.2)))


def _figure(timeline: ScalerTimeline, width: float, left: float) -> Figure:
    with house_style():
        figure = Figure(figsize=(width, 3.9))
        sides = {"left": left, "right": 0.985, "top": 0.9, "bottom": 0.13}
        axes = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [3, 1], **sides})
        _draw_scale(axes[0], timeline)
        _draw_count(axes[1], timeline)
    return figure


def _draw_scale(axes: Axes, timeline: ScalerTimeline) -> None:
    numbers = [step.step + 1 for step in timeline.steps]
    exponents = [math.log2(step.scale) for step in timeline.steps]
    now = math.log2(timeline.steps[-1].next_scale)  # where the scale stands, for the step to come
    axes.step([*numbers, numbers[-1] + 1], [*exponents, now], where="mid", color=ACCENT, lw=2)
    overflow = ZONES["overflowed"]
    for number, exponent, step in zip(numbers, exponents, timeline.steps, strict=True):
        if step.skipped:
            axes.axvspan(
                number - 0.5, number + 0.5, fc=overflow.tint, ec=overflow.colour, hatch=overflow.hatch, lw=0
            )
            axes.plot(number, exponent, "X", color=overflow.colour, ms=9)
    axes.set_ylim(min(now, *exponents) - 1.5, max(now, *exponents) + 1.5)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda exponent, _: f"$2^{{{round(exponent)}}}$"))
    axes.tick_params(axis="y", labelsize=POWERS)
    axes.grid(axis="y", color=GRID)
    axes.set_ylabel("loss scale")
    axes.plot([], [], "X", color=overflow.colour, ms=9, label="overflow: step skipped")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0)  # above: never over the hatching


def _draw_count(axes: Axes, timeline: ScalerTimeline) -> None:
    numbers = [step.step + 1 for step in timeline.steps]
    # this step included: the scaler forgets them as it grows
    counts = [
        timeline.growth_interval if step.next_scale > step.scale else step.growth_tracker
        for step in timeline.steps
    ]
    axes.bar(
        numbers, counts, width=0.8, color=[ACCENT if n == timeline.growth_interval else QUIET for n in counts]
    )
    axes.axhline(timeline.growth_interval, color=INK, lw=0.9, ls=(0, (4, 3)))
    axes.set_ylim(0, 1.35 * max(1, min(timeline.growth_interval, 1.5 * len(numbers))))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=3))
    axes.set_ylabel("clean steps\nin a row")
    axes.set_xlabel("training step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
