"""fp32 against mixed precision, both training while you watch."""

from __future__ import annotations

import asyncio
import math
import time

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from amp_lessons import devices
from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import GRID, STROKES, ZONES, dtype_colour, house_style
from amp_lessons._base.text.words import MEASURED_MARK, relative
from amp_lessons.course.material.race import TASKS, Race
from amp_lessons.course.views.base.controls import button, dropdown, row
from amp_lessons.course.views.base.view import View
from amp_lessons.precisions import HALVES as DTYPES

SLICE_S = 0.1  # train that long, then draw and let the kernel do other things
FRAMES = 60  # and draw at least that often: a short race is to be seen, too


class RaceView(View):
    """Two runs from the same initial weights on the same batches, a slice at a time.

    Between the slices the kernel is free, so that other cells run and every button works. They run on the
    kernel's event loop; without one there is ``run``, which comes back when the race has ended.
    """

    on_pages = ()
    why_still = "it trains two networks while one looks on"

    def __init__(
        self,
        task: str = "digits",
        dtype: torch.dtype | str = torch.float16,
        *,
        device: torch.device | str | None = None,
    ) -> None:
        """Line up for ``task`` (one of ``race.TASKS``), by default on the device that lessons run on.

        Raises ValueError for an unknown task or a dtype other than fp16 and bf16.
        """
        self._device = torch.device(device or devices.default_device())
        self._running: asyncio.Task[None] | None = None
        self._task_choice = dropdown("task", list(TASKS), _task(task))
        self._dtype_choice = dropdown("dtype", list(DTYPES.items()), _dtype(dtype))
        choices = self._task_choice, self._dtype_choice
        buttons = (
            button("Start", "train both runs, or go on where they were stopped", self.start),
            button("Stop", "stop after the step in progress", self.stop),
            button("Start again", "back to the initial weights, and off", self.start_again),
        )
        super().__init__(
            [row(*choices, *buttons)], alt="Loss over training steps in fp32 and in mixed precision."
        )
        self.race: Race
        self._drawn: RacePicture
        self._lined_up = ""
        self._line_up()
        self.follow(self._line_up, *choices)

    @property
    def task(self) -> str:
        """What is trained; choosing another lines up a new race."""
        return self._task_choice.value

    @task.setter
    def task(self, task: str) -> None:
        with self.answering():
            self._task_choice.value = _task(task)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the mixed precision run (fp16 or bf16); choosing another lines up a new race."""
        return self._dtype_choice.value

    @dtype.setter
    def dtype(self, dtype: torch.dtype | str) -> None:
        with self.answering():
            self._dtype_choice.value = _dtype(dtype)

    @property
    def running(self) -> bool:
        """Whether the race is on."""
        return self._running is not None

    def start(self) -> None:
        """Train in the background, or go on where it was stopped; nothing happens if it runs already."""
        if self.running:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.say("There is no event loop here to train on in the background; call run() instead.")
            return
        self._running = loop.create_task(self._train())
        self._refresh()

    def stop(self) -> None:
        """Stop after the last finished step; ``start`` goes on from there."""
        if self._running is not None:
            self._running.cancel()
            self._running = None
            self._refresh()

    def start_again(self) -> None:
        """Go back to the initial weights, and start."""
        self._line_up()
        self.start()

    def run(self) -> RaceView:
        """Train to the end, then return the view: the same race in one cell, without the watching."""
        self.stop()
        while not self.race.finished:
            self._advance()
        self._refresh()
        return self

    def take_over(self, before: RaceView) -> None:
        """Go on with the race that was lined up last, unless this is the same one and has come as far."""
        was_running = before.running
        before.stop()
        super().take_over(before)
        if self.race.step < before.race.step:
            self.race, self._drawn = before.race, before._drawn
            self._refresh()
        if was_running:
            self.start()

    def close(self) -> None:
        """Stop, and take the view from the page."""
        self.stop()
        super().close()

    async def _train(self) -> None:
        try:
            while not self.race.finished:
                deadline = time.perf_counter() + SLICE_S
                for _ in range(max(1, self.race.task.steps // FRAMES)):
                    if self.race.finished or time.perf_counter() > deadline:
                        break
                    self._advance()
                self._refresh(announced=self.race.finished)
                await asyncio.sleep(0.01)  # not 0: messages from the page need several turns of the loop
        except RuntimeError as error:  # PyTorch's, such as a GPU whose memory other work has filled
            self.say(f"The race ended before its time: {str(error).splitlines()[0]}")
        self._running = None

    def _advance(self) -> None:
        try:
            self.race.advance()
        except BaseException:  # an interrupt, too: a step that broke off half way cannot be continued
            self._running = None
            self._line_up()
            raise

    def _line_up(self) -> None:
        self.stop()
        with self.answering():
            before = self.race if self._lined_up == self.task else None
            self.race, self._lined_up = Race(self.task, self.dtype, self._device), self.task
            self._drawn = RacePicture(self.race, before)
            self._refresh()

    def _refresh(self, announced: bool = True) -> None:
        self._drawn.update(self.race)
        words = describe(self.race, self.task, self.running)
        self.show(self._drawn, words, mark=MEASURED_MARK, announced=announced)


def _task(task: str) -> str:
    if task not in list(TASKS):  # not in the dict: what is typed may not be hashable
        raise ValueError(f"The task is one of {', '.join(TASKS)}; there is no {task!r}.")
    return task


def _dtype(dtype: torch.dtype | str) -> torch.dtype:
    found = DTYPES.get(dtype) if isinstance(dtype, str) else dtype
    if found is None or found not in DTYPES.values():
        raise ValueError(f"Choose fp16 or bf16, the two dtypes of mixed precision; {dtype!r} is neither.")
    return found


def describe(race: Race, task: str, running: bool) -> str:
    """Describe how a race stands."""
    fp32, amp = race.fp32, race.amp
    where = f"{task}, fp32 against {amp.precision} autocast on {race.device.type}"
    if race.step == 0:
        state = "started" if running else "ready to start"
        return f"{where}: {race.task.steps} steps from the same initial weights, {state}."
    state = "finished" if race.finished else "running" if running else "stopped"
    largest, at = race.largest_difference
    return (
        f"{where}, {state}: step {race.step} of {race.task.steps}. "
        f"Loss {fp32.losses[-1]:.4f} and {amp.losses[-1]:.4f}; largest difference so far "
        f"{relative(largest)}, at step {at + 1}. Computing took {fp32.seconds:.2f} s and {amp.seconds:.2f} s "
        f"here. {len(amp.skipped)} steps skipped."
    )


# Decades of relative difference: from fp32's last digit to a run that has nothing to do with the other
_LEAST_DIFFERENCE, _MOST_DIFFERENCE = 1e-7, 1.0


class RacePicture(Picture):
    """Both losses over the steps, and below them their relative difference; the curves grow by ``update``.

    A difference has the colour of its dtype: two races are compared where one lies on the other.
    """

    def __init__(self, race: Race, before: Race | None = None) -> None:
        """Draw axes for all steps of ``race``, and the curves as far as they have come.

        The difference of the race ``before``, which was run on the same task, stays there, broad and pale.
        """
        with house_style():
            figure = Figure(figsize=(9, 4.2))
            above, below = figure.subplots(
                2,
                1,
                sharex=True,
                gridspec_kw={"height_ratios": [3, 2], "left": 0.11, "right": 0.985, "top": 0.9}
                | {"bottom": 0.12, "hspace": 0.12},
            )
            self._curves = self._draw_losses(above, race)
            if before is not None and before.differences:
                name = before.amp.precision
                steps = range(1, len(before.differences) + 1)
                look = {"color": dtype_colour(name), "lw": 3.5, "alpha": 0.45}
                below.plot(steps, before.differences, **look, label=f"{name}, the run before")
            named = [*self._curves[:2], *below.lines]  # above the axes, where no curve runs
            figure.legend(handles=named, loc="upper left", bbox_to_anchor=(0.1, 1), ncols=3, handlelength=3.2)
            (self._difference,) = below.plot([], [], color=dtype_colour(race.amp.precision), lw=1.4)
            below.set_yscale("log", nonpositive="mask")
            below.set_ylim(_LEAST_DIFFERENCE, _MOST_DIFFERENCE)
            below.set_xlim(0, race.task.steps + 1)
            below.set(ylabel="relative\ndifference", xlabel="training step")
            below.grid(axis="y", color=GRID)
        super().__init__(figure, moving=[*self._curves, self._difference, self._skips])
        self.update(race)

    def _draw_losses(self, axes: Axes, race: Race) -> tuple[Line2D, Line2D, Line2D]:
        # One curve may lie on top of the other, which is the point: width and dashes keep both in sight.
        (fp32,) = axes.plot([], [], **STROKES[0], label="fp32")
        precision = race.amp.precision
        (amp,) = axes.plot(
            [], [], color=dtype_colour(precision), lw=1.8, ls=(0, (5, 1.5)), label=f"{precision} autocast"
        )
        overflow = ZONES["overflowed"].colour
        (skipped,) = axes.plot([], [], "X", color=overflow, ms=9)
        self._skips = axes.text(0.5, 0.9, "✗ overflow: step skipped", ha="center", color=overflow)
        self._skips.set_transform(axes.transAxes)
        axes.set_ylim(0, 1.15 * race.task.chance_loss)
        axes.set_ylabel("loss")
        axes.grid(axis="y", color=GRID)
        return fp32, amp, skipped

    def update(self, race: Race) -> None:
        """Extend the curves to the steps that ``race`` has taken."""
        steps = range(1, race.step + 1)
        fp32, amp, skipped = self._curves
        fp32.set_data(steps, race.fp32.losses[: race.step])
        amp.set_data(steps, race.amp.losses)
        # a skipped step may well have had no finite loss: mark it at the foot of the axes
        heights = [loss if math.isfinite(loss := race.amp.losses[i]) else 0.0 for i in race.amp.skipped]
        skipped.set_data([i + 1 for i in race.amp.skipped], heights)
        self._skips.set_visible(bool(race.amp.skipped))
        self._difference.set_data(steps, race.differences)
