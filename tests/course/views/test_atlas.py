"""The atlas as the table that it is on a page; its story says how it is searched."""

import re

from amp_lessons import autocast
from amp_lessons.course.views import AtlasView
from amp_lessons.course.views.widgets.atlas import ROWS_IN_A_PICTURE, atlas_picture
from tests.course.views.hands import readable, written


def table(view):
    """The live table as text: one list of cells per row, the head first."""
    rows = re.findall(r"<tr>(.*?)</tr>", view.page_html())
    return [[readable(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]


def test_the_table_says_what_the_operations_say_and_can_be_scrolled_by_keyboard_and_read_aloud():
    view = AtlasView("norm")
    head, *rows = table(view)
    assert head == ["operation", "CUDA", "CPU", "MPS", "XPU"]
    assert rows == [[each.name, *each.rules.values()] for each in autocast.operations("norm")] != []
    page = view.page_html()
    assert 'tabindex="0"' in page
    assert page.count('scope="col"') == 5
    assert page.count('scope="row"') == len(rows)


def test_without_a_search_everything_is_there_what_models_are_written_with_first_private_names_last():
    view = AtlasView()
    names = [row[0] for row in table(view)[1:]]
    assert sorted(names) == sorted(each.name for each in autocast.operations())
    assert names[:4] == ["linear", "conv2d", "matmul", "softmax"]
    private = [name.startswith("_") for name in names]
    assert any(private)
    assert private == sorted(private)


def test_what_is_typed_is_escaped():
    view = AtlasView("<script>alert(1)</script>")
    assert "<script>" not in view.page_html()
    assert len(table(view)) == 1


def test_rule_and_differences_filter():
    view = AtlasView(rule="banned")
    assert [row[0] for row in table(view)[1:]] == ["binary_cross_entropy"]
    view.rule, view.differing = "any", True
    assert {row[0] for row in table(view)[1:]} == {each.name for each in autocast.operations(differing=True)}
    view.device_type, view.rule = "cpu", "lower precision"
    assert {row[2] for row in table(view)[1:]} == {"lower precision"}


def test_the_picture_holds_the_words_and_says_how_many_more_there_are():
    found = autocast.operations()
    texts = written(atlas_picture(found).figure.axes[0])
    assert [text for text in texts if text in {each.name for each in found}] == [
        each.name for each in found[:ROWS_IN_A_PICTURE]
    ]
    assert texts[-1] == f"… and {len(found) - ROWS_IN_A_PICTURE} more"
