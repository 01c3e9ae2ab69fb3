"""What a view puts below its cell: two outputs, of which the page shows the one that it can."""

from __future__ import annotations

import re
from html import unescape

import ipywidgets
import pytest
import torch
from IPython.core.formatters import DisplayFormatter

from amp_lessons import views
from amp_lessons.course import progress
from amp_lessons.course.views.base.shown import WIDGET_VIEW, Arrival
from tests.course.views.hands import readable

MAKE = {
    "view": lambda: views.BitView("0.1", "fp16"),
    "moving view": lambda: views.CensusView(torch.ones(3)),
    "quiz": lambda: views.Quiz("scaling.floor"),
    "card": lambda: views.ExerciseCard("decode_bits"),
}


@pytest.fixture(params=MAKE)
def shown(request):
    return MAKE[request.param]()


@pytest.fixture
def outputs(monkeypatch):
    """Collect what is put below the cell."""
    published = []
    by_name = {}

    def publish(data, name=None, *, anew=False):
        if not anew:
            by_name[name] = data
            published.append(data)
        elif name in by_name:  # a view of an earlier test counts too
            by_name[name].update(data)

    monkeypatch.setattr("amp_lessons.course.views.base.shown.publish", publish)
    return published


@pytest.fixture(params=["ipywidgets 7", "ipywidgets 8"])
def page(request, monkeypatch):
    """A page that shows what the kernel publishes, whatever its version."""
    monkeypatch.setattr("amp_lessons.course.views.base.shown.has_page", lambda: True)
    if request.param == "ipywidgets 7":
        # There a widget puts itself on the page, and knows nothing of bundles.
        monkeypatch.delattr(ipywidgets.Widget, "_repr_mimebundle_", raising=False)


@pytest.fixture
def no_page(monkeypatch):
    """A program that runs the cells."""
    monkeypatch.setattr("amp_lessons.course.views.base.shown.has_page", lambda: False)


def displayed(thing):
    """Return the bundle that IPython makes of the last line of a cell; empty if it was displayed already."""
    return DisplayFormatter().format(thing)[0]


def rules_of(shown):
    """Return the rules that a view, once on the page, puts there."""
    return [each.rules for each in shown.children if isinstance(each, Arrival)]


def test_where_there_is_no_page_one_output_holds_everything(shown, outputs, no_page):
    bundle = displayed(shown)
    assert bundle[WIDGET_VIEW]["model_id"] == shown.model_id
    assert bundle["text/plain"]
    assert outputs == []


def test_on_a_page_something_to_read_comes_first_and_then_the_controls_hidden_until_they_arrive(
    shown, outputs, page
):
    assert displayed(shown) == {}
    still, live = outputs
    assert {*still} == {"text/html", "text/plain"}
    assert still["text/plain"]
    assert readable(still["text/html"]).startswith("To get the controls, click here, then menu ")
    view = {"version_major": 2, "version_minor": 0, "model_id": shown.model_id}
    assert live == {WIDGET_VIEW: view, "text/plain": ""}
    (name,) = (each for each in shown._dom_classes if each.startswith("amp-live-"))
    assert f".{name} {{ display: none !important }}" in still["text/html"]
    (rules,) = rules_of(shown)
    assert f".{name}.{name}:not(.jupyter-widgets-disconnected) {{ display: flex !important }}" in rules
    (hidden,) = re.findall(r"\.(amp-stand-in-\w+) { display: none }", rules)
    assert f'<div class="{hidden}">' in still["text/html"]
    assert '[data-jp-theme-light=false] { --jp-widgets-dropdown-arrow: url("data:image/svg+xml,' in rules
    displayed(shown)
    assert outputs[:2] == outputs[2:], "shown again it is the same"
    assert len({*shown.children}) == len(shown.children)


def test_a_view_that_replaces_its_controls_stays_shown(outputs, page):
    view = views.DrillView()
    displayed(view)
    rules = rules_of(view)
    controls = view.children
    view.start()
    assert view.children != controls
    assert rules_of(view) == rules
    assert view.children[0] is controls[0]  # what comes first is not drawn anew


def test_what_has_no_controls_is_no_widget_on_a_page(outputs, page):
    still = views.curves({"fp32": [2.0, 1.0]}, "Falling.")
    displayed(still)
    (shown,) = outputs
    assert WIDGET_VIEW not in shown
    assert readable(shown["text/html"]) == "Falling."


def test_a_view_stands_in_as_its_picture_with_its_caption_and_without_one_as_its_sentence(outputs, page):
    view = views.CensusView(torch.ones(3))
    displayed(view)
    html = outputs[0]["text/html"]
    assert html.count('src="data:image/png;base64,') == 1
    assert readable(html).endswith(view.caption)
    view._picture = None
    view.say("Nothing to draw.")
    displayed(view)
    assert readable(outputs[2]["text/html"]).endswith("Nothing to draw.")


def test_a_question_and_a_task_can_be_read_and_answer_and_hints_unfolded_and_not_the_solution(outputs, page):
    quiz, card = views.Quiz("scaling.floor"), views.ExerciseCard("decode_bits")
    displayed(quiz)
    displayed(card)
    asked, task = (each["text/html"] for each in outputs if "text/html" in each)
    assert quiz.question.text in readable(asked)
    for letter, choice in zip("abc", quiz.question.choices, strict=False):
        assert f"{letter}) {choice.text}" in readable(asked)
    before, _, after = asked.partition("<details>")
    assert quiz.question.answer.why in readable(after)
    assert quiz.question.answer.why not in readable(before)
    assert card.exercise.title in readable(task)
    assert [task.count(f"<summary>Hint {n}</summary>") for n in range(5)] == [0, 1, 1, 1, 0]
    assert card.exercise.solution_source not in task
    assert 'exercises.solution("decode_bits")' in unescape(task)


def test_what_stands_in_knows_the_next_morning_what_was_done(outputs, page):
    quiz, card, strip = (
        views.Quiz("formats.count"),
        views.ExerciseCard("decode_bits"),
        views.LessonEnd("01"),
    )
    for each in (quiz, card, strip):
        displayed(each)
    still = [each["text/html"] for each in outputs if "text/html" in each]
    assert "your first answer" not in readable(still[0]).lower()
    assert "So far" not in readable(still[1])
    way_on = outputs[-1]
    assert "Next: [lesson 02" in way_on["text/markdown"]
    quiz.choose("a")
    views.check("decode_bits", card.exercise.solution)
    still = [readable(each["text/html"]) for each in outputs if "text/html" in each]
    right = "right" if quiz.question.choices[0].right else "not right"
    chosen = f"a) {quiz.question.choices[0].text} ← your first answer, on {progress.utc_now().date()}"
    assert f"{chosen}: {right}" in still[0]
    assert still[0].count("your first answer") == 1
    assert "So far: solved" in still[1]
    assert "1 of 1 exercise solved" in still[2]
    assert "due" not in still[2], "on another day another"
    assert "lesson 01, the question in" in way_on["text/markdown"]


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("from amp_lessons import views\nviews.Map()", "Controls: click here, then Shift+Enter"),
        ("views.Map()", "To get the controls, click here, then menu Run"),
    ],
)
def test_how_to_get_the_controls_says_to_run_what_is_above_only_where_that_is_needed(
    shown, outputs, page, monkeypatch, code, how
):
    monkeypatch.setattr("amp_lessons.course.views.base.again.code_of_cell", lambda: code)
    displayed(shown)
    monkeypatch.setattr("amp_lessons.course.views.base.again.code_of_cell", lambda: "another cell")
    shown.renew_stand_in()
    assert readable(outputs[0]["text/html"]).startswith(how)


def test_a_closed_view_is_no_error(outputs, page):
    view = views.CensusView(torch.ones(3))
    view.close()
    assert "text/plain" in displayed(view)
    assert outputs == []


def test_a_card_answers_where_a_button_cannot_take_the_focus(monkeypatch):
    monkeypatch.delattr(ipywidgets.DOMWidget, "focus", raising=False)
    card = views.ExerciseCard("decode_bits")
    card._solution_button.click()
    card._question._answer(True)
    assert card._solution_html.value
