"""A picture on the page of which only some shapes move: drawn once, then followed by the shapes' outlines.

A PNG of every frame would have to be drawn, encoded, sent, decoded and painted. Of a histogram only the bars
move, and where they end is a few kilobytes of text: the browser paints the rest, which it has already.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.path import Path as Outline

from amp_lessons.views.base.picture import CAPTION_STYLE, SCROLLING_BOX, Picture
from amp_lessons.views.base.style import PAPER_STYLE, house_style
from amp_lessons.views.base.view import View

SVG_DPI = 72  # matplotlib writes SVG in points
_COMMANDS = {Outline.MOVETO: "M%.2f %.2f", Outline.LINETO: "L%.2f %.2f", Outline.CLOSEPOLY: "Z"}


class MovingPage(anywidget.AnyWidget):
    """Where a view shows a picture whose ``moving`` artists are patches, and the caption below it."""

    _esm = Path(__file__).with_name("moving.js")
    _css = Path(__file__).with_name("moving.css")
    drawing = traitlets.Unicode().tag(sync=True)
    box = traitlets.Unicode(PAPER_STYLE + SCROLLING_BOX, read_only=True).tag(sync=True)
    outlines: Any = traitlets.Dict().tag(sync=True)
    caption = traitlets.Unicode().tag(sync=True)
    alt = traitlets.Unicode().tag(sync=True)
    width = traitlets.Int().tag(sync=True)
    narrowest = traitlets.Int().tag(sync=True)
    caption_style = traitlets.Unicode(CAPTION_STYLE, read_only=True).tag(sync=True)

    def __init__(self) -> None:
        """Begin with nothing on the page."""
        super().__init__()
        self._drawn: Picture | None = None

    def show(self, picture: Picture | None, caption: str, alt: str) -> None:
        """Put picture and caption on the page, in one message; draw only what is not there yet."""
        with self.hold_sync():
            self.caption, self.alt = caption, alt
            if picture is None:
                return
            if picture is not self._drawn:
                self._drawn, self.drawing = picture, svg(picture)
                self.width, self.narrowest = picture.size[0], picture.narrowest
            self.outlines = {_name(k): svg_outline(patch) for k, patch in enumerate(picture.moving)}


class MovingView(View):
    """A view whose picture follows a slider: its ``moving`` artists must be patches of straight lines."""

    def new_page(self) -> MovingPage:
        """Return a page on which only outlines move."""
        return MovingPage()

    def turn_page(self) -> None:
        """Send the outlines and the caption."""
        self._page.show(self.picture, self.caption, self.alt)


def svg(picture: Picture) -> str:
    """Return the picture as an SVG element, in which each moving patch is a group that bears its name."""
    for k, patch in enumerate(picture.moving):
        patch.set_gid(_name(k))
    page = io.StringIO()
    with house_style():
        # Without a salt every drawing names its clips and hatches differently, as it must: they share a page.
        picture.figure.savefig(page, format="svg", metadata={"Date": None, "Creator": None})
    _, element, rest = page.getvalue().partition("<svg")
    return element + rest


def svg_outline(patch: Artist) -> str:
    """Return where a patch made of straight lines is drawn in its figure's SVG, as a path's ``d``."""
    figure = patch.get_figure(root=True)
    assert isinstance(patch, Patch)
    assert isinstance(figure, Figure)
    outline = patch.get_transform().transform_path(patch.get_path())
    codes = np.asarray(outline.codes)
    points = np.asarray(outline.vertices) * (SVG_DPI / figure.dpi)
    points[:, 1] = figure.get_figheight() * SVG_DPI - points[:, 1]
    drawn = points[codes != Outline.CLOSEPOLY]  # whose point means nothing
    return "".join(map(_COMMANDS.__getitem__, codes.tolist())) % tuple(drawn.ravel().tolist())


def _name(k: int) -> str:
    return f"amp-moving-{k}"
