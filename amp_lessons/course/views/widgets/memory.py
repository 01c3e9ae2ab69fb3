"""The memory of a training step in fp32 and under autocast: what each layer saves, and all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from amp_lessons._base.drawing.axes import leave_to_bars, write_beside
from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import (
    INK,
    KIND_COLOURS,
    PAPER,
    SMALL,
    dtype_colour,
    house_style,
    text_on,
)
from amp_lessons._base.text.words import MEASURED_MARK, memory, percent
from amp_lessons.course.views.base.controls import ControlValue, Slider, dropdown, row
from amp_lessons.course.views.base.view import View
from amp_lessons.course.views.widgets.stills import Still
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.measure import OPTIMIZERS, Footprint
from amp_lessons.measure.footprint import MEASURED

Footprints = Mapping[str, Footprint]
Predictor = Callable[..., Footprint]


def activation_stack(footprints: Footprints, *, depth: int | None = None) -> Still:
    """Show what each layer saves for the backward pass: ``footprints`` by precision, fp32 first.

    ``depth`` is the number of names of a module's path that tell layers apart, by default all of them.
    """
    picture, mark = memory_picture(footprints, depth, parts=("layers",)), _mark(footprints)
    caption = f"{describe_saved(footprints)}{_warning(footprints)}"
    return Still(picture, caption, "Stacked bars, one pair per layer.", mark=mark)


def step_memory(footprints: Footprints) -> Still:
    """Show what is allocated at the worst moment of a step: ``footprints`` by precision, fp32 first."""
    picture, mark = memory_picture(footprints, parts=("step",)), _mark(footprints)
    caption = f"{describe_step(footprints)}{_warning(footprints)}"
    return Still(picture, caption, "Stacked bars, one per precision.", mark=mark)


class MemoryView(View):
    """Saved activations by layer and the whole step, in fp32 and under the autocast that is chosen."""

    network = ControlValue[str]("_network", "The name of the network whose memory is shown.")
    precision = ControlValue[str](
        "_precision", "What autocast casts to, fp16 or bf16; fp32 stands beside it."
    )
    optimizer = ControlValue[str]("_optimizer", "The optimizer's name, one of ``measure.OPTIMIZERS``.")
    depth = ControlValue[int]("_depth", "How many names of a module's path tell layers apart.")

    def __init__(
        self,
        networks: Mapping[str, Predictor],
        network: str | None = None,
        *,
        precision: str = "fp16",
        optimizer: str = "AdamW",
        depth: int | None = None,
    ) -> None:
        """Show the memory of ``networks``: by name, functions that return a ``measure.Footprint``.

        Each is called with ``precision_name`` and ``optimizer``: ``partial(measure.predict_memory, model,
        images)``, say. ``depth`` is the number of names of a module's path that tell layers apart.
        """
        self._networks = dict(networks)
        self._found: dict[tuple[str, str, str], Footprint] = {}
        self._network = dropdown("network", list(self._networks), network or next(iter(self._networks)))
        self._precision = dropdown("autocast", ["fp16", "bf16"], precision)
        self._optimizer = dropdown("optimizer", list(OPTIMIZERS), optimizer)
        self._depth = Slider("Depth of module names", 1, 1, 1)
        choices = [self._network, self._precision, self._optimizer]
        super().__init__([row(*choices), self._depth], alt="Stacked bars of memory.")
        self._fit_depth(depth)
        self._refresh()
        self.follow(self._network_chosen, self._network)
        self.follow(self._refresh, self._precision, self._optimizer, self._depth)

    @property
    def footprints(self) -> dict[str, Footprint]:
        """What the picture shows, by precision."""
        return {name: self._footprint(name) for name in ("fp32", self.precision)}

    def _footprint(self, precision: str) -> Footprint:
        chosen = (self.network, precision, self.optimizer)
        if chosen not in self._found:
            self.begin_work(f"The memory of {self.network}, {precision}, {self.optimizer}")
            predict = self._networks[self.network]
            self._found[chosen] = predict(precision_name=precision, optimizer=OPTIMIZERS[self.optimizer])
        return self._found[chosen]

    def _network_chosen(self) -> None:
        self._fit_depth(None)
        self._refresh()

    def _fit_depth(self, depth: int | None) -> None:
        """Set the slider's end to the depth of this network's modules; by default show all of them."""
        with self.answering():
            paths = [path for each in self.footprints.values() for path in each.saved_by_module()]
            self._depth.max = max((path.count(".") + 1 for path in paths), default=1)
            self._depth.value = self._depth.max if depth is None else depth

    def _refresh(self) -> None:
        with self.answering():
            found = self.footprints
            caption = f"{describe_saved(found)} {describe_step(found)}{_warning(found)}"
            self.show(memory_picture(found, self.depth), caption, mark=_mark(found))


def describe_saved(footprints: Footprints) -> str:
    """Describe how much is saved for the backward pass in each precision, and what part of fp32's that is."""
    (_, first), *others = footprints.items()
    saved = sum(first.saved_bytes.values())
    said = []
    for precision, each in others:
        total, wide = sum(each.saved_bytes.values()), each.saved_bytes.get(torch.float32, 0)
        inside = f"{memory(each.weight_copy_bytes)} of it copies of weights, {memory(wide)} still in fp32"
        said.append(
            f"Under {precision} autocast: {memory(total)}, {percent(total, saved)} of that ({inside})."
        )
    source = first.source[:1].upper() + first.source[1:]
    return f"{source}. Saved for the backward pass in fp32: {memory(saved)}. {' '.join(said)}"


def describe_step(footprints: Footprints) -> str:
    """Describe the peaks, and why the whole is never half: what autocast leaves as it is."""
    (_, first), *others = footprints.items()
    unchanged = first.parameter_bytes + first.gradient_bytes + first.optimizer_bytes
    peaks = [
        f"{memory(each.peak_bytes)} under {precision} autocast ({percent(each.peak_bytes, first.peak_bytes)})"
        for precision, each in others
    ]
    return (
        f"Peak of the whole step, each bar at its own worst moment: {memory(first.peak_bytes)} in fp32, "
        f"{', '.join(peaks)}. "
        f"Parameters, gradients and optimizer state, {memory(unchanged)}, stay in fp32."
    )


def _warning(footprints: Footprints) -> str:
    """Return what a caption ends with: what the figures leave out, once for all precisions."""
    return "".join(f" {said}" for said in dict.fromkeys(each.warning for each in footprints.values()) if said)


def _mark(footprints: Footprints) -> str:
    return MEASURED_MARK if any(each.source == MEASURED for each in footprints.values()) else ""


Stack = Counter[tuple[torch.dtype, bool]]  # bytes by dtype, and by whether they are copies of weights

LAYERS_IN_VIEW = 12
_COPY_HATCH = "/////"
_BAR_IN = 0.19  # from one bar to the next, in inches
_LEFT, _RIGHT = 0.26, 0.93


def memory_picture(
    footprints: Footprints, depth: int | None = None, parts: Sequence[str] = ("layers", "step")
) -> Picture:
    """Draw one bar per precision for what every layer saves for the backward pass, coloured by dtype.

    Below stands what is allocated at the worst moment of the whole step. ``parts`` may be one of the two.
    """
    stacks = _stacks_by_layer(footprints, depth)
    heights = {
        "layers": _BAR_IN * (len(footprints) + 0.5) * max(1, len(stacks)),
        "step": 1.7 * _BAR_IN * len(footprints),
    }
    with house_style():
        figure, every_axes = _axes_of_heights(*map(heights.__getitem__, parts))
        for part, axes in zip(parts, every_axes, strict=True):
            if part == "layers":
                _draw_layers(axes, footprints, stacks)
            else:
                _draw_step(axes, footprints)
    return Picture(figure)


def _axes_of_heights(*heights_in: float) -> tuple[Figure, list[Axes]]:
    """Return a figure with axes of these heights below one another, and room above each for its heading."""
    heading_in, gap_in = 0.62, 0.1
    total = sum(heights_in) + len(heights_in) * (heading_in + gap_in)
    figure, every_axes, bottom = Figure(figsize=(9, total)), [], total
    for height in heights_in:
        bottom -= heading_in + height
        every_axes.append(figure.add_axes((_LEFT, bottom / total, _RIGHT - _LEFT, height / total)))
        bottom -= gap_in
    return figure, every_axes


def _stacks_by_layer(footprints: Footprints, depth: int | None) -> dict[str, list[Stack]]:
    """Return for each layer, in the order of running, one stack per precision."""
    stacks = [_stacks(each, depth) for each in footprints.values()]
    paths = dict.fromkeys(path for each in sorted(stacks, key=len, reverse=True) for path in each)
    layers = {
        path or "the model's own forward()": [each.get(path, Counter()) for each in stacks] for path in paths
    }
    shown, rest = list(layers.items())[:LAYERS_IN_VIEW], list(layers.values())[LAYERS_IN_VIEW:]
    if not rest:
        return layers
    return dict(shown) | {f"… {len(rest)} more": [sum(each, Counter()) for each in zip(*rest, strict=True)]}


def _stacks(each: Footprint, depth: int | None) -> dict[str, Stack]:
    found: dict[str, Stack] = {path: Counter() for path in each.saved_by_module(depth)}
    for is_copy in (False, True):
        for path, by_dtype in each.saved_by_module(depth, weight_copies=is_copy).items():
            found[path].update({(dtype, is_copy): nbytes for dtype, nbytes in by_dtype.items()})
    return found


def _draw_layers(axes: Axes, footprints: Footprints, stacks: Mapping[str, list[Stack]]) -> None:
    pitch = len(footprints) + 0.5
    for number, (name, layer) in enumerate(stacks.items()):
        write_beside(axes, number * pitch + (len(footprints) - 1) / 2, name, 0.06)
        for place, (precision, stack) in enumerate(zip(footprints, layer, strict=True)):
            y = number * pitch + place
            write_beside(axes, y, precision, 0.008, fontsize=SMALL, color=dtype_colour(precision))
            _draw_stack(axes, y, stack)
    kinds = sorted({kind for layer in stacks.values() for stack in layer for kind in stack}, key=_in_order)
    _finish(axes, "Saved for the backward pass, layer by layer", len(stacks) * pitch - 0.9)
    _legend(axes, [Patch(**_saved_style(*kind)) for kind in kinds])


def _draw_stack(axes: Axes, y: float, stack: Stack) -> None:
    left = 0
    for kind in sorted(stack, key=_in_order):
        axes.barh(y, stack[kind], left=left, height=0.86, **_saved_style(*kind))
        left += stack[kind]
    axes.text(left, y, f" {memory(left)}" if left else " nothing", va="center", fontsize=SMALL, color=INK)


def _in_order(kind: tuple[torch.dtype, bool]) -> tuple[bool, int, str]:
    """Activations before copies of weights, wide dtypes before narrow ones."""
    dtype, is_copy = kind
    return is_copy, -dtype.itemsize, str(dtype)


def _saved_style(dtype: torch.dtype, is_copy: bool) -> dict[str, Any]:
    """Return how a bar is drawn, and what the legend says of it."""
    name = dtype_name(dtype)
    colour = dtype_colour(name)
    if is_copy:
        hatched = {"facecolor": PAPER, "edgecolor": colour, "hatch": _COPY_HATCH, "linewidth": 0.6}
        return {**hatched, "label": f"copies of weights in {name}"}
    return {"facecolor": colour, "edgecolor": PAPER, "linewidth": 0.4, "label": f"kept in {name}"}


def _draw_step(axes: Axes, footprints: Footprints) -> None:
    longest = max(each.peak_bytes for each in footprints.values())
    for y, (precision, each) in enumerate(footprints.items()):
        name = f"step in {precision}" if precision == "fp32" else f"autocast {precision}"
        write_beside(axes, y, name, 0.008)
        draw_peak(axes, y, each)
        _write_peak(axes, y, each, longest)
    kinds = [kind for kind in KIND_COLOURS if any(kind in each.at_peak for each in footprints.values())]
    _finish(
        axes,
        "The whole step, each bar at its own worst moment (inputs and copies of weights counted apart)",
        len(footprints) - 0.5,
    )
    _legend(axes, [Patch(facecolor=KIND_COLOURS[kind], label=kind) for kind in kinds])


def draw_peak(axes: Axes, y: float, each: Footprint) -> None:
    """Draw one bar of what is allocated at the peak, by kind, and write the peak at its end."""
    for left, kind, nbytes in _parts(each):
        colour = KIND_COLOURS[kind]
        axes.barh(y, nbytes, left=left, height=0.8, facecolor=colour, edgecolor=PAPER, linewidth=0.6)
    peak = f" {memory(each.peak_bytes)}"
    axes.text(each.peak_bytes, y, peak, va="center", fontsize=SMALL, fontweight="bold", color=INK)


def _write_peak(axes: Axes, y: float, each: Footprint, longest: int) -> None:
    """Write into the parts of a bar how much they are, where there is room."""
    for left, kind, nbytes in _parts(each):
        if nbytes > 0.11 * longest:
            place, colour = left + nbytes / 2, text_on(KIND_COLOURS[kind])
            axes.text(place, y, memory(nbytes), color=colour, ha="center", va="center", fontsize=SMALL)


def _parts(each: Footprint) -> Iterator[tuple[int, str, int]]:
    """Yield the kinds of memory at the peak: where each begins in the bar, its name and its bytes."""
    left = 0
    for kind in KIND_COLOURS:
        if kind in each.at_peak:
            yield left, kind, each.at_peak[kind]
            left += each.at_peak[kind]


def _finish(axes: Axes, title: str, bottom: float) -> None:
    axes.set_ylim(bottom, -0.6)
    axes.set_xlim(left=0)
    axes.set_title(title, x=-_LEFT / (_RIGHT - _LEFT) + 0.015, pad=24)
    leave_to_bars(axes)


def _legend(axes: Axes, patches: Iterable[Patch]) -> None:
    handles = list(patches)
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(-_LEFT / (_RIGHT - _LEFT), 1.0),
        ncols=max(1, len(handles)),
        fontsize=SMALL,
        handlelength=1,  # little, as between the names: all kinds stand in one row
        handletextpad=0.5,
        columnspacing=1,
        borderaxespad=0.2,
    )
