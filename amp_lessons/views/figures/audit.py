"""One picture of an audited training: its steps above, what its layers lose below."""

from __future__ import annotations

from matplotlib.figure import Figure

from amp_lessons.audit.page.drawings import (
    CURVES_IN,
    HEIGHT_IN,
    draw_layer,
    draw_map,
    draw_timeline,
    map_height_in,
)
from amp_lessons.audit.report.document import Document
from amp_lessons.audit.report.losses import By, layer_curves, loss_map, used_format
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import house_style

MOST_ROWS = 24
_TITLE = {"count": "share of the gradients' number", "norm": "share of the gradients' norm"}


def audit_picture(document: Document, number_format: str, by: By, layer: str = "") -> Picture:
    """Draw a training that has taken a step: all layers in one format or, if named, one layer in all.

    A map of a format in which nothing is lost would be an empty one, and is left out.
    """
    losses = loss_map(document, number_format, by, MOST_ROWS)
    below = CURVES_IN if layer else map_height_in(losses) if losses.most else 0
    height = HEIGHT_IN + (below if document["layers"] else 0)
    with house_style():
        figure = Figure(figsize=(9, height))
        _draw_steps(figure, document, height)
        if layer:
            axes = figure.add_axes((0.1, 0.5 / height, 0.68, (below - 0.9) / height))
            axes.set_title(f"{layer}: {_TITLE[by]} that becomes zero", fontsize=10)
            draw_layer(axes, layer_curves(document, layer, by), used_format(document))
        elif losses.most:
            axes = figure.add_axes((0.27, 0.5 / height, 0.53, (below - 0.95) / height))
            axes.set_title(f"{_TITLE[by]} that becomes zero", fontsize=10, pad=16, loc="left")
            draw_map(axes, losses)
    return Picture(figure)


def _draw_steps(figure: Figure, document: Document, height: float) -> None:
    top = height - 0.3
    loss = figure.add_axes((0.1, (top - 1.75) / height, 0.885, 1.75 / height))
    scale = figure.add_axes((0.1, (top - 3.05) / height, 0.885, 1.15 / height), sharex=loss)
    loss.tick_params(labelbottom=False)
    draw_timeline(loss, scale, document)
