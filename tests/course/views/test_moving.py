"""The picture that moves on the page, against what matplotlib itself writes for the same figure."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.path import Path

from amp_lessons._base.drawing.picture import Picture
from amp_lessons.course.views.base import moving
from amp_lessons.course.views.base.moving import MovingLines, MovingMark, MovingPage


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


def test_a_narrow_picture_stands_behind_the_wide_one_and_moves_with_it(page):
    picture = bars([1, 2, 0.5])
    picture.narrow = bars([1, 2, 0.5], [0, 1, 2])
    page.show(picture, "live", "alt")
    assert page.drawing.count("<svg") == len(page.outlines) == 1, "where a kernel runs it would cost time"
    page.for_phones = True
    page.show(picture, "first", "alt")
    assert page.drawing.count("<svg") == 2
    assert sorted(re.findall(r'id="(amp-moving-\d)"', page.drawing)) == sorted(page.outlines) != []
    before = page.outlines
    picture.narrow.moving[1].set_data([2, 2, 2])
    page.show(picture, "second", "alt")
    assert [name for name in before if page.outlines[name] != before[name]] == ["amp-moving-2"]


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
    nothing = MovingPage()
    nothing.show(None, "There is nothing to draw.", "alt")
    assert (nothing.drawing, nothing.caption) == ("", "There is nothing to draw.")


def test_two_drawings_on_one_page_have_hatches_and_styles_of_their_own():
    first, second = (moving.svg(bars([1, 2, 1])) for _ in range(2))
    names = [set(re.findall(r"url\(#(\w+)\)", each)) for each in (first, second)]
    assert len(names[0]) == 2  # a hatch, and the axes that bars are clipped to
    assert not names[0] & names[1]
    assert "<style" not in first
    assert first.startswith('<svg style="stroke-linejoin: round; stroke-linecap: butt" ')


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
    assert (mark.artist.get_path().vertices < 0).all(), "nothing to mark: out of sight"


def test_what_moves_lies_above_the_grid_on_the_page_too():
    figure = Figure(figsize=(3, 2))
    axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    axes.grid()
    (still,) = axes.plot([0, 1], [0, 1])
    lines, mark = MovingLines(axes), MovingMark(axes)
    assert mark.artist.get_zorder() > lines.artist.get_zorder() > still.get_zorder()
    assert lines.artist.get_zorder() > axes.xaxis.get_gridlines()[0].get_zorder()


def dots_by_matplotlib(hatch, density=6):
    """Return the centres of a hatch's dots in points, as matplotlib's SVG has them."""
    path = Path.hatch(hatch, density)
    starts = np.flatnonzero(path.codes == Path.MOVETO)
    dots = np.split(path.vertices, starts[1:])
    return {(round((x := dot[:-1].T)[0].mean() * 72, 1), round(72 - x[1].mean() * 72, 1)) for dot in dots}


def dots_of_dashes(drawing):
    """Return the centres of the dots that dashed lines in a drawing leave, up to 72 points."""
    found = set()
    for lines, step in re.findall(r'<path d="([^"]*)" style="[^"]*stroke-dasharray: 0 ([\d.]+);', drawing):
        for x, y, length in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)", lines):
            found |= {
                (round(at, 1), float(y)) for at in np.arange(float(x), float(x) + float(length), float(step))
            }
    return found


@pytest.mark.parametrize("hatch", ["....", ".."])
def test_dots_of_a_hatch_are_dashes_where_matplotlib_has_dots(hatch):
    figure = Figure()
    figure.add_axes((0, 0, 1, 1)).bar([1], [1], hatch=hatch, edgecolor="#ff0000")
    drawing = moving.svg(Picture(figure))
    assert dots_of_dashes(drawing) == dots_by_matplotlib(hatch)
    (pattern,) = re.findall(r"<pattern.*?</pattern>", drawing, re.DOTALL)
    assert len(pattern) < 2000
    assert "stroke: #ff0000" in pattern
