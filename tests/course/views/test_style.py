from pathlib import Path

import pytest

from amp_lessons._base.drawing.style import DTYPE_COLOURS, QUIET, dtype_colour
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
