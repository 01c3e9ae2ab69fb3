import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from amp_lessons.views.base.picture import Picture, caption_strip, picture_html


def bars(heights):
    figure = Figure(figsize=(3, 2))
    axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    axes.set_ylim(0, 2)
    moving = axes.stairs(heights, fill=True, color="#0072B2")
    return figure, moving


def from_scratch(heights):
    figure, moving = bars(heights)
    return Picture(figure, [moving])


def test_a_moved_picture_looks_like_one_drawn_from_scratch():
    figure, moving = bars([1, 2, 1])
    picture = Picture(figure, [moving])
    first = picture.pixels().copy()
    moving.set_data([2, 1, 0.5])
    moved = picture.pixels().copy()
    fresh = from_scratch([2, 1, 0.5]).pixels()
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


@pytest.mark.parametrize("width", [360, 361, 1079, 1080])
def test_a_caption_strip_is_exactly_as_wide_as_asked(width):
    assert caption_strip("A long caption that must wrap somewhere. " * 5, width).shape[1] == width


def test_two_drawings_of_the_same_thing_are_the_same_bytes():
    assert Picture(bars([1, 2, 3])[0]).png("x") == Picture(bars([1, 2, 3])[0]).png("x")


def test_the_html_escapes_what_a_learner_typed():
    page = picture_html(b"", caption="<script>", alt='a "quoted" <thing>', size=(300, 200))
    assert "<script>" not in page
    assert 'alt="a &#34;quoted&#34; &lt;thing&gt;"' in page
