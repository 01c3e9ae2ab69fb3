"""Pictures of the pages: layers and steps of an audit, and how far two runs are apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import (
    ACCENT,
    GRID,
    INK,
    LOST,
    POWERS,
    QUIET,
    SMALL,
    STROKES,
    UNKNOWN,
    ZONES,
    dtype_colour,
    house_style,
)
from amp_lessons._base.text.words import fraction, shortened
from amp_lessons.audit.report.losses import LossMap
from amp_lessons.audit.report.report import Report
from amp_lessons.audit.report.steps import by_optimizer
from amp_lessons.audit.seen import AS_TRAINED, StepSeen

if TYPE_CHECKING:
    from amp_lessons.audit.comparing.comparison import Comparison
    from amp_lessons.audit.comparing.pairing import Apart

CURVES_IN = 2.4
_ROW_IN, _MARGINS_IN = 0.22, 0.95
_LONGEST_NAME = 34
_NAME_IN = 0.15  # the height of a name beside the colour bar
_TICKS = (0.0, 0.01, 0.1, 0.3, 1.0)


def map_height_in(losses: LossMap) -> float:
    """Return the height that the map takes, in inches."""
    return _MARGINS_IN + _ROW_IN * max(3, len(losses.layers))


def map_picture(losses: LossMap) -> Picture:
    """Draw layers over steps; there has to be one of each."""
    height = map_height_in(losses)
    with house_style():
        figure = Figure(figsize=(9, height))
        axes = figure.add_axes((0.27, 0.55 / height, 0.55, 1 - _MARGINS_IN / height))
        draw_map(axes, losses)
    return Picture(figure)


def draw_map(axes: Axes, losses: LossMap) -> None:
    """Draw a row for each layer, with its mean beside it in words: no meaning rests on colour alone."""
    shares = np.array([[np.nan if s is None else s for s in row] for row in losses.shares], dtype=float)
    shares = shares.reshape(len(losses.layers), len(losses.steps))
    axes.set_facecolor(UNKNOWN)
    # small shares differ most in what they mean: the root gives them room
    image = axes.imshow(shares, aspect="auto", cmap=LOST, norm=PowerNorm(0.5, 0, 1), interpolation="nearest")
    axes.set_yticks(
        range(len(losses.layers)), [shortened(name, _LONGEST_NAME) for name in losses.layers], fontsize=SMALL
    )
    places = sorted({round(p) for p in np.linspace(0, len(losses.steps) - 1, 8)}) if losses.steps else []
    axes.set_xticks(places, [f"{losses.steps[place] + 1:,}" for place in places])
    axes.set_xlabel("optimizer step")
    axes.tick_params(length=0)
    for row, values in enumerate(shares):
        known = values[~np.isnan(values)]
        said = fraction(float(known.mean())) if len(known) else "not known"
        axes.annotate(said, (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=SMALL)
    _above(axes, 1.01, "mean")
    if losses.total > len(losses.layers):
        _above(axes, 0, f"the {len(losses.layers)} that lose most, of {losses.total} layers")
    ticks = _ticks(_ROW_IN * len(losses.layers))
    bar = axes.figure.colorbar(image, ax=None, cax=axes.inset_axes((1.13, 0, 0.03, 1)), ticks=ticks)
    bar.ax.set_yticklabels([f"{100 * tick:g} %" for tick in ticks], fontsize=SMALL)
    bar.outline.set_edgecolor(QUIET)


def _ticks(height_in: float) -> list[float]:
    """Return the shares that are named beside a colour bar of this height, none of them on another's name."""
    named = [0.0]
    for tick in _TICKS[1:]:
        lower, place = named[-1] ** 0.5 * height_in, tick**0.5 * height_in
        if place - lower >= _NAME_IN and (tick == 1 or height_in - place >= _NAME_IN):
            named.append(tick)
    return named


def _above(axes: Axes, x: float, text: str) -> None:
    offset: dict[str, Any] = {"xytext": (0, 4), "textcoords": "offset points"}
    axes.annotate(text, (x, 1), xycoords="axes fraction", fontsize=SMALL, color=QUIET, **offset)


def draw_layer(axes: Axes, curves: Mapping[str, Mapping[int, float]], used: str) -> None:
    """Draw what one layer loses in each format; they may lie on each other, so they differ in width too."""
    for place, (name, losses) in enumerate(curves.items()):
        trained = name == AS_TRAINED
        axes.plot(
            [step + 1 for step in losses],
            list(losses.values()),
            color=INK if trained else dtype_colour(name),
            lw=1.6 if trained else 5 - 0.9 * place,
            ls=(0, (4, 2)) if trained else "-",
            alpha=1 if trained else 0.7,
            marker="o",
            ms=4,
            label=f"{name} ({used})" if trained else name,
            zorder=3 if trained else 2,
        )
    axes.set_ylim(-0.04, 1.04)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(axis="y", color=GRID)
    axes.set(xlabel="optimizer step", ylabel="become zero")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)


HEIGHT_IN = 3.9
_COLUMNS = 4  # of the legend


def timeline_picture(report: Report) -> Picture:
    """Draw loss and scale of every step; there has to be one."""
    with house_style():
        figure = Figure(figsize=(9, HEIGHT_IN))
        loss, scale = figure.subplots(
            2,
            1,
            sharex=True,
            gridspec_kw={"height_ratios": [3, 2], "left": 0.1, "right": 0.985, "bottom": 0.13},
        )
        draw_timeline(loss, scale, report)
        named = len(loss.get_legend_handles_labels()[0])
        figure.subplots_adjust(top=0.98 - 0.05 * -(-named // _COLUMNS))  # room for each line of the legend
    return Picture(figure)


def draw_timeline(loss_axes: Axes, scale_axes: Axes, report: Report) -> None:
    """Draw the loss above and the scale below, which share their steps, counted from 1."""
    optimizers = by_optimizer(report)
    strokes = STROKES if len(optimizers) > 1 else ({"color": ACCENT, "lw": 1.8},)
    for (number, steps), stroke in zip(optimizers.items(), strokes, strict=False):
        label = f"optimizer {number + 1}" if len(optimizers) > 1 else "loss"
        numbers = [step.index + 1 for step in steps]
        loss_axes.plot(numbers, [_finite(step.loss) for step in steps], label=label, **stroke)
        scale_axes.step(numbers, [_exponent(step.scale) for step in steps], where="mid", **stroke)
    if len(optimizers) > len(strokes):
        _above(loss_axes, 0, f"the first {len(strokes)} of {len(optimizers)} optimizers")
    _mark_steps(loss_axes, scale_axes, report)
    _name_axes(loss_axes, scale_axes, report.steps)


def _mark_steps(loss_axes: Axes, scale_axes: Axes, report: Report) -> None:
    steps, overflow = report.steps, ZONES["overflowed"].colour
    skipped = [step for step in steps if not step.happened]
    if skipped:
        numbers = [step.index + 1 for step in skipped]
        exponents = [_exponent(step.scale) for step in skipped]
        scale_axes.plot(numbers, exponents, "X", color=overflow, ms=8)
        _at_top(loss_axes, numbers, "X", overflow, "step skipped")
    broken = [step.index + 1 for step in steps if not math.isfinite(step.loss or 0.0)]
    if broken:
        _at_top(loss_axes, broken, "^", ZONES["underflowed"].colour, "loss inf or NaN")
    found = report.first_nonfinite
    if found is not None:
        loss_axes.axvline(found.step + 1, color=INK, lw=1, ls=":", label="first inf or NaN")


def _at_top(axes: Axes, numbers: Sequence[int], marker: str, colour: str, label: str) -> None:
    """Mark steps above the curve: they may have no loss that could be drawn."""
    heights = [0.95] * len(numbers)
    where = axes.get_xaxis_transform()
    axes.plot(numbers, heights, marker, color=colour, ms=8, label=label, transform=where, clip_on=False)


def _name_axes(loss_axes: Axes, scale_axes: Axes, steps: Sequence[StepSeen]) -> None:
    if not any(math.isfinite(step.loss) for step in steps if step.loss is not None):
        loss_axes.text(0.5, 0.5, "no loss was seen", transform=loss_axes.transAxes, color=QUIET, ha="center")
        loss_axes.set_yticks([])
    loss_axes.set_ylabel("loss")
    loss_axes.margins(x=0.01, y=0.12)
    loss_axes.legend(
        loc="lower right", bbox_to_anchor=(1, 0.98), ncols=_COLUMNS, fontsize=9, borderaxespad=0.2
    )
    low, high = _range([_exponent(step.scale) for step in steps])
    scale_axes.set_ylim(low - 1.5, high + 1.5)
    scale_axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    scale_axes.yaxis.set_major_formatter(FuncFormatter(lambda exponent, _: f"$2^{{{round(exponent)}}}$"))
    scale_axes.tick_params(axis="y", labelsize=POWERS)
    scale_axes.set(ylabel="loss scale", xlabel="optimizer step")
    scale_axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    for axes in (loss_axes, scale_axes):
        axes.grid(axis="y", color=GRID)


def _finite(loss: float | None) -> float:
    return loss if loss is not None and math.isfinite(loss) else math.nan


def _exponent(scale: float) -> float:
    return math.log2(scale) if scale > 0 and math.isfinite(scale) else math.nan


def _range(exponents: Sequence[float]) -> tuple[float, float]:
    known = [each for each in exponents if math.isfinite(each)]
    return (min(known), max(known)) if known else (0.0, 0.0)


_LONGEST_BELOW = 26  # letters of a name below an axis
_NAMED = 40  # modules with their names below the axis


def modules_picture(comparison: Comparison) -> Picture:
    """Draw the difference of each module's output over the modules; there has to be one."""
    found = list(comparison.by_module.values())
    places = range(len(found))
    with house_style():
        figure = Figure(figsize=(9, 4.2))
        axes = figure.add_axes((0.09, 0.36, 0.89, 0.56))
        explained = [_shown(each.explained_up_to) for each in found]
        axes.fill_between(places, explained, 0, color=QUIET, alpha=0.15, label="explained", step="mid")
        axes.plot(places, [_shown(e.noise_floor) for e in found], color=QUIET, ls=(0, (4, 2)), label="nudged")
        axes.plot(
            places, [_shown(e.difference) for e in found], color=ACCENT, marker="o", ms=4, label="forward"
        )
        worse = [i for i, each in enumerate(found) if each.own > 1]
        heights = [_shown(found[i].difference) for i in worse]
        colour = ZONES["underflowed"].colour
        axes.plot(worse, heights, "X", color=colour, ms=9, label="worse than its format explains")
        step = -(-len(found) // _NAMED)
        names = [shortened(each.module, _LONGEST_BELOW) for each in found[::step]]
        axes.set_xticks(list(places)[::step], names, rotation=60, ha="right", fontsize=SMALL)
        _finish(axes, "relative difference")
    return Picture(figure)


def steps_picture(comparison: Comparison) -> Picture:
    """Draw how far outputs, gradients and weights are apart over the steps; there has to be one."""
    steps = comparison.by_step
    curves: dict[str, tuple[str, str, list[Apart | None]]] = {
        "outputs": (ACCENT, "o", [each.output for each in steps]),
        "gradients": (ZONES["underflowed"].colour, "s", [each.gradient for each in steps]),
        "weights": (INK, "^", [each.weights for each in steps]),
    }
    numbers = [each.step + 1 for each in steps]
    with house_style():
        figure = Figure(figsize=(9, 3.2))
        axes = figure.add_axes((0.09, 0.17, 0.89, 0.72))
        for name, (colour, marker, apart) in curves.items():
            differences = [_shown(None if each is None else each.difference) for each in apart]
            floors = [_shown(None if each is None else each.floor) for each in apart]
            axes.plot(numbers, differences, color=colour, marker=marker, ms=4, label=name)
            axes.plot(numbers, floors, color=colour, ls=(0, (4, 2)), lw=1, alpha=0.7)
        axes.set_xlabel("optimizer step")
        _finish(axes, "relative difference")
    return Picture(figure)


def _finish(axes: Axes, label: str) -> None:
    drawn = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axes.lines])
    if np.isfinite(drawn).any():
        axes.set_yscale("log")
        axes.set_ylim(float(np.nanmin(drawn)) / 3, float(np.nanmax(drawn)) * 5)
    axes.set_ylabel(label)
    axes.grid(axis="y", color=GRID)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.98), ncols=4, fontsize=9, borderaxespad=0.2)


def _shown(value: float | None) -> float:
    """Return what a logarithmic axis can show, else NaN, which leaves a gap."""
    return value if value is not None and 0 < value < math.inf else math.nan
