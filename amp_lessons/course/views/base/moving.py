"""A picture on the page of which only some shapes move: drawn once, then followed by the shapes' outlines.

A PNG of every frame would have to be drawn, encoded, sent, decoded and painted. Of a histogram only the bars
move, and where they end is a few kilobytes of text: the browser paints the rest, which it has already.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import anywidget
import numpy as np
import traitlets
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path as Outline

from amp_lessons._base.drawing.picture import CAPTION_STYLE, SCROLLING_BOX, Picture
from amp_lessons._base.drawing.style import PAPER_STYLE, ZONES, house_style
from amp_lessons.course.views.base.view import View

P = TypeVar("P", bound=Picture)
SVG_DPI = 72  # matplotlib writes SVG in points
_COMMANDS = {Outline.MOVETO: "M%.2f %.2f", Outline.LINETO: "L%.2f %.2f", Outline.CLOSEPOLY: "Z"}


class Goal(NamedTuple):
    """One of the two ends of a range that a task asks for; the page remembers those that were found.

    ``of`` says what it is an end of, ``said`` which one it is. ``at`` is where it lies on the slider, from 0
    to 1, ``words`` what it is called.
    """

    of: str = ""
    said: str = ""
    at: float = 0.0
    words: str = ""


NO_GOAL = Goal()


class MovingPage(anywidget.AnyWidget):
    """Where a view shows a picture whose ``moving`` artists are patches, and the caption below it."""

    _esm = Path(__file__).with_name("moving.js")
    _css = Path(__file__).with_name("moving.css")
    drawing = traitlets.Unicode().tag(sync=True)
    box = traitlets.Unicode(PAPER_STYLE + SCROLLING_BOX, read_only=True).tag(sync=True)
    outlines: Any = traitlets.Dict().tag(sync=True)
    caption = traitlets.Unicode().tag(sync=True)
    in_short = traitlets.Unicode().tag(sync=True)
    goal: Any = traitlets.List(default_value=[*NO_GOAL]).tag(sync=True)
    alt = traitlets.Unicode().tag(sync=True)
    width = traitlets.Int().tag(sync=True)
    narrowest = traitlets.Int().tag(sync=True)
    caption_style = traitlets.Unicode(CAPTION_STYLE, read_only=True).tag(sync=True)

    def __init__(self) -> None:
        """Begin with nothing on the page.

        ``for_phones`` says whether a picture's narrow drawing is put there, too: it costs time at each step.
        """
        super().__init__()
        self.for_phones = False
        self._drawn: tuple[Picture, bool] | None = None

    def show(
        self, picture: Picture | None, caption: str, alt: str, in_short: str = "", goal: Goal = NO_GOAL
    ) -> None:
        """Put picture and caption on the page, in one message; draw only what is not there yet."""
        with self.hold_sync():
            self.caption, self.alt, self.in_short, self.goal = caption, alt, in_short, list(goal)
            if picture is None:
                return
            if self._drawn != (picture, self.for_phones):
                self._drawn, self.drawing = (picture, self.for_phones), svg(picture, self.for_phones)
                self.width, self.narrowest = picture.size[0], picture.narrowest
            self.outlines = {name: svg_outline(patch) for name, patch in _moving(picture, self.for_phones)}


class MovingView(View):
    """A view whose picture follows a slider: its ``moving`` artists must be patches of straight lines."""

    goal: Goal = NO_GOAL
    _drawn: tuple[object, Any] | None = None

    def picture_of(self, what: object, draw: Callable[[], P]) -> P:
        """Return the picture that was drawn for ``what``, or let another be drawn, whose axes fit it."""
        if self._drawn is None or self._drawn[0] != what:
            self._drawn = what, draw()
        return self._drawn[1]

    def new_page(self) -> MovingPage:
        """Return a page on which only outlines move."""
        return MovingPage()

    def turn_page(self) -> None:
        """Send the outlines and the caption."""
        self._page.show(self.picture, self.caption, self.alt, self.in_short, self.goal)


def svg(picture: Picture, for_phones: bool = True) -> str:
    """Return the picture as an SVG element, in which each moving patch is a group that bears its name.

    ``for_phones``, a narrow one stands behind it where there is one: ``moving.css`` shows the one that fits.
    """
    for name, patch in _moving(picture, for_phones):
        patch.set_gid(name)
    narrow = picture.narrow if for_phones else None
    return _svg(picture) + (_svg(narrow) if narrow else "")


def _svg(picture: Picture) -> str:
    page = io.StringIO()
    with house_style():
        # Without a salt every drawing names its clips and hatches differently, as it must: they share a page.
        picture.figure.savefig(page, format="svg", metadata={"Date": None, "Creator": None})
    _, element, rest = page.getvalue().partition("<svg")
    drawing = _SHEET.sub("", element + rest).replace("<svg", f"<svg {_LINES}", 1)
    return _HATCH.sub(_dots_as_dashes, drawing)


# A style sheet in a drawing is one of the whole page: all of it would be styled anew with each drawing.
_SHEET = re.compile(
    r"\s*<defs>\s*<style[^>]*>\*{stroke-linejoin: round; stroke-linecap: butt}</style>\s*</defs>"
)
_LINES = 'style="stroke-linejoin: round; stroke-linecap: butt"'
_HATCH = re.compile(r'(<pattern [^>]*>\s*<rect [^>]*>\s*)<path d="([^"]*)" style="([^"]*)"/>')
_POINT = re.compile(r"(-?[\d.]+) (-?[\d.]+)")


def _dots_as_dashes(hatch: re.Match[str]) -> str:
    """Return a hatch of dots with each row of them as a line, dashed so that only its round ends are left.

    matplotlib draws each dot of a square inch as eight curves: 250 KB, three quarters of a drawing.
    """
    around, path, style = hatch.groups()
    if "C" not in path:  # made of lines: they are few
        return hatch[0]
    outlines = [np.array(_POINT.findall(dot), float) for dot in path.split("M")[1:]]
    dots = np.array([(points.min(0) + points.max(0)) / 2 for points in outlines]).round(3)
    rows = [dots[dots[:, 1] == y] for y in np.unique(dots[:, 1])]
    step = rows[0][1, 0] - rows[0][0, 0]
    lines = "".join(f"M{row[0, 0]:g} {row[0, 1]:g}h{step * len(row):g}" for row in rows)
    stroke = dict(part.split(": ") for part in style.split("; "))
    width = float(stroke["stroke-width"]) + float(np.ptp(outlines[0][:, 0]))
    dashes = f"stroke: {stroke['stroke']}; stroke-width: {width:g}; stroke-dasharray: 0 {step:g}"
    return f'{around}<path d="{lines}" style="{dashes}; stroke-linecap: round"/>'


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


def _moving(picture: Picture, for_phones: bool) -> Iterator[tuple[str, Artist]]:
    """Yield what moves in a picture and, ``for_phones``, in the narrow one of it, each with a name."""
    narrow = picture.narrow if for_phones else None
    patches = (*picture.moving, *(narrow.moving if narrow else ()))
    yield from ((f"amp-moving-{k}", patch) for k, patch in enumerate(patches))


Points = Sequence[tuple[float, float]]


class MovingLines:
    """Lines on ``axes``, each through points of its own, in data coordinates; all of one style.

    They lie above the grid and lines that stand still, on a page as in a PNG.
    """

    def __init__(self, axes: Axes, **style: Any) -> None:
        """Draw nothing yet; ``style`` is that of a ``PathPatch``."""
        self.artist = PathPatch(_path([[(0.0, 0.0)]]), **{"fill": False, "zorder": 3, **style})
        axes.add_patch(self.artist)

    def update(self, *lines: Points) -> None:
        """Draw these lines, each of at least one point, instead of those that are there."""
        self.artist.set_path(_path(lines or [[(0.0, 0.0)]]))


class MovingMark:
    """A diamond that is always of one size, wherever it is on axes that may be logarithmic."""

    def __init__(self, axes: Axes, size: float = 0.018, **style: Any) -> None:
        """Draw nothing yet; ``size`` is half of its width, as a part of that of ``axes``."""
        self._axes = axes
        width, height = axes.get_window_extent().size
        self._arms = np.array([(1, 0), (0, width / height), (-1, 0), (0, -width / height), (1, 0)]) * size
        self.artist = PathPatch(_path([[(0.0, 0.0)]]), zorder=5, **style)
        axes.add_patch(self.artist)
        self.artist.set_transform(axes.transAxes)

    def update(self, *points: tuple[float, float]) -> None:
        """Put a mark at each of these points, in data coordinates."""
        to_axes = self._axes.transData + self._axes.transAxes.inverted()
        centres = to_axes.transform(np.reshape(points, (-1, 2)).astype(float))
        self.artist.set_path(_path([self._arms + centre for centre in centres] or [[(-1.0, -1.0)]]))


Fates = Mapping[str, Mapping[int, int]]


class FateBars:
    """One bar per binade from ``2**low`` to ``2**high``, of parts that can be moved.

    The outermost bars also count what lies beyond them.
    """

    def __init__(self, axes: Axes, low: int, high: int, seen: float = 0.0) -> None:
        """Draw bars of no height; what overflows will be as high as this part of the tallest, at least."""
        self._low, self._high, self._seen = low, high, seen
        edges, nothing = np.arange(low, high + 1), np.zeros(high - low)
        self._parts = {
            fate: axes.stairs(
                nothing, edges, fill=True, facecolor=zone.colour, edgecolor="white", hatch=zone.hatch
            )
            for fate, zone in ZONES.items()
        }
        self.artists = [*self._parts.values()]

    def name(self, axes: Axes, **names: str) -> None:
        """Draw a legend above ``axes``; ``names`` are those of fates that are called otherwise here."""
        labels = [names.get(fate, zone.name) for fate, zone in ZONES.items()]
        axes.legend(
            self.artists,
            labels,
            loc="lower left",
            bbox_to_anchor=(-0.01, 1),
            ncols=len(labels),
            handlelength=1.4,
        )

    def update(self, fates: Fates, total: int, shift: float = 0) -> np.ndarray:
        """Move the bars to these counts, in % of ``total``, and return how high they are.

        Binades are moved ``shift`` to the right.
        """
        shares = {fate: np.zeros(self._high - self._low) for fate in self._parts}
        for fate, share in shares.items():
            for binade, count in fates.get(fate, {}).items():
                column = min(max(math.floor(binade + shift), self._low), self._high - 1) - self._low
                share[column] += 100 * count / max(total, 1)
        lost, least = shares["overflowed"], self._seen * max(map(np.max, shares.values()))
        shares["overflowed"] = np.where(lost > 0, np.maximum(lost, least), 0)
        floor = np.zeros(self._high - self._low)
        for fate, part in self._parts.items():
            top = floor + shares[fate]
            part.set_data(top, baseline=floor)  # type: ignore[arg-type]
            floor = top
        return floor


def _path(lines: Any) -> Outline:
    codes = [code for line in lines for code in (Outline.MOVETO, *[Outline.LINETO] * (len(line) - 1))]
    return Outline(np.concatenate([np.reshape(line, (-1, 2)) for line in lines]), codes)
