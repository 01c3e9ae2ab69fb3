"""Data files are read whole, and what is wrong in one is said with file, line, entry and key."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

import pytest

from amp_lessons._base.entries import read_entries
from amp_lessons.audit.explaining import Message
from amp_lessons.course.clinic import symptoms

RIGHT = """
- name: first
  patterns: [one, two]
  meaning: It means
    something.
  cure: "Do: that."
  lesson: "03"
  source: C++
"""


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Read texts as files of a package, ``0.yaml`` and so on."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "with_data").mkdir()
    (tmp_path / "with_data" / "__init__.py").touch()

    def read(*texts: str, kind: type = Message) -> tuple[object, ...]:
        for number, text in enumerate(texts):
            (tmp_path / "with_data" / f"{number}.yaml").write_text(text, "utf-8")
        return read_entries("with_data", [f"{number}.yaml" for number in range(len(texts))], kind)

    yield read
    sys.modules.pop("with_data", None)


def test_entries_become_dataclasses_in_the_order_of_the_files(read):
    second = RIGHT.replace("first", "second") + "  unless: [three]\n"
    one, two = read(RIGHT, second)
    assert one == Message("first", ("one", "two"), "It means something.", "Do: that.", "03", "C++")
    assert (two.name, two.unless) == ("second", ("three",))


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("cure:", "cur:", "0.yaml, line 2, 'first': unknown key 'cur'; did you mean cure?"),
        ("  source: C++\n", "", "0.yaml, line 2, 'first': source is missing"),
        ("source: C", "lesson: '02'\n  source: C", "0.yaml, line 2, 'first': lesson stands there twice"),
        (
            '"03"',
            "3",
            "0.yaml, line 2, 'first': lesson is text (in quotes, if it looks like a number or a date)",
        ),
        ("[one, two]", "one", "0.yaml, line 2, 'first': patterns is a list of text, not 'one'"),
        ("[one, two]", "[1]", "0.yaml, line 2, 'first': patterns is a list of text, not [1]"),
        ("[one, two]", "[(one]", "0.yaml, line 2, 'first': '(one' is no regular expression: missing )"),
        ('"Do: that."', "Do: that.", "0.yaml is no YAML: mapping values are not allowed"),
        (RIGHT, "name: first", "0.yaml: the file is a list of entries"),
        (RIGHT, "- first", "0.yaml, line 1: an entry is a mapping"),
        (RIGHT, "", "0.yaml: the file is a list of entries"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(read, right, wrong, said):
    assert right in RIGHT
    with pytest.raises(ValueError, match="^" + re.escape(said)):
        read(RIGHT.replace(right, wrong, 1))


def test_a_name_is_given_once_in_all_files(read):
    with pytest.raises(
        ValueError, match=r"^1\.yaml, line 2, 'first': there is an entry of this name already"
    ):
        read(RIGHT, RIGHT)


def test_an_answer_leads_to_an_end_or_to_a_question_above():
    def tree(then: object) -> symptoms.SymptomQuestion:
        return symptoms._tree(
            (symptoms.Entry("a", "Why?", {"so": "forward"}), symptoms.Entry("b", "What?", {"it": then}))
        )

    assert tree("a").answers[0].then.text == "Why?"
    assert (
        tree({"asks": "How?", "answers": {"so": "forward"}}).answers[0].then.answers[0].then.name == "forward"
    )
    for wrong in ("forwards", "b", None, {"asks": "How?"}):
        with pytest.raises(ValueError, match=r"'What\?': .* is no end, and no question above; "):
            tree(wrong)


def test_other_words_are_those_of_an_answer():
    def answer(said: dict[str, object]) -> symptoms.SymptomAnswer:
        return symptoms._tree((symptoms.Entry("a", "Why?", {"so": "forward"}, said),)).answers[0]

    assert (answer({}).said, answer({"so": ["thus"]}).said) == ((), ("thus",))
    with pytest.raises(ValueError, match=r"'Why\?': 'soo' is no answer; did you mean so"):
        answer({"soo": ["thus"]})


@dataclass(frozen=True)
class _Choice:
    name: str
    of: dict[str, object]


def test_a_field_may_be_a_mapping(read):
    assert read("- {name: x, of: {a: {b: c}}}", kind=_Choice) == (_Choice("x", {"a": {"b": "c"}}),)
    with pytest.raises(ValueError, match="of is a mapping whose keys are text"):
        read("- {name: x, of: {1: c}}", kind=_Choice)
