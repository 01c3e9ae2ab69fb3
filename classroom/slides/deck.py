"""A deck as one HTML file. nbconvert turns cells into HTML; the frame around them is thirty lines of ours.

nbconvert's own slides load reveal.js, RequireJS, jQuery and MathJax from the network, which a classroom may
not have.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
from markupsafe import Markup
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from nbformat.v4 import new_notebook
from pygments.formatters import HtmlFormatter

from classroom.slides.choosing import slides

_HERE = Path(__file__).parent
_PAGE = Markup(
    """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
<script>{script}</script>
</body>
</html>
"""
)
_SLIDE = Markup(
    '<section data-kind="{kind}" aria-label="slide {number} of {of}"><div>{html}</div>'
    '<div class="number" aria-hidden="true">{number} / {of}</div></section>'
)


def write_deck(notebook: Path, folder: Path) -> Path:
    """Write the slides of a lesson into ``folder`` and return the file."""
    deck = folder / f"{notebook.stem}.html"
    deck.write_text(page(nbformat.read(notebook, as_version=4)), "utf-8")
    return deck


def page(lesson: NotebookNode) -> str:
    """Return the slides of a lesson as a page that stands alone."""
    exporter = HTMLExporter(template_name="basic")
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = exporter.exclude_anchor_links = True
    chosen = list(slides(lesson))
    shown = [
        _SLIDE.format(kind=_kind(cell), number=number, of=len(chosen), html=Markup(_html(cell, exporter)))
        for number, cell in enumerate(chosen, start=1)
    ]
    style = (_HERE / "deck.css").read_text("utf-8") + HtmlFormatter().get_style_defs(".highlight")
    return str(
        _PAGE.format(
            title=lesson.cells[0].source.splitlines()[0].lstrip("# "),
            style=Markup(style),
            body=Markup("\n").join(shown),
            script=Markup((_HERE / "deck.js").read_text("utf-8")),
        )
    )


def _html(cell: NotebookNode, exporter: HTMLExporter) -> str:
    exporter.exclude_input = not cell.source
    return exporter.from_notebook_node(new_notebook(cells=[cell]))[0]


def _kind(cell: NotebookNode) -> str:
    """Describe what a slide is: text, code, or a picture, which has no source."""
    return "text" if cell.cell_type == "markdown" else "code" if cell.source else "picture"
