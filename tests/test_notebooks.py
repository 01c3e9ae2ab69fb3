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
    stored = {"output_type": "execute_result", "metadata": {}, "execution_count": count, **output}
    cell = {"cell_type": "code", "metadata": {}, "source": source, "execution_count": count}
    return {**cell, "outputs": [stored] if output else []}


def words(source, **more):
    return {"cell_type": "markdown", "metadata": {}, "source": source, **more}


FOLDED = {"metadata": {rules.FOLDED: True}}
GOOD = {
    "metadata": {"kernelspec": {"name": "python3"}},
    "cells": [
        words(["# Title\n", "**5 more** ", "word " * 60]),
        code("import torch\n" * 6, 1),
        code("1 + 1", 2, data={"text/plain": "2", "image/png": "iVBORw0KGgo="}),
        {**code("views = picture = x = 1\n" * 40, 3), "metadata": {"tags": ["capstone"]}},
        words("word " * 200, metadata={"tags": ["long"]}),
        code("print(0x2E66)", 4, text="[measured] 3 ms, codes 0x2E66 and 0x7f0000001111, and/or /usr/bin\n"),
        code("picture", 5, data={"text/html": '<img alt="" src="data:image/png;base64,+/tmp/a1b2==">'}),
        {**code("x = 1\n" * 25, 6), "id": "loss-scaler-stub"},
        {**code("views.LessonEnd('03')", 7), "id": "lesson-end"},
        words("More below.", id="deeper"),
        words("## Deeper: why\n\n**5 minutes**, one of them in vain. For those who ask.", **FOLDED),
        code("y = x\ny", 8),
        words("The end."),
    ],
}
ERROR = {"output_type": "error", "ename": "KeyError", "evalue": "", "traceback": []}
HEAVY = "A" * 401_000
LONGISH = "x = 1\n" * 7
ROWS = ["a row of numbers: " + "0.5, " * 20 + "\n"] * 2
NOTHING_TO_DO = [GOOD["cells"][0]] * 5
SHOWN = ("cells", 2, "outputs", 0, "data")
PICTURES = [{"output_type": "display_data", "data": {"image/png": "A" * 300_000}}] * 8
SECOND = words("## Deeper: what\n\n**0 minutes**. For those who ask.", **FOLDED)


def changed(*changes):
    """Return the good notebook with other values at some places, each a path and the value."""
    notebook = copy.deepcopy(GOOD)
    for *path, key, value in changes:
        place = notebook
        for step in path:
            place = place[step]
        place[key] = value
    return notebook


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        (rules.executed_from_top_to_bottom, [("cells", 1, "execution_count", None)]),
        (rules.executed_from_top_to_bottom, [("cells", 2, "execution_count", 9)]),
        (rules.no_error_outputs, [("cells", 1, "outputs", [ERROR])]),
        (rules.no_widget_state, [("metadata", "widgets", {})]),
        (rules.no_widget_state, [(*SHOWN, rules.WIDGET_VIEW, {"model_id": "1f"})]),
        (rules.runs_on_the_plain_kernel, [("metadata", "kernelspec", "name", "my-env")]),
        (rules.runs_on_the_plain_kernel, [("metadata", {})]),
        (rules.short_code_cells, [("cells", 1, "source", ["x = 1\n"] * 21)]),
        (rules.short_code_cells, [("cells", number, "source", LONGISH) for number in (1, 2, 5, -2)]),
        (rules.short_markdown_cells, [("cells", 0, "source", "**5 more** " + "word " * 80)]),
        (rules.something_to_do, [("cells", slice(1), NOTHING_TO_DO)]),
        (
            rules.something_to_do,
            [("cells", 2, "source", "views.format_table()"), ("cells", slice(1), NOTHING_TO_DO)],
        ),
        (rules.ends_with_text, [("cells", slice(-1, None), [])]),
        (rules.the_core_in_one_piece, [("cells", -1, "source", "## Recap")]),
        (rules.the_core_in_one_piece, [("cells", 8, "id", "picture")]),
        (rules.deeper_headings_folded, [("cells", -3, "metadata", {})]),
        (rules.deeper_headings_folded, [("cells", 0, "metadata", rules.FOLDED, True)]),
        (
            rules.deeper_headings_folded,
            [("cells", -3, "source", "## Deeper: why\n\n**5 minutes**. It is deep.")],
        ),
        (
            rules.deeper_minutes_add_up,
            [("cells", -3, "source", "## Deeper: why\n\n**10 minutes**. For those who ask.")],
        ),
        (rules.names_from_above, [("cells", 7, "source", "x = y")]),
        (rules.names_from_above, [("cells", slice(-1, -1), [SECOND, code("y", 9)])]),
        (rules.small_pictures, [(*SHOWN, "image/png", HEAVY)]),
        (rules.small_pictures, [(*SHOWN, "text/html", f'<img alt="" src="data:image/png;base64,{HEAVY}">')]),
        (rules.small_pictures, [("cells", 2, "outputs", PICTURES)]),
        (rules.rows_that_fit, [("cells", 5, "outputs", 0, "text", ROWS)]),
        (
            rules.nothing_of_this_machine,
            [("cells", 5, "outputs", 0, "text", ["saved to ", "/home/ada/course/model.pt\n"])],
        ),
        (rules.nothing_of_this_machine, [(*SHOWN, "text/plain", r"'C:\Users\ada'")]),
        (rules.nothing_of_this_machine, [(*SHOWN, "text/plain", "<Thing object at 0x7f3a5c0b2d90>")]),
    ],
)
def test_a_broken_notebook_breaks_that_rule_alone(rule, changes):
    notebook = changed(*changes)
    assert [each for each in rules.RULES if each(notebook)] == [rule]


def test_a_good_notebook_keeps_to_every_rule():
    assert [rule(GOOD) for rule in rules.RULES] == [[]] * len(rules.RULES)


@pytest.mark.parametrize(
    "source",
    ['views.Quiz("formats.count")', "views.LedgerView(networks)", 'views.check("decode_bits", decode_bits)'],
)
def test_a_prediction_a_control_or_an_exercise_breaks_a_stretch(source):
    notebook = changed(("cells", slice(1), NOTHING_TO_DO), ("cells", 6, "source", source))
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
