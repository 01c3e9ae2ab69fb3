from html.parser import HTMLParser

import pytest
from markupsafe import Markup
from nbconvert.filters.markdown_mistune import markdown2html_mistune

from amp_lessons._base.text.tables import Table

THINGS = Table(("name", "size"), [("a", 1), ("longer", 1000)], "Two things.", ["Measured: `nothing`."])


class Cells(HTMLParser):
    """What stands in the cells of a table, row by row, as a browser would show it."""

    def __init__(self, page):
        super().__init__()
        self.rows, self._inside = [], False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._inside = True

    def handle_endtag(self, tag):
        self._inside = self._inside and tag not in ("td", "th")

    def handle_data(self, data):
        if self._inside:
            self.rows[-1][-1] += data


def test_columns_stand_below_each_other_between_caption_and_notes():
    lines = ["Two things.", "name    size", "a          1", "longer  1000", "", "Measured: `nothing`."]
    assert str(THINGS).splitlines() == lines
    assert repr(THINGS) == str(THINGS)


def test_without_caption_and_notes_there_is_the_table_alone():
    assert str(Table(("name",), [("a",)])) == "name\na"
    assert str(Table(("name", "size"), [])) == "name  size"
    assert Table(("name",), [("a",)]).as_markdown() == "| name |\n|:--|\n| a |"


def test_html_and_markdown_show_the_same_cells():
    awkward = Table(("a|b", "2**n"), [("<a>", "x * y"), ("`a*b`", "_")], "A & B")
    shown = [["a|b", "2**n"], ["<a>", "x * y"], ["a*b", "_"]]
    assert Cells(awkward.as_html()).rows == shown
    assert Cells(markdown2html_mistune(awkward.as_markdown())).rows == shown


def test_the_html_names_columns_rows_and_region():
    page = Table(("name", "size"), [("a", 1)], "A & B").as_html()
    assert '<th scope="col">size</th>' in page
    assert '<th scope="row">a</th><td>1</td>' in page
    assert ">A &amp; B</caption>" in page
    assert 'tabindex="0" role="region" aria-label="A &amp; B"' in page
    page = Table(("a", "b"), [("x", Markup("<b>bold</b>"))]).as_html()
    assert 'role="region" aria-label="a, b"' in page
    assert "<td><b>bold</b></td>" in page


def test_each_row_and_note_has_a_line_of_its_own():
    lines = THINGS.as_html().splitlines()
    assert sum("longer" in line for line in lines) == 1
    assert lines[-1] == "<p>Measured: <code>nothing</code>.</p>"


def test_records_give_the_head():
    table = Table.of([{"name": "a", "size": 1}, {"size": 2, "name": "b"}], "Two.")
    assert (table.head, table.rows) == (("name", "size"), [("a", "1"), ("b", "2")])
    assert table.records == [{"name": "a", "size": "1"}, {"name": "b", "size": "2"}]


def test_what_is_no_table_is_refused():
    with pytest.raises(ValueError, match="at least one row"):
        Table.of([], "Nothing.")
    with pytest.raises(ValueError, match=r"head has 2 cells, but a row has 1: \('a',\)"):
        Table(("name", "size"), [("a",)])
