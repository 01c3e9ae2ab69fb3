"""The questions about symptoms as buttons: forward, back, to an end; and the table without a kernel."""

from __future__ import annotations

import pytest

from amp_lessons import views
from amp_lessons.course.clinic.symptoms import SYMPTOMS, paths
from tests.course.views.hands import press


@pytest.fixture
def tree():
    return views.SymptomTree()


def seen(tree):
    return [made.description for made in tree._buttons if made.layout.display != "none"]


def test_every_way_can_be_pressed_to_its_end(tree):
    for path in paths():
        tree.start_again()
        for _, answer in path.answered:
            assert answer.text in seen(tree)
            press(tree, answer.text)
        assert tree.end is path.end
        assert seen(tree) == []
        assert path.end.cause.split("'")[0][:30] in tree.children[0].value


def test_at_an_end_there_is_no_answer_and_its_lines_are_for_a_new_cell(tree, monkeypatch):
    cells = []
    assert "answer the questions first" in tree.next_cell()
    tree.answer("the memory is full")
    tree.answer("in the first or second step")
    with pytest.raises(ValueError, match="this is an end"):
        tree.answer("yes")
    code = tree.end.code
    assert tree.next_cell() == code, "elsewhere than in a notebook"
    shell = type("Shell", (), {"set_next_input": lambda self, code: cells.append(code)})
    monkeypatch.setattr("amp_lessons.course.views.widgets.symptoms.get_ipython", shell)
    tree.next_cell()
    tree.start_again()
    tree.next_cell()
    assert cells == [code]


def test_without_a_kernel_every_way_can_be_read_and_what_was_answered(tree):
    bundle = tree._repr_mimebundle_()
    rows = [line for line in bundle["text/markdown"].splitlines() if line.startswith("- ")]
    assert len(rows) == len(list(paths())) == tree.stand_in().count("<li>")
    assert all(f"**{path.end.cause}**" in row for path, row in zip(paths(), rows, strict=True))
    first = (
        "fp16, with fp32 weights · From when on? from the first batch · What is the loss of the same batch"
    )
    assert rows[0].startswith("- In which dtype is the forward pass?")
    assert first in rows[0]
    assert "finite, and below 65,504? yes" in bundle["text/markdown"]
    assert bundle["text/plain"].splitlines()[:2] == [SYMPTOMS.text, "- the loss is NaN or inf"]
    tree.answer("the loss is flat")
    assert "<em>the loss is flat</em>" in tree.children[0].value
    assert tree._repr_mimebundle_()["text/plain"].startswith(f"{SYMPTOMS.text} the loss is flat\n")
