import pytest
from nbconvert.filters.markdown_mistune import markdown2html_mistune

from amp_lessons import exercises
from amp_lessons._base.text import prose
from amp_lessons.course.exercises import shelf


def test_code_between_backticks_is_code_and_nothing_else_is_markup():
    assert prose.as_html("take `a < b` & <i>") == "take <code>a &lt; b</code> &amp; &lt;i&gt;"


@pytest.mark.parametrize(
    "text",
    ["2**n, then 3**m", "*all* of _it_", "a <b> c", "`a*b*c` * d", "one ` alone", "back\\slash \\* `\\`"],
)
def test_markdown_shows_what_was_written(text):
    shown = markdown2html_mistune(prose.as_markdown(text))
    assert shown.strip() == f"<p>{prose.as_html(text)}</p>"


def test_without_the_escapes_a_power_would_turn_bold():
    assert "<strong>" in markdown2html_mistune("2**n, then 3**m")


def test_paragraphs_and_lists_stay_what_they_are():
    text = "Write `f`:\n\n- `a < b`\n- 2**n\n\nThat is all."
    shown = (
        "<p>Write <code>f</code>:</p><ul><li><code>a &lt; b</code></li><li>2**n</li></ul><p>That is all.</p>"
    )
    assert "".join(prose.blocks_as_html(text).splitlines()) == shown
    assert "".join(markdown2html_mistune(prose.as_markdown(text)).splitlines()) == shown


@pytest.mark.parametrize(
    "exercise", [*exercises.catalog(), *shelf.interview_tasks()], ids=lambda exercise: exercise.id
)
def test_the_exercises_close_what_they_open(exercise):
    for text in (exercise.task, exercise.asks, *exercise.hints, exercise.explanation):
        assert text.count("`") % 2 == 0
        assert "`" not in prose.as_html(text)
