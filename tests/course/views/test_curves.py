"""Curves of runs: all are drawn, apart from each other, and named within the picture."""

from __future__ import annotations

from amp_lessons import views

RUNS = {
    "engine in fp32": [0.8, 0.95],
    "3 bits, no correction": [0.8, 0.2],
    "the same, a quarter of the lr": [0.8, 0.9],
    "3 bits, exact ratios": [0.8, 0.1],
    "3 bits, ratios cut at 2": [0.8, 0.93],
}


def test_each_of_five_runs_has_a_curve_of_its_own():
    (axes,) = views.curves(RUNS, "Five runs.").picture.figure.axes
    assert [list(line.get_ydata()) for line in axes.lines] == list(RUNS.values())
    assert len({(line.get_color(), line.get_linestyle(), line.get_linewidth()) for line in axes.lines}) == 5
    assert len({line.get_color() for line in axes.lines}) == 5


def test_the_legend_names_each_within_the_picture():
    figure = views.curves(RUNS, "Five runs.").picture.figure
    legend = figure.axes[0].get_legend()
    assert [text.get_text().replace("\n", " ") for text in legend.get_texts()] == list(RUNS)
    figure.draw_without_rendering()
    assert legend.get_window_extent().x1 <= figure.bbox.x1


def test_what_happened_at_a_step_stands_there():
    (axes,) = views.curves(RUNS, "Five runs.", marks={2: "odd"}).picture.figure.axes
    (mark,) = [line for line in axes.lines if line.get_marker() == "^"]
    assert list(mark.get_xdata()) == [2]
    assert [(words.get_text(), words.xy[0]) for words in axes.texts] == [("odd", 2)]
