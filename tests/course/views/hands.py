"""What a learner's hands do to a view, and what eyes find there, without a page."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator

import ipywidgets
import numpy as np
from ipywidgets import HTML, Button, Checkbox
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch, Rectangle, StepPatch

from amp_lessons._base.drawing.picture import Picture
from amp_lessons.course.views.base.controls import Field


def press(view: ipywidgets.Widget, label: str) -> None:
    """Press the view's one button with this label."""
    (found,) = (each for each in within(view) if getattr(each, "description", None) == label)
    assert not found.disabled
    found.click()


def within(widget: ipywidgets.Widget) -> Iterator[ipywidgets.Widget]:
    """Yield all widgets that a widget shows, its own children first."""
    for child in getattr(widget, "children", ()):
        yield child
        yield from within(child)


def seen(widget: ipywidgets.Widget, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield what is seen below a widget: the place of each text, button, box and field, and what is there."""
    for number, child in enumerate(getattr(widget, "children", ())):
        if child.layout.display == "none":
            continue
        here = f"{place}.{number}".lstrip(".")
        if isinstance(child, Button):
            signs = "".join(
                " " + each.removeprefix("amp-") for each in child._dom_classes if "-choice" not in each
            )
            yield here, f"[{child.description}]{signs}{' rests' * child.disabled}"
        elif isinstance(child, Checkbox):
            yield here, f"{'☑' if child.value else '☐'} {child.description}"
        elif isinstance(child, Field):
            yield here, f"{child.label}: {child.value} {child.error}".rstrip()
        elif isinstance(child, HTML):
            text = readable(child.value)
            yield here, text if len(text) < 240 else f"{text[:180]} … {text[-50:]}"
        else:
            yield from seen(child, here)


def written(axes: Axes) -> list[str]:
    """Return the words on axes, but for ticks and titles."""
    return [text.get_text().strip() for text in axes.texts]


def plotted(picture: Picture) -> Iterator[tuple[str, str]]:
    """Yield the lines, bars and moving shapes on a picture's axes, by name, and their numbers in short."""
    for place, axes in enumerate(picture.figure.axes):
        for number, line in enumerate(axes.lines if axes.axison else ()):
            if line.get_transform().contains_branch_seperately(axes.transData)[0]:
                yield f"line {place}.{number}", _in_short(*line.get_data())
        for number, patch in enumerate(axes.patches if axes.axison else ()):
            name = f"shape {place}.{number}"
            if isinstance(patch, StepPatch):
                tops, edges, floor = patch.get_data()
                yield name, _in_short(edges[:-1][tops != floor], (tops - floor)[tops != floor])
            elif isinstance(patch, PathPatch):
                points = patch.get_path().vertices
                if patch.get_data_transform() == axes.transAxes:  # diamonds, of which the centres are told
                    points = points.reshape(-1, 5, 2)[:, :4].mean(1) if len(points) > 1 else points[:0]
                yield name, _in_short(*points.T)
            elif isinstance(patch, Rectangle) and patch.get_data_transform() == axes.transData:
                hatched = " hatched" * bool(patch.get_hatch())
                yield name, _in_short([*patch.get_xy(), patch.get_width(), patch.get_height()]) + hatched
        for number, image in enumerate(axes.images):
            pixels = np.ma.filled(np.ma.asarray(image.get_array(), float), np.nan)
            yield f"image {place}.{number}", f"{pixels.shape}, {_in_short(pixels.ravel())}"


def _in_short(*columns: Iterable[float]) -> str:
    """Return each column's numbers in two digits; of many the first, the last, and the mean of all."""
    return "; ".join(", ".join(_numbers(np.asarray(column, float))) for column in columns)


def _numbers(column: np.ndarray) -> Iterator[str]:
    if len(column) <= 8:
        yield from (f"{each:.2g}" for each in column)
    else:
        yield from (f"{column[0]:.2g}", "…", f"{column[-1]:.2g}", f"mean {np.nanmean(column):.2g}")


def readable(page: str) -> str:
    """Return the text of some HTML, without tags and style sheets."""
    return " ".join(html.unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)).split())


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at
