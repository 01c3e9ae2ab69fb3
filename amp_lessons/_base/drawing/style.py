"""One palette, one way to draw a zone and one way to show a dtype, for every picture of the course.

The colours are those of Okabe and Ito (2008), which people with any common colour vision deficiency can tell
apart. No meaning rests on colour alone: every zone also has a hatch and a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

INK = "#222222"
QUIET = "#6b7280"
GRID = "#e5e7eb"
PAPER = "#ffffff"
ACCENT = "#0072B2"


@dataclass(frozen=True)
class Zone:
    """What becomes of a value in a format, and how every picture draws it."""

    name: str
    verb: str
    colour: str
    hatch: str

    @property
    def tint(self) -> tuple[float, float, float]:
        """Return the pale version of the colour that fills a zone's background (RGB, 0 to 1)."""
        return tint(self.colour)


def tint(colour: str, strength: float = 0.14) -> tuple[float, float, float]:
    """Return a pale version of a colour, on which ink is easy to read (RGB, 0 to 1)."""
    red, green, blue = mpl.colors.to_rgb(colour)
    return (1 - (1 - red) * strength, 1 - (1 - green) * strength, 1 - (1 - blue) * strength)


def text_on(colour: str) -> str:
    """Return the colour of text, ink or paper, that is easier to read on ``colour``."""
    red, green, blue = mpl.colors.to_rgb(colour)
    return PAPER if 0.299 * red + 0.587 * green + 0.114 * blue < 0.5 else INK


ZONES = {
    "underflowed": Zone("becomes zero", "vanish", "#D55E00", "////"),
    "subnormal": Zone("subnormal", "lose bits", "#E69F00", "...."),
    "normal": Zone("normal", "survive", "#56B4E9", ""),
    "overflowed": Zone("overflow", "overflow", "#5b2a6e", "xxxx"),
}

DTYPE_COLOURS = {
    "fp64": "#6b7280",
    "fp32": "#0072B2",
    "tf32": "#56B4E9",
    "fp16": "#CC79A7",
    "bf16": "#009E73",
    "fp8_e4m3": "#D55E00",
    "fp8_e5m2": "#E69F00",
    "fp8_e4m3fnuz": "#A04600",
    "fp8_e5m2fnuz": "#A87400",
    "fp4_e2m1": "#7B4B2A",
    "e8m0": "#5B2A6E",
}

# Dark enough for white digits on them: contrast 5:1 and more
FIELD_COLOURS = {"sign": "#A63C00", "exponent": "#00694D", "mantissa": "#0060A0"}

# How a check ended. A word says the same beside it.
STATUS_COLOURS = {"passed": "#00694D", "not passed": "#A63C00", "not attempted yet": QUIET}

# What autocast does to an operation, as ``autocast.RULES`` words it.
RULE_COLOURS = {
    "lower precision": "#CC79A7",
    "fp32": "#0072B2",
    "widest input dtype": "#E69F00",
    "banned": "#D55E00",
    "in no list": QUIET,
}

# What the memory of a training step is for. Blues are what autocast leaves in fp32.
KIND_COLOURS = {
    "parameters": "#0072B2",
    "gradients": "#4C9CCB",
    "optimizer state": "#99C7E0",
    "saved activations": "#E69F00",
    "weight copies": "#F2CF80",
    "temporary": "#9ca3af",
    "workspace": "#d1d5db",
    "buffers": "#d1d5db",
    "inputs": "#d1d5db",
}


def dtype_colour(name: str) -> str:
    """Return the colour of a dtype by its short name; what is no number format is grey."""
    return DTYPE_COLOURS.get(name, QUIET)


# Two runs may lie on top of each other, which is often the point: width and dashes keep both in sight.
STROKES: tuple[dict[str, Any], ...] = (
    {"color": ACCENT, "lw": 5, "alpha": 0.55},
    {"color": ZONES["underflowed"].colour, "lw": 2, "ls": (0, (5, 2))},
    {"color": INK, "lw": 1.4, "ls": (0, (3, 4))},
    {"color": "#009E73", "lw": 2, "ls": (0, (1, 1.5))},
    {"color": "#CC79A7", "lw": 2, "ls": (0, (6, 2, 1, 2))},
)

# From nothing lost to all lost; what is not known has a colour that lies on no way between them.
LOST = LinearSegmentedColormap.from_list("lost", [PAPER, "#E69F00", "#D55E00", "#5b1f00"])
UNKNOWN = GRID

_SCROLL_SHADOW = """
 linear-gradient(to right, PAGE 40%, transparent) left / 2.5rem 100% no-repeat local,
 linear-gradient(to left, PAGE 40%, transparent) right / 2.5rem 100% no-repeat local,
 linear-gradient(to right, transparent 1px, #767d8988 1px, transparent) left / 0.8rem 100% no-repeat scroll,
 linear-gradient(to left, transparent 1px, #767d8988 1px, transparent) right / 0.8rem 100% no-repeat scroll"""


def scroll_shadow(page: str) -> str:
    """Return the layers of a CSS background that show, on a page of a colour, where more lies sideways."""
    return _SCROLL_SHADOW.replace("PAGE", page)


# How what is drawn on paper looks on a dark page: paper and ink change places, and a colour that means
# something stays light enough to be told from the others. Black for white alone would turn amber brown, and
# pale zones alike. There are two steps, each cut off at 0 and 1: rows for red, green and blue, of factors of
# the three, and of what is added. They were fitted, by least squares in OKLab, to colours chosen for paper
# (that of the site's dark page), ink, greys, zones and dtypes; ``test_style`` says what they must do.
ON_DARK = (
    ((1.39, -1.21, -1.11, 0.93), (-0.54, -0.92, 1.09, 0.72), (-0.4, 0.95, -0.58, 0.77)),
    ((0.84, 0.22, 0.06, -0.035), (0.52, 0.82, 1.35, -1.192), (0.37, 1.26, 0.34, -0.583)),
)


def _matrix(rows: tuple[tuple[float, ...], ...]) -> str:
    values = " ".join(f"{red} {green} {blue} 0 {added}" for red, green, blue, added in rows)
    return f"%3CfeColorMatrix values='{values} 0 0 0 1 0'/%3E"


# Safari takes no filter from an address, and is known by a font that it alone has.
DARK_PAPER = (
    'filter: invert(0.93) hue-rotate(180deg); @supports not (font: -apple-system-body) { filter: url("data:'
    "image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg'%3E%3Cfilter id='dark' "
    f"color-interpolation-filters='sRGB'%3E{''.join(map(_matrix, ON_DARK))}%3C/filter%3E%3C/svg%3E#dark\") }}"
)

# It is one rule for JupyterLab, VS Code and Colab, and goes with what it is about, for each output may be a
# page by itself. In JupyterLab and on the site what is wider than the page has a shadow where more of it
# lies: below what is moved sideways, and showing through the paper.
PAPER_STYLE = Markup(
    """<style>
:is([data-jp-theme-light=false], .vscode-dark, [theme=dark]) .amp-paper { DARK_PAPER }
[data-jp-theme-light] .amp-scroll { --page: var(--paper, var(--jp-layout-color0)); background:%s }
[data-jp-theme-light=true] .amp-scroll :is(img, svg) { mix-blend-mode: darken }
[data-jp-theme-light=false] .amp-scroll :is(img, svg) { mix-blend-mode: lighten }
</style>""".replace("%s", scroll_shadow("var(--page)")).replace("DARK_PAPER", DARK_PAPER)
)

# The smallest type, in points: 11 pixels where a picture 9 inches wide is shown on 820 pixels, which
# JupyterLab leaves beside its file browser on a screen of 1280.
SMALL = 8.7

# Powers beside an axis: their exponents, 0.7 times as large, have 11 pixels there, too.
POWERS = 12.5

RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.edgecolor": QUIET,
    "axes.formatter.use_mathtext": True,  # an exponent beside an axis is raised, as everywhere
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "figure.facecolor": PAPER,
    "hatch.linewidth": 0.7,
    "legend.frameon": False,
    "savefig.facecolor": PAPER,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def size_that_fits(text: str, room_in: float, most: float) -> float:
    """Return the size in points, ``most`` or less, at which bold text takes ``room_in`` inches at most.

    It is never less than can be read.
    """
    return max(SMALL, most * min(1.0, room_in * 72 / _points_wide(text, most, "bold")))


def end_that_fits(text: str, room_in: float, size: float) -> str:
    """Return the end of a dotted name, which tells most, that takes ``room_in`` inches at most."""
    start = 0
    shown = text
    while _points_wide(shown, size) > room_in * 72:
        start += 1
        shown = f"…{text[start:]}"
    return shown


@lru_cache(maxsize=4096)  # a view that is stepped through writes the same names at each step
def _points_wide(text: str, size: float, weight: str = "normal") -> float:
    drawn = TextPath((0, 0), text, size=size, prop=FontProperties(family="DejaVu Sans", weight=weight))
    return float(drawn.get_extents().width)


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the house's style inside the block, and leave the learner's own settings alone."""
    with mpl.rc_context(RC):
        yield
