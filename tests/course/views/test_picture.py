import io
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from amp_lessons import audit, views
from amp_lessons._base.drawing.picture import LEGIBLE_PX, PX_PER_INCH, Picture, caption_strip, picture_html
from amp_lessons._base.drawing.style import SMALL


def bars(heights):
    figure = Figure(figsize=(3, 2))
    axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    axes.set_ylim(0, 2)
    moving = axes.stairs(heights, fill=True, color="#0072B2")
    return figure, moving


def test_a_moved_picture_looks_like_one_drawn_from_scratch():
    figure, moving = bars([1, 2, 1])
    picture = Picture(figure, [moving])
    first = picture.pixels().copy()
    moving.set_data([2, 1, 0.5])
    moved = picture.pixels().copy()
    figure, moving = bars([2, 1, 0.5])
    fresh = Picture(figure, [moving]).pixels()
    assert (first != moved).any()
    np.testing.assert_array_equal(moved, fresh)


def test_the_png_carries_its_caption_below_the_picture():
    picture = Picture(bars([1, 1, 1])[0])
    bare = Image.open(io.BytesIO(picture.png()))
    captioned = Image.open(io.BytesIO(picture.png("Everything survives.")))
    assert captioned.width == bare.width
    assert captioned.height > bare.height
    strip = np.asarray(captioned)[bare.height :]
    assert strip.min() < 100, "the caption left no ink"


@pytest.mark.parametrize("width", [360, 1079])
def test_a_caption_strip_is_exactly_as_wide_as_asked_and_each_line_stands_on_its_own(width):
    assert caption_strip("A long caption that must wrap somewhere. " * 5, width).shape[1] == width
    assert len(caption_strip("What?\na) this\nb) that", width)) > len(caption_strip("What? a) b)", width))


def test_two_drawings_of_the_same_thing_are_the_same_bytes():
    assert Picture(bars([1, 2, 3])[0]).png("x") == Picture(bars([1, 2, 3])[0]).png("x")


def test_a_picture_keeps_the_width_at_which_its_smallest_text_can_be_read():
    figure, _ = bars([1])  # 3 inches wide
    figure.text(0, 0, "small", fontsize=9)  # 12.5 CSS pixels at 100 to an inch
    assert Picture(figure).narrowest == 264
    figure.axes[0].tick_params(labelsize=6)
    figure.axes[0].set_axis_off()
    assert Picture(figure).narrowest == 264, "there is no text to be read"
    figure.text(0, 0, "tiny", fontsize=7)  # 9.7: it takes all the width there is
    assert Picture(figure).narrowest == 300


def test_a_picture_scrolls_where_it_would_be_too_narrow_and_can_be_turned_over_for_a_dark_page():
    picture = Picture(bars([1])[0])
    page = picture_html(picture, "<script>", 'a "quoted" <thing>')
    assert "<script>" not in page
    assert 'alt="a &#34;quoted&#34; &lt;thing&gt;"' in page
    assert f"min-width:{picture.narrowest}px" in page
    assert 'tabindex="0"' in page
    assert page.count("amp-paper") == 2  # the rule, and what it is about


def test_no_picture_asks_for_text_that_is_below_11_pixels_at_its_full_size():
    sizes = re.compile(r"(?:font|label)size=(\d+(?:\.\d+)?)")
    drawing = [*Path(views.__file__).parent.rglob("*.py"), *Path(audit.__file__).parent.rglob("*.py")]
    asked = {(file.name, float(size)) for file in drawing for size in sizes.findall(file.read_text("utf-8"))}
    asked.add(("style.py", SMALL))
    assert len(asked) > 15
    too_small = {each for each in asked if each[1] * PX_PER_INCH / 72 < LEGIBLE_PX}
    assert too_small == set()
