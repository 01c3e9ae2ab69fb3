"""Rows of small images: what is drawn, and what is said of it."""

from __future__ import annotations

import pytest
import torch

from amp_lessons import views


@pytest.mark.parametrize("shape", [(20, 64), (3, 1, 16, 16)])
def test_rows_of_images_carry_their_names_and_their_caption(shape):
    view = views.image_rows({"digits": torch.rand(shape), "drawn": torch.rand(4, 64)}, "Distances 1 and 2.")
    assert view.caption == "Distances 1 and 2."
    assert "digits, drawn" in view.alt


def test_ink_is_black_and_paper_white():
    blank = views.image_rows({"paper": torch.zeros(16, 64)}, "nothing").picture.pixels()
    inked = views.image_rows({"paper": torch.ones(16, 64)}, "all").picture.pixels()
    assert inked.mean() < blank.mean()
