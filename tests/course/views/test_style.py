import itertools
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from amp_lessons._base.drawing.style import (
    DTYPE_COLOURS,
    FIELD_COLOURS,
    INK,
    ON_DARK,
    PAPER,
    QUIET,
    STATUS_COLOURS,
    ZONES,
    dtype_colour,
)
from amp_lessons.course.site.build import ASSETS
from amp_lessons.course.views import base
from amp_lessons.formats import FORMATS


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_a_colour_of_its_own(name):
    assert dtype_colour(name) == DTYPE_COLOURS[name] != QUIET
    assert list(DTYPE_COLOURS.values()).count(DTYPE_COLOURS[name]) == 1


def test_what_is_no_number_format_is_grey():
    assert dtype_colour("int64") == QUIET


SOURCES = [path for path in Path(base.__file__).parent.glob("*") if path.suffix in (".py", ".css")]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_ink_of_the_page_comes_with_its_paper(path):
    """Outside JupyterLab neither is defined, and dark words on a dark page could not be read."""
    text = path.read_text("utf-8")
    assert text.count("var(--jp-content-font-color1") == text.count("var(--jp-layout-color0")


def on_dark(colour):
    """What a browser makes of a colour on a dark page."""
    seen = np.array(mpl.colors.to_rgb(colour))
    for rows in map(np.array, ON_DARK):
        seen = np.clip(rows[:, :3] @ seen + rows[:, 3], 0, 1)
    return seen


def linear(colour):
    channels = np.array(mpl.colors.to_rgb(colour))
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """The contrast of two colours, by WCAG 2."""
    dark, light = sorted(0.05 + linear(each) @ [0.2126, 0.7152, 0.0722] for each in (one, other))
    return light / dark


# Björn Ottosson's OKLab, in which equal distances look equal: https://bottosson.github.io/posts/oklab/
TO_CONES = np.array([
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
])  # fmt: skip
TO_LAB = np.array([
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
])  # fmt: skip


def distance(one, other):
    lab = [TO_LAB @ np.cbrt(TO_CONES @ linear(each)) for each in (one, other)]
    return np.linalg.norm(lab[0] - lab[1])


def test_paper_becomes_that_of_the_sites_dark_page():
    *_, dark = (ASSETS / "site.css").read_text("utf-8").partition('[data-jp-theme-light="false"] {')
    paper = dark.partition("--paper: ")[2][:7]
    assert np.abs(on_dark(PAPER) - mpl.colors.to_rgb(paper)).max() < 0.004  # one step of 255


@pytest.mark.parametrize("colour", sorted({INK, QUIET, *FIELD_COLOURS.values(), *STATUS_COLOURS.values()}))
def test_what_is_written_can_be_read_on_a_dark_page(colour):
    assert contrast(on_dark(colour), on_dark(PAPER)) >= 4.5


def test_on_a_dark_page_no_two_zones_nor_their_tints_are_alike_and_amber_is_not_brown():
    for one, other in itertools.combinations(ZONES.values(), 2):
        assert distance(on_dark(one.colour), on_dark(other.colour)) > 0.12
        assert distance(on_dark(one.tint), on_dark(other.tint)) > 0.75 * distance(one.tint, other.tint)
    for zone in ZONES.values():
        assert contrast(on_dark(zone.colour), on_dark(PAPER)) > 4.5
        assert distance(on_dark(zone.tint), on_dark(PAPER)) > distance(zone.tint, PAPER)
    assert distance(on_dark(ZONES["subnormal"].colour), ZONES["subnormal"].colour) < 0.1


def test_on_a_dark_page_dtypes_are_told_apart():
    pairs = list(itertools.combinations(DTYPE_COLOURS.values(), 2))
    assert min(distance(*pair) for pair in pairs) > 0.07
    assert min(distance(*map(on_dark, pair)) for pair in pairs) > 0.05


def test_on_a_dark_page_what_is_darker_on_paper_is_lighter():
    seen = [on_dark((grey, grey, grey)).mean() for grey in np.linspace(0, 1, 20)]
    assert seen == sorted(seen, reverse=True)
