"""Of every picture that a test shows, in every state: it fits beside a file browser, and all can be read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from matplotlib.legend import Legend
from matplotlib.text import Text

from amp_lessons._base.drawing.picture import LEGIBLE_PX, PX_PER_INCH, Picture
from amp_lessons._base.drawing.style import house_style
from amp_lessons.course.views.base.view import View

WIDEST = 820  # CSS pixels that JupyterLab leaves a picture on a screen of 1280, beside its file browser
PAGE = 878  # CSS pixels that a page leaves a picture on a screen of 1280, in a fold
PHONE = 360  # CSS pixels that a page leaves a picture on a phone
EXPONENT = 0.7  # of a text's size, in matplotlib
NEAR = 2  # pixels by which boxes may touch: they are higher than the words in them


@pytest.fixture(autouse=True)
def pictures_are_whole(monkeypatch):
    """Look at each picture as it is shown, and fail at the end with what is wrong with any of them."""
    wrong: list[str] = []
    show = View.show

    def shown(view, picture, *args, **kwargs):
        show(view, picture, *args, **kwargs)
        wrong.extend(f"{type(view).__name__}: {each}" for each in faults(picture))

    monkeypatch.setattr(View, "show", shown)
    yield
    assert not wrong, wrong[:5]


def faults(picture: Picture) -> Iterator[str]:
    """Yield what makes a picture too wide, and words that leave it or lie on others."""
    if picture.narrowest > WIDEST:
        yield f"cannot be read on {WIDEST} pixels: it needs {picture.narrowest}"
    width, height = picture.pixels().shape[1::-1]
    boxes = list(_boxes(picture))
    for text, box in boxes:
        if box.x0 < -NEAR or box.y0 < -NEAR or box.x1 > width + NEAR or box.y1 > height + NEAR:
            yield f"{text.get_text()!r} leaves the picture"
    shown = min(1.0, PAGE / picture.size[0]) * PX_PER_INCH / 72
    for text, _ in boxes:
        if "^{" in text.get_text() and text.get_fontsize() * EXPONENT * shown < LEGIBLE_PX:
            yield f"the exponent of {text.get_text()!r} cannot be read"
    for (text, box), (other, beside) in itertools.combinations(boxes, 2):
        across = min(box.x1, beside.x1) - max(box.x0, beside.x0)
        if across > NEAR and min(box.y1, beside.y1) - max(box.y0, beside.y0) > NEAR:
            yield f"{text.get_text()!r} lies on {other.get_text()!r}"
    yield from _below_a_legend(picture)


def faults_for_a_phone(picture: Picture) -> Iterator[str]:
    """Yield what is wrong with a narrow drawing where it is as wide as a phone."""
    if max(picture.size[0], picture.narrowest) > PHONE:
        yield f"too wide for a phone: {picture.size}, and it needs {picture.narrowest}"
    yield from faults(picture)


def _boxes(picture: Picture):
    not_drawn = set(_beyond_the_ends(picture))
    with house_style():
        for text in picture.figure.findobj(Text):
            if text.get_visible() and text.get_text().strip() and text not in not_drawn:
                yield text, text.get_window_extent()


def _below_a_legend(picture: Picture) -> Iterator[str]:
    """Yield the curves that run through the legend of a picture."""
    for legend in picture.figure.findobj(Legend):
        box = legend.get_window_extent().padded(-NEAR)
        for axes in picture.figure.axes:
            for line in axes.lines:
                drawn = line.get_transform().transform_path(line.get_path().interpolated(20)).vertices
                if any(box.contains(*point) and axes.bbox.contains(*point) for point in drawn):
                    yield f"a legend lies on the curve {line.get_label()!r}"


def _beyond_the_ends(picture: Picture) -> Iterator[Text]:
    """Yield the labels of ticks that an axis has and, beyond its ends, does not draw."""
    for axes in picture.figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = (*axis.get_major_ticks(), *axis.get_minor_ticks())
            for tick in ticks if axes.axison else ():
                if not low <= tick.get_loc() <= high:
                    yield from (tick.label1, tick.label2)
