"""Turn a matplotlib figure into the picture that a page shows, fast enough to follow a slider."""

from __future__ import annotations

import base64
import io
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np
from markupsafe import Markup
from matplotlib.artist import Artist
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import LogFormatter
from PIL import Image

from amp_lessons._base.drawing.style import INK, PAPER_STYLE, POWERS, house_style

DPI = 120
PX_PER_INCH = 100  # CSS pixels, where the page is wide enough
LEGIBLE_PX = 11


class Picture:
    """A figure of which only some artists move.

    What stands still (axes, ticks, zones) is drawn once and kept; each new frame draws the moving artists
    over it. That is four times cheaper than drawing the figure again, and lets a picture follow a key press.
    The technique is matplotlib's own: https://matplotlib.org/stable/users/explain/animations/blitting.html
    """

    def __init__(
        self, figure: Figure, moving: Sequence[Artist] = (), narrow: Callable[[], Picture] | None = None
    ) -> None:
        """Keep ``figure``; ``moving`` are the artists that change from frame to frame.

        ``narrow`` makes another picture of the same, which a phone shows where figures are drawings.
        """
        self.figure = figure
        for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
            if isinstance(axis.get_major_formatter(), LogFormatter):
                axis.set_tick_params(which="both", labelsize=POWERS)
        self._make_narrow = narrow
        self.moving = tuple(moving)
        for artist in self.moving:
            artist.set_animated(True)
        figure.set_dpi(DPI)
        self._canvas = FigureCanvasAgg(figure)
        self._background: object | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Return the width and height in CSS pixels."""
        width, height = self.figure.get_size_inches()
        return round(width * PX_PER_INCH), round(height * PX_PER_INCH)

    @cached_property
    def narrow(self) -> Picture | None:
        """Return the picture for a phone, made when it is first asked for; None where there is none."""
        return self._make_narrow() if self._make_narrow else None

    @cached_property
    def narrowest(self) -> int:
        """Return the width in CSS pixels below which its smallest text cannot be read; its own at most."""
        width, _ = self.size
        texts = [text for text in _texts(self.figure) if text.get_visible() and text.get_text()]
        smallest_px = min((float(text.get_fontsize()) for text in texts), default=100.0) * PX_PER_INCH / 72
        return min(width, math.ceil(width * LEGIBLE_PX / smallest_px))

    def pixels(self) -> np.ndarray:
        """Draw the current frame and return it as (height, width, 3) bytes."""
        return np.asarray(self._frame())

    def png(self, caption: str = "") -> bytes:
        """Return the current frame as a PNG, with the caption below it if there is one."""
        frame = self._frame()
        return encode_png(with_caption(frame, caption) if caption else frame)

    def _frame(self) -> Image.Image:
        with house_style():
            if self._background is None:
                self._canvas.draw()
                self._background = self._canvas.copy_from_bbox(self.figure.bbox)
            else:
                self._canvas.restore_region(self._background)
            for artist in self.moving:
                self.figure.draw_artist(artist)
        size = self._canvas.get_width_height()
        return Image.frombuffer("RGBA", size, self._canvas.buffer_rgba(), "raw", "RGBA", 0, 1).convert("RGB")


def _texts(artist: Artist) -> Iterator[Text]:
    """Yield the texts below an artist; axes that are off would first have to make their ticks, unseen."""
    for child in artist.get_children():
        if isinstance(child, Text):
            yield child
        elif not isinstance(child, Axis) or child.axes.axison:
            yield from _texts(child)


def encode_png(image: Image.Image) -> bytes:
    """Return an image as a PNG, compressed quickly rather than well."""
    buffer = io.BytesIO()
    image.save(buffer, "png", compress_level=1)
    return buffer.getvalue()


def with_caption(frame: Image.Image, caption: str) -> Image.Image:
    """Return ``frame`` with the caption on a white strip below it.

    GitHub shows a stored picture without the text beside it, so a stored picture carries its own.
    """
    return Image.fromarray(np.vstack([np.asarray(frame), caption_strip(caption, frame.width)]))


def without_caption(picture: Image.Image, caption: str) -> Image.Image:
    """Return what ``with_caption`` made without the strip that it added."""
    strip = caption_strip(caption, picture.width)
    return picture.crop((0, 0, picture.width, picture.height - len(strip)))


def caption_strip(caption: str, width_px: int) -> np.ndarray:
    """Return a white strip of ``width_px`` with the caption on it, as (height, width, 3) bytes."""
    width = max(20, round(width_px / DPI * 13))
    lines = [piece for line in caption.splitlines() for piece in textwrap.wrap(line, width)]
    figure = Figure(figsize=((width_px + 0.5) / DPI, 0.22 * len(lines) + 0.12), dpi=DPI)
    canvas = FigureCanvasAgg(figure)
    with house_style():
        figure.text(0.012, 0.5, "\n".join(lines), color=INK, fontsize=10, va="center", linespacing=1.4)
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]


def picture_html(
    picture: Picture,
    caption: str,
    alt: str,
    *,
    in_short: str = "",
    faded: bool = False,
    announced: bool = True,
) -> Markup:
    """Return the HTML of a picture: the image with its alternative text, and the caption below it.

    Above it stands what is said ``in_short``, in bold.
    The image keeps its place while the next one loads (``aspect-ratio``), so the page never jumps. Where the
    page is too narrow to read it, it scrolls. It is ``faded`` while it shows something else than the caption
    speaks of. A screen reader speaks a new caption if it is ``announced``.
    """
    width, height = picture.size
    return Markup(
        '{paper}<figure class="amp-picture" style="display:grid;grid-template-columns:minmax(0,1fr);margin:0;'
        'max-width:{width}px">{verdict}{box}'
        '<img alt="{alt}" class="amp-paper" src="data:image/png;base64,{source}" '
        'style="display:block;width:100%;min-width:{narrowest}px;aspect-ratio:{width}/{height};'
        'border-radius:4px{opacity}"></div>'
        '<figcaption aria-live="{live}" style="{style}">{caption}</figcaption></figure>'
    ).format(
        paper=PAPER_STYLE,
        verdict=_IN_SHORT.format(CAPTION_STYLE, in_short) if in_short else "",
        box=SCROLLING_BOX,
        alt=alt,
        source=base64.b64encode(picture.png()).decode(),
        width=width,
        height=height,
        narrowest=picture.narrowest,
        opacity=";opacity:0.3" if faded else "",
        live="polite" if announced else "off",
        style=CAPTION_STYLE,
        caption=caption,
    )


_IN_SHORT = Markup('<p class="amp-in-short" aria-live="polite" style="margin:0;font-weight:600;{}">{}</p>')

# Its arrow keys are its own: JupyterLab would move between cells.
SCROLLING_BOX = Markup(
    '<div class="amp-scroll" style="overflow-x:auto" tabindex="0" role="group" aria-label="Picture" '
    "onkeydown=\"event.key.startsWith('Arrow') &amp;&amp; event.stopPropagation()\">"
)


def sentence_html(sentence: str) -> Markup:
    """Return the HTML of a caption that has no picture."""
    return Markup('<p aria-live="polite" style="margin:0;{}">{}</p>').format(CAPTION_STYLE, sentence)


# Ink and paper come in pairs, so that outside JupyterLab a dark page does not lie under dark words.
CAPTION_STYLE = (
    "padding:6px 4px;font-size:14px;line-height:1.45;overflow-wrap:anywhere;"
    "color:var(--jp-content-font-color1,#222);background:var(--jp-layout-color0,#fff)"
)
