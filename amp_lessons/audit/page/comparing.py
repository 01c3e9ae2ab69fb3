"""A comparison as one HTML file: where two runs part, with pictures where matplotlib is there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from amp_lessons._base.render import Section, sections_html
from amp_lessons._base.text.words import shortened
from amp_lessons.audit.comparing.report import MODULES, STEPS, headline, sections_of
from amp_lessons.audit.page.page import can_draw, page_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from amp_lessons._base.drawing.picture import Picture
    from amp_lessons.audit.comparing.comparison import Comparison
    from amp_lessons.audit.comparing.pairing import Apart

_MOST_MODULES = 60  # rows of the table; the picture has all
_NO_PICTURES = "Pictures are drawn by matplotlib: pip install matplotlib"
_LONGEST_NAME = 26
_NAMED = 40  # modules with their names below the axis
_BY_MODULE = (
    "Relative differences, module by module in the order of the forward pass: the line is the difference of "
    "the two runs, the band what inputs and format explain, and dashes show what nudging makes of the first."
)
_BY_STEP = "How the differences grow from step to step; dashed, what nudging the first run makes of it."


def comparison_page(comparison: Comparison) -> str:
    """Return a whole HTML page of a comparison; it needs no network."""
    sections = sections_of(comparison, _MOST_MODULES)
    shown = sections_html(sections, lambda section: _pictures(section, comparison))
    return page_of(headline(comparison), shown)


def _pictures(section: Section, comparison: Comparison) -> Iterator[Markup]:
    drawn = {MODULES: (modules_picture, _BY_MODULE), STEPS: (steps_picture, _BY_STEP)}
    if section.title not in drawn:
        return
    if not can_draw():
        yield Markup("<p>{}</p>").format(_NO_PICTURES)
        return
    from amp_lessons._base.drawing.picture import picture_html

    draw, caption = drawn[section.title]
    yield picture_html(draw(comparison), caption, f"{caption} The table has its numbers.", announced=False)


def modules_picture(comparison: Comparison) -> Picture:
    """Draw the difference of each module's output over the modules; there has to be one."""
    from matplotlib.figure import Figure

    from amp_lessons._base.drawing.picture import Picture
    from amp_lessons._base.drawing.style import ACCENT, QUIET, SMALL, ZONES, house_style

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
        names = [shortened(each.module, _LONGEST_NAME) for each in found[::step]]
        axes.set_xticks(list(places)[::step], names, rotation=60, ha="right", fontsize=SMALL)
        _finish(axes, "relative difference")
    return Picture(figure)


def steps_picture(comparison: Comparison) -> Picture:
    """Draw how far outputs, gradients and weights are apart over the steps; there has to be one."""
    from matplotlib.figure import Figure

    from amp_lessons._base.drawing.picture import Picture
    from amp_lessons._base.drawing.style import ACCENT, INK, ZONES, house_style

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
    from amp_lessons._base.drawing.style import GRID

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
