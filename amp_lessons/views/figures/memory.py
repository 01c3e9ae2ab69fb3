"""Where the memory of a training step goes: what each layer saves, and the whole step at its peak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.measure import Footprint
from amp_lessons.text.words import memory
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import GRID, INK, KIND_COLOURS, PAPER, dtype_colour, house_style, text_on

Footprints = Mapping[str, Footprint]
Stack = Counter[tuple[torch.dtype, bool]]  # bytes by dtype, and by whether they are copies of weights

LAYERS_IN_VIEW = 12
_COPY_HATCH = "/////"
_BAR_IN = 0.19  # from one bar to the next, in inches
_LEFT, _RIGHT = 0.26, 0.93


def activations_picture(footprints: Footprints, depth: int | None) -> Picture:
    """Draw what every layer saves for the backward pass, one bar per precision, coloured by dtype."""
    with house_style():
        stacks = _stacks_by_layer(footprints, depth)
        figure, (axes,) = _axes_of_heights(_layers_height(footprints, stacks))
        _draw_layers(axes, footprints, stacks)
    return Picture(figure)


def step_picture(footprints: Footprints) -> Picture:
    """Draw what is allocated at the worst moment of the whole step, one bar per precision."""
    with house_style():
        figure, (axes,) = _axes_of_heights(_step_height(footprints))
        _draw_step(axes, footprints)
    return Picture(figure)


def memory_picture(footprints: Footprints, depth: int | None) -> Picture:
    """Draw both, the layers above the whole step."""
    with house_style():
        stacks = _stacks_by_layer(footprints, depth)
        heights = _layers_height(footprints, stacks), _step_height(footprints)
        figure, (above, below) = _axes_of_heights(*heights)
        _draw_layers(above, footprints, stacks)
        _draw_step(below, footprints)
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


def _layers_height(footprints: Footprints, stacks: Mapping[str, list[Stack]]) -> float:
    return _BAR_IN * (len(footprints) + 0.5) * max(1, len(stacks))


def _step_height(footprints: Footprints) -> float:
    return 1.7 * _BAR_IN * len(footprints)


def _draw_layers(axes: Axes, footprints: Footprints, stacks: Mapping[str, list[Stack]]) -> None:
    pitch = len(footprints) + 0.5
    for number, (name, layer) in enumerate(stacks.items()):
        _beside(axes, number * pitch + (len(footprints) - 1) / 2, name, 0.06)
        for place, (precision, stack) in enumerate(zip(footprints, layer, strict=True)):
            y = number * pitch + place
            _beside(axes, y, precision, 0.008, fontsize=8, color=dtype_colour(precision))
            _draw_stack(axes, y, stack)
    kinds = sorted({kind for layer in stacks.values() for stack in layer for kind in stack}, key=_in_order)
    _finish(axes, "Saved for the backward pass, layer by layer", len(stacks) * pitch - 0.9)
    _legend(axes, [Patch(label=_saved_words(*kind), **_saved_style(*kind)) for kind in kinds])


def _draw_stack(axes: Axes, y: float, stack: Stack) -> None:
    left = 0
    for kind in sorted(stack, key=_in_order):
        axes.barh(y, stack[kind], left=left, height=0.86, **_saved_style(*kind))
        left += stack[kind]
    axes.text(left, y, f" {memory(left)}" if left else " nothing", va="center", fontsize=8, color=INK)


def _in_order(kind: tuple[torch.dtype, bool]) -> tuple[bool, int, str]:
    """Activations before copies of weights, wide dtypes before narrow ones."""
    dtype, is_copy = kind
    return is_copy, -dtype.itemsize, str(dtype)


def _saved_style(dtype: torch.dtype, is_copy: bool) -> dict[str, Any]:
    colour = dtype_colour(dtype)
    if is_copy:
        return {"facecolor": PAPER, "edgecolor": colour, "hatch": _COPY_HATCH, "linewidth": 0.6}
    return {"facecolor": colour, "edgecolor": PAPER, "linewidth": 0.4}


def _saved_words(dtype: torch.dtype, is_copy: bool) -> str:
    name = dtype_name(dtype)
    return f"copies of weights in {name}" if is_copy else f"kept in {name}"


def _draw_step(axes: Axes, footprints: Footprints) -> None:
    longest = max(each.peak_bytes for each in footprints.values())
    for y, (precision, each) in enumerate(footprints.items()):
        _beside(axes, y, f"step in {precision}" if precision == "fp32" else f"autocast {precision}", 0.008)
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
    style: dict[str, Any] = {"va": "center", "fontsize": 8.5, "fontweight": "bold", "color": INK}
    axes.text(each.peak_bytes, y, f" {memory(each.peak_bytes)}", **style)


def _write_peak(axes: Axes, y: float, each: Footprint, longest: int) -> None:
    """Write into the parts of a bar how much they are, where there is room."""
    for left, kind, nbytes in _parts(each):
        if nbytes > 0.11 * longest:
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}
            axes.text(left + nbytes / 2, y, memory(nbytes), color=text_on(KIND_COLOURS[kind]), **style)


def _parts(each: Footprint) -> Iterator[tuple[int, str, int]]:
    """Go through the kinds of memory at the peak: where each begins in the bar, its name and its bytes."""
    left = 0
    for kind in KIND_COLOURS:
        if kind in each.at_peak:
            yield left, kind, each.at_peak[kind]
            left += each.at_peak[kind]


def _beside(axes: Axes, y: float, text: str, distance: float, **style: Any) -> None:
    """Write to the left of the bars; ``distance`` is a share of the axes' width."""
    place: dict[str, Any] = {"ha": "right", "va": "center", "transform": axes.get_yaxis_transform()}
    axes.text(-distance, y, text, **{"fontsize": 9, **place, **style})


def _finish(axes: Axes, title: str, bottom: float) -> None:
    axes.set_ylim(bottom, -0.6)
    axes.set_xlim(left=0)
    axes.set_title(title, x=-_LEFT / (_RIGHT - _LEFT) + 0.015, pad=24)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines["bottom"].set_visible(False)
    axes.spines["left"].set_color(GRID)


def _legend(axes: Axes, patches: Iterable[Patch]) -> None:
    handles = list(patches)
    place: dict[str, Any] = {
        "loc": "lower left",
        "bbox_to_anchor": (-_LEFT / (_RIGHT - _LEFT), 1.0),
        "borderaxespad": 0.2,
    }
    axes.legend(handles=handles, ncols=max(1, len(handles)), fontsize=8, handlelength=1.4, **place)
