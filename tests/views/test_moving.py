"""The picture that moves on the page, against what matplotlib itself writes for the same figure."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from amp_lessons.views.base import moving
from amp_lessons.views.base.moving import MovingLines, MovingMark, MovingPage
from amp_lessons.views.base.picture import Picture


def bars(*heights):
    figure = Figure(figsize=(3, 2))
    axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    axes.set_ylim(0, 2)
    stairs = [axes.stairs(each, fill=True, hatch="//", edgecolor="white") for each in heights]
    return Picture(figure, stairs)


def numbers(outline):
    return [float(number) for number in re.findall(r"-?[\d.]+", outline)]


def drawn_by_matplotlib(picture):
    """Return the outline of every moving artist in matplotlib's own SVG of the figure, by its name."""
    root = ElementTree.fromstring(moving.svg(picture))
    groups = [group for group in root.iter() if group.get("id", "").startswith("amp-moving")]
    return {group.get("id"): group[0].get("d") for group in groups}


@pytest.fixture
def page():
    return MovingPage()


def test_outlines_are_those_that_matplotlib_draws(page):
    picture = bars([1, 2, 0.5], [0, 1, 2])
    page.show(picture, "first", "alt")
    picture.moving[0].set_data([2, 0.25, 1])
    picture.moving[1].set_data([1.5, 1, 0.5], baseline=[0.5, 0, 0.25])
    page.show(picture, "second", "alt")
    wanted = drawn_by_matplotlib(picture)
    assert page.outlines.keys() == wanted.keys()
    for name, outline in wanted.items():
        np.testing.assert_allclose(numbers(page.outlines[name]), numbers(outline), atol=0.006)
        assert re.sub(r"[^MLZz]", "", page.outlines[name]).upper() == re.sub(r"[^MLZz]", "", outline).upper()


def test_what_stands_still_is_sent_once(page):
    picture = bars([1, 2, 1])
    page.show(picture, "first", "alt")
    drawing, outlines = page.drawing, page.outlines
    picture.moving[0].set_data([2, 1, 2])
    page.show(picture, "second", "alt")
    assert page.drawing is drawing
    assert page.outlines != outlines
    page.show(bars([1, 2, 1]), "third", "alt")
    assert page.drawing != drawing


def test_two_drawings_on_one_page_do_not_take_each_others_hatches():
    first, second = (set(re.findall(r"url\(#(\w+)\)", moving.svg(bars([1, 2, 1])))) for _ in range(2))
    assert len(first) == 2  # a hatch, and the axes that bars are clipped to
    assert not first & second


def test_a_caption_needs_no_picture(page):
    page.show(None, "There is nothing to draw.", "alt")
    assert (page.drawing, page.caption) == ("", "There is nothing to draw.")


def test_lines_and_marks_are_drawn_where_matplotlib_draws_them():
    figure = Figure(figsize=(3, 2))
    axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    axes.set(xscale="log", yscale="log", xlim=(1, 1000), ylim=(1e-3, 1))
    lines, mark = MovingLines(axes, lw=2), MovingMark(axes)
    picture = Picture(figure, [lines.artist, mark.artist])
    lines.update([(1, 0.01), (10, 0.1), (1000, 1)], [(2, 0.5), (3, 0.25)])
    mark.update((10, 0.1), (100, 0.01))
    wanted = drawn_by_matplotlib(picture)
    assert len(wanted) == 2
    for k, artist in enumerate(picture.moving):
        drawn = numbers(wanted[f"amp-moving-{k}"])
        np.testing.assert_allclose(numbers(moving.svg_outline(artist)), drawn, atol=0.006)


def test_a_mark_is_as_wide_as_it_is_high_and_lies_on_its_point():
    figure = Figure(figsize=(6, 2))
    axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    axes.set(xscale="log", xlim=(1, 100))
    mark = MovingMark(axes)
    mark.update((10, 0.25))
    corners = mark.artist.get_transform().transform(mark.artist.get_path().vertices)[:4]
    assert np.ptp(corners[:, 0]) == pytest.approx(np.ptp(corners[:, 1]))
    np.testing.assert_allclose(axes.transAxes.inverted().transform(corners.mean(0)), [0.5, 0.25])
    mark.update()
    assert (
        axes.transAxes.inverted().transform(
            mark.artist.get_transform().transform(mark.artist.get_path().vertices)
        )
        < 0
    ).all(), "nothing to mark: out of sight"


def test_what_moves_lies_above_the_grid_on_the_page_too():
    figure = Figure(figsize=(3, 2))
    axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    axes.grid()
    (still,) = axes.plot([0, 1], [0, 1])
    lines, mark = MovingLines(axes), MovingMark(axes)
    assert mark.artist.get_zorder() > lines.artist.get_zorder() > still.get_zorder()
    assert lines.artist.get_zorder() > axes.xaxis.get_gridlines()[0].get_zorder()
