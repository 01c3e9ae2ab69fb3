"""Images that models were given, or drew."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from amp_lessons.text.marks import MEASURED_MARK
from amp_lessons.views.base.still import Still
from amp_lessons.views.figures.images import image_rows_picture


def image_rows(rows: Mapping[str, Tensor], caption: str) -> Still:
    """Show the first 16 square images of each row: ``rows`` maps names to images (n, pixels), ink 0 to 1."""
    alt = f"Rows of small images: {', '.join(rows)}."
    return Still(image_rows_picture(rows), caption, alt, mark=MEASURED_MARK)
