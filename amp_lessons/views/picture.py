"""Turn a matplotlib figure into the picture that a page shows, fast enough to follow a slider."""

from __future__ import annotations

import base64
import html
import io
import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from .style import INK, house_style

LIVE_DPI = 120


class Picture:
    """A figure of which only some artists move.

    What stands still (axes, ticks, zones) is drawn once and kept; each new frame draws the moving artists
    over it. That is four times cheaper than drawing the figure again, and lets a picture follow a key press.
    The technique is matplotlib's own: https://matplotlib.org/stable/users/explain/animations/blitting.html
    """

    def __init__(self, figure: Figure, moving: Sequence[Artist] = ()) -> None:
        """Keep ``figure``; ``moving`` are the artists that change from frame to frame."""
        self.figure = figure
        self._moving = list(moving)
        for artist in self._moving:
            artist.set_animated(True)
        figure.set_dpi(LIVE_DPI)
        self._canvas = FigureCanvasAgg(figure)
        self._background: object | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Return the width and height in CSS pixels."""
        width, height = self.figure.get_size_inches()
        return round(width * 100), round(height * 100)

    def redraw(self) -> None:
        """Forget the kept background: something that stands still has changed."""
        self._background = None

    def pixels(self) -> np.ndarray:
        """Draw the current frame and return it as (height, width, 3) bytes."""
        with house_style():
            if self._background is None:
                self._canvas.draw()
                self._background = self._canvas.copy_from_bbox(self.figure.bbox)
            else:
                self._canvas.restore_region(self._background)
            for artist in self._moving:
                self.figure.draw_artist(artist)
        return np.asarray(self._canvas.buffer_rgba())[..., :3]

    def png(self, caption: str = "") -> bytes:
        """Return the current frame as a PNG, with the caption below it if there is one."""
        frame = self.pixels()
        return encode_png(np.vstack([frame, caption_strip(caption, frame.shape[1])]) if caption else frame)


def encode_png(pixels: np.ndarray) -> bytes:
    """Return (height, width, 3) bytes as a PNG, compressed quickly rather than well."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "png", compress_level=1)
    return buffer.getvalue()


def caption_strip(caption: str, width_px: int) -> np.ndarray:
    """Return a white strip of ``width_px`` with the caption on it, as (height, width, 3) bytes.

    GitHub shows a stored picture without the text beside it, so a stored picture carries its own.
    """
    lines = textwrap.wrap(caption, max(20, round(width_px / LIVE_DPI * 13)))
    figure = Figure(figsize=((width_px + 0.5) / LIVE_DPI, 0.22 * len(lines) + 0.12), dpi=LIVE_DPI)
    canvas = FigureCanvasAgg(figure)
    with house_style():
        figure.text(0.012, 0.5, "\n".join(lines), color=INK, fontsize=10, va="center", linespacing=1.4)
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]


def picture_html(png: bytes, caption: str, alt: str, size: tuple[int, int]) -> str:
    """Return the HTML of a picture: the image with its alternative text, and the caption below it.

    The image keeps its place while the next one loads (``aspect-ratio``), so the page never jumps.
    """
    width, height = size
    source = base64.b64encode(png).decode()
    return (
        f'<figure class="amp-picture" style="margin:0;max-width:{width}px">'
        f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{source}" '
        f'style="display:block;width:100%;aspect-ratio:{width}/{height};border-radius:4px">'
        f'<figcaption aria-live="polite" style="{CAPTION_STYLE}">{html.escape(caption)}</figcaption></figure>'
    )


CAPTION_STYLE = "padding:6px 4px;font-size:14px;line-height:1.45;color:var(--jp-content-font-color1,#222)"
