import html
import re

from amp_lessons import autocast
from amp_lessons.course.views import AtlasView
from amp_lessons.course.views.widgets.atlas import ROWS_IN_A_PICTURE, atlas_picture


def table(view):
    """The live table as text: one list of cells per row, the head first."""
    rows = re.findall(r"<tr>(.*?)</tr>", view.page_html())
    return [[_text(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]


def _text(page):
    return html.unescape(re.sub(r"<[^>]+>", "", page))


def test_the_table_says_what_the_operations_say():
    view = AtlasView("norm")
    head, *rows = table(view)
    assert head == ["operation", "CUDA", "CPU", "MPS", "XPU"]
    expected = autocast.operations("norm")
    assert rows == [[operation.name, *operation.rules.values()] for operation in expected]
    assert len(rows) > 5


def test_without_a_search_everything_is_there():
    view = AtlasView()
    assert len(table(view)) == 1 + len(autocast.operations())
    assert view.caption.startswith(f"{len(autocast.operations())} of the {len(autocast.operations())}")


def test_what_models_are_written_with_comes_first_and_private_names_last():
    names = [operation.name for operation in AtlasView().found]
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
    view.rule = "any"
    view.differing = True
    assert {row[0] for row in table(view)[1:]} == {o.name for o in autocast.operations(differing=True)}
    view.device_type, view.rule = "cpu", "lower precision"
    assert "only 'lower precision' on CPU, only where CUDA and CPU differ" in view.caption
    assert {row[2] for row in table(view)[1:]} == {"lower precision"}


def test_the_picture_holds_the_words_and_says_how_many_more_there_are():
    found = autocast.operations()
    texts = [text.get_text() for text in atlas_picture(found).figure.axes[0].texts]
    assert [o.name for o in found[:ROWS_IN_A_PICTURE]] == [
        text for text in texts if text in {o.name for o in found}
    ]
    assert texts[-1] == f"… and {len(found) - ROWS_IN_A_PICTURE} more"


def test_the_live_table_can_be_scrolled_by_keyboard_and_has_headers():
    page = AtlasView().page_html()
    assert 'tabindex="0"' in page
    assert page.count('scope="col"') == 5
    assert page.count('scope="row"') == len(autocast.operations())
