"""Every notebook keeps to the rules, and every rule can be broken."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from amp_lessons.course.lessons import shipped
from amp_lessons.course.routes import minutes
from amp_lessons.course.routes.catalogue import FOR_SOME
from tests import notebook_rules as rules

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert {rule.__name__: rule(notebook) for rule in rules.RULES} == {
        rule.__name__: [] for rule in rules.RULES
    }


MOST_MINUTES_OF_A_CORE = {"00": 15, "04": 90, "06": 90}
MOST_MINUTES = 600  # ten hours: a weekend
NUMBERS = [head.number for head in shipped.heads()]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_head_states_the_minutes_of_the_core_and_a_core_is_short(number):
    head = shipped.head_of(number)
    assert abs(head.minutes - minutes.core(number)) <= 5
    assert head.minutes <= MOST_MINUTES_OF_A_CORE.get(number, 60)


@pytest.mark.parametrize("number", NUMBERS)
def test_deeper_sections_state_their_minutes(number):
    computed, path = minutes.deeper(number), shipped.numbered(shipped.originals(), number)
    stated = rules.deeper_minutes(json.loads(path.read_text("utf-8")))
    assert list(stated) == list(computed)
    assert {
        heading: (said, computed[heading])
        for heading, said in stated.items()
        if abs(said - computed[heading]) > 5
    } == {}


def test_all_cores_that_are_for_everybody_fit_into_a_weekend():
    for_everybody = [number for number in NUMBERS if number not in FOR_SOME]
    assert for_everybody == [f"{number:02}" for number in range(11)]
    assert sum(shipped.head_of(number).minutes for number in for_everybody) <= MOST_MINUTES


def code(source, count, **output):
    stored = (
        [{"output_type": "execute_result", "metadata": {}, "execution_count": count, **output}]
        if output
        else []
    )
    return {
        "cell_type": "code",
        "metadata": {},
        "source": source,
        "execution_count": count,
        "outputs": stored,
    }


GOOD = {
    "metadata": {"kernelspec": {"name": "python3"}},
    "cells": [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Title\n", "**5 more** ", "word " * 60]},
        code("import torch\n" * 6, 1),
        code("1 + 1", 2, data={"text/plain": "2", "image/png": "iVBORw0KGgo="}),
        {**code("views = picture = x = 1\n" * 40, 3), "metadata": {"tags": ["capstone"]}},
        {"cell_type": "markdown", "metadata": {"tags": ["long"]}, "source": "word " * 200},
        code("print(0x2E66)", 4, text="[measured] 3 ms, codes 0x2E66 and 0x7f0000001111, and/or /usr/bin\n"),
        code("picture", 5, data={"text/html": '<img alt="" src="data:image/png;base64,+/tmp/a1b2==">'}),
        {**code("x = 1\n" * 25, 6), "id": "loss-scaler-stub"},
        {**code("views.LessonEnd('03')", 7), "id": "lesson-end"},
        {"cell_type": "markdown", "metadata": {}, "source": "More below.", "id": "deeper"},
        {
            "cell_type": "markdown",
            "metadata": {"jp-MarkdownHeadingCollapsed": True},
            "source": "## Deeper: why\n\n**5 minutes**, one of them in vain. For those who ask.",
        },
        code("y = x\ny", 8),
        {"cell_type": "markdown", "metadata": {}, "source": "The end."},
    ],
}


def broken(change):
    notebook = copy.deepcopy(GOOD)
    change(notebook)
    return notebook


def never_run(notebook):
    notebook["cells"][1]["execution_count"] = None


def run_twice(notebook):
    notebook["cells"][2]["execution_count"] = 9


def raising(notebook):
    notebook["cells"][1]["outputs"] = [
        {"output_type": "error", "ename": "KeyError", "evalue": "", "traceback": []}
    ]


def with_widget_state(notebook):
    notebook["metadata"]["widgets"] = {}


def with_a_dead_widget(notebook):
    notebook["cells"][2]["outputs"][0]["data"][rules.WIDGET_VIEW] = {"model_id": "1f"}


def on_another_kernel(notebook):
    notebook["metadata"]["kernelspec"]["name"] = "my-env"


def without_a_kernel(notebook):
    del notebook["metadata"]["kernelspec"]


def with_a_long_cell(notebook):
    notebook["cells"][1]["source"] = ["x = 1\n"] * 21


def with_longish_cells(notebook):
    for number in (1, 2, 5):
        notebook["cells"][number]["source"] = "x = 1\n" * 7
    notebook["cells"][-2]["source"] = "x = 1\n" * 7


def with_much_to_read(notebook):
    notebook["cells"][0]["source"] = "**5 more** " + "word " * 80


def with_nothing_to_do(notebook):
    notebook["cells"][:0] = [notebook["cells"][0]] * 4


def with_pictures_alone(notebook):
    notebook["cells"][2]["source"] = "views.format_table()"
    with_nothing_to_do(notebook)


def without_an_end(notebook):
    del notebook["cells"][-1]


def with_a_recap_below(notebook):
    notebook["cells"][-1]["source"] = "## Recap"


def with_the_strip_elsewhere(notebook):
    notebook["cells"][8]["id"] = "picture"


def with_an_open_heading(notebook):
    notebook["cells"][-3]["metadata"] = {}


def with_another_folded(notebook):
    notebook["cells"][0]["metadata"][rules.FOLDED] = True


def for_nobody(notebook):
    notebook["cells"][-3]["source"] = "## Deeper: why\n\n**5 minutes**. It is deep."


def with_a_wrong_sum(notebook):
    notebook["cells"][-3]["source"] = "## Deeper: why\n\n**10 minutes**. For those who ask."


def needing_what_is_deeper(notebook):
    notebook["cells"][7]["source"] = "x = y"


def needing_another_section(notebook):
    second = {**notebook["cells"][-3], "source": "## Deeper: what\n\n**0 minutes**. For those who ask."}
    notebook["cells"][-1:-1] = [second, code("y", 9)]


def with_a_heavy_picture(notebook):
    notebook["cells"][2]["outputs"][0]["data"]["image/png"] = "A" * 401_000


def with_a_heavy_picture_in_html(notebook):
    heavy = '<img alt="" src="data:image/png;base64,' + "A" * 401_000 + '">'
    notebook["cells"][2]["outputs"][0]["data"]["text/html"] = heavy


def with_many_pictures(notebook):
    notebook["cells"][2]["outputs"] *= 8
    for number, output in enumerate(notebook["cells"][2]["outputs"]):
        notebook["cells"][2]["outputs"][number] = {**output, "data": {"image/png": "A" * 300_000}}


def with_long_rows(notebook):
    notebook["cells"][5]["outputs"][0]["text"] = ["a row of numbers: " + "0.5, " * 20 + "\n"] * 2


def with_a_path(notebook):
    notebook["cells"][5]["outputs"][0]["text"] = ["saved to ", "/home/ada/course/model.pt\n"]


def with_a_windows_path(notebook):
    notebook["cells"][2]["outputs"][0]["data"]["text/plain"] = r"'C:\Users\ada'"


def with_an_address(notebook):
    notebook["cells"][2]["outputs"][0]["data"]["text/plain"] = "<Thing object at 0x7f3a5c0b2d90>"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (never_run, rules.executed_from_top_to_bottom),
        (run_twice, rules.executed_from_top_to_bottom),
        (raising, rules.no_error_outputs),
        (with_widget_state, rules.no_widget_state),
        (with_a_dead_widget, rules.no_widget_state),
        (on_another_kernel, rules.runs_on_the_plain_kernel),
        (without_a_kernel, rules.runs_on_the_plain_kernel),
        (with_a_long_cell, rules.short_code_cells),
        (without_an_end, rules.ends_with_text),
        (with_longish_cells, rules.short_code_cells),
        (with_much_to_read, rules.short_markdown_cells),
        (with_nothing_to_do, rules.something_to_do),
        (with_pictures_alone, rules.something_to_do),
        (with_a_recap_below, rules.the_core_in_one_piece),
        (with_the_strip_elsewhere, rules.the_core_in_one_piece),
        (with_an_open_heading, rules.deeper_headings_folded),
        (with_another_folded, rules.deeper_headings_folded),
        (for_nobody, rules.deeper_headings_folded),
        (with_a_wrong_sum, rules.deeper_minutes_add_up),
        (needing_what_is_deeper, rules.names_from_above),
        (needing_another_section, rules.names_from_above),
        (with_a_heavy_picture, rules.small_pictures),
        (with_a_heavy_picture_in_html, rules.small_pictures),
        (with_many_pictures, rules.small_pictures),
        (with_long_rows, rules.rows_that_fit),
        (with_a_path, rules.nothing_of_this_machine),
        (with_a_windows_path, rules.nothing_of_this_machine),
        (with_an_address, rules.nothing_of_this_machine),
    ],
)
def test_a_broken_notebook_breaks_that_rule_alone(change, rule):
    assert [broken_rule for broken_rule in rules.RULES if broken_rule(broken(change))] == [rule]


def test_a_good_notebook_keeps_to_every_rule():
    assert [rule(GOOD) for rule in rules.RULES] == [[]] * len(rules.RULES)


@pytest.mark.parametrize(
    "source",
    ['views.Quiz("formats.count")', "views.LedgerView(networks)", 'views.check("decode_bits", decode_bits)'],
)
def test_a_prediction_a_control_or_an_exercise_breaks_a_stretch(source):
    notebook = broken(with_nothing_to_do)
    notebook["cells"][6]["source"] = source
    assert rules.something_to_do(notebook) == []


@pytest.mark.parametrize(
    ("markdown", "words"),
    [
        ("## Two words", 2),
        ("A [link](https://example.org/a/very long-address) counts as read", 5),
        ("Before\n```python\nx = 1 + 2\n```\nafter", 2),
        ("| a | table |\n|---|---|\n| does | not |\ncount", 1),
        ("5.96 × 10⁻⁸ — that is 2⁻²⁴", 5),
    ],
)
def test_words_are_counted_as_read(markdown, words):
    assert rules.word_count(markdown) == words
