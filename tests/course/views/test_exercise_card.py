import html
import re

import pytest

from amp_lessons import exercises, views
from amp_lessons.course import progress
from amp_lessons.course.exercises import shelf
from tests.course.views.hands import press


@pytest.fixture
def card():
    return views.ExerciseCard("decode_bits")


def page(card):
    """All that the card shows, as one HTML text."""

    def html(widget):
        if getattr(widget.layout, "display", None) == "none":
            return ""
        return getattr(widget, "value", "") + "".join(
            html(child) for child in getattr(widget, "children", ())
        )

    return html(card)


def test_hints_seen_on_another_day_stay_open_and_a_solution_gives_no_other_ways_away():
    exercises.hint("decode_bits", 1)
    exercises.solution("decode_bits")
    card = views.ExerciseCard("decode_bits")
    assert card.status == "So far: 1 hint, solution seen."
    assert other_ways(card) == []
    card.hint(2)
    assert card.status == "So far: 2 hints, solution seen."


def other_ways(card):
    return re.findall(r"<details><summary>Another way: (.*?)</summary>", page(card))


def test_a_solution_can_be_copied_as_it_is_and_other_ways_stand_folded_below_it(card):
    titles = [way.title for way in card.exercise.other_ways]
    assert other_ways(card) == []
    card.show_solution()
    assert other_ways(card) == titles
    source = re.findall(r"<pre[^>]*>(.*?)</pre>", page(card), re.DOTALL)[0]
    text = html.unescape(re.sub(r"<[^>]+>", "", source))
    assert text.strip() == exercises.solution("decode_bits").source.strip()
    folded = page(card).split("<details><summary>Another way: ")[1]
    assert "<span style=" in folded, "coloured as the solution is"
    assert f'aria-label="Source of another way: {titles[0]}"' in folded


def test_once_it_is_solved_other_ways_are_shown_and_the_solution_gives_nothing_away(card):
    views.check("decode_bits", lambda bits, exponent_bits, mantissa_bits: 0.0)
    assert other_ways(card) == []
    views.check("decode_bits", exercises.solution("decode_bits").function)
    solved = views.ExerciseCard("decode_bits")
    assert len(other_ways(card)) == len(other_ways(solved)) >= 2
    assert "hidden 1 is a bit of precision" not in page(card)
    press(solved, "Show solution")
    assert "gives the whole answer away" not in page(solved)
    assert "hidden 1 is a bit of precision" in page(solved)


def test_it_says_what_has_been_done(card):
    assert card.status == "Not started yet."
    views.check("decode_bits", lambda bits, exponent_bits, mantissa_bits: 0.0)
    before = page(card)
    assert card.status in before
    assert card.status == "So far: 1 try, 1 hint."
    views.check("largest_safe_scale", lambda gradients: 1.0)
    assert page(card) == before, "that was another exercise"
    press(card, "Hint 1")
    views.check("decode_bits", exercises.solution("decode_bits").function)
    assert re.search(r"So far: solved \d{4}-\d\d-\d\d, 2 tries, 1 hint", page(card))


def test_progress_that_cannot_be_read_is_said_and_stops_nobody(card, progress_home, monkeypatch):
    def unreadable():
        raise progress.ProgressError("progress cannot be read: no such disk")

    monkeypatch.setattr(progress, "read", unreadable)
    card.refresh()
    assert "no such disk" in page(card)
    press(card, "Hint 1")
    press(card, "Hint 2")
    assert "Hint 2 of 3" in page(card)


def test_without_a_kernel_task_and_hints_can_be_read_and_the_solution_not():
    for exercise in shelf.exercises():
        shown = views.ExerciseCard(exercise.id)._repr_mimebundle_()
        plain, markdown = shown["text/plain"], shown["text/markdown"]
        assert all(words in plain for words in (exercise.title, exercise.task, exercise.asks)), exercise.id
        assert markdown.count("<details>") == 4, exercise.id
        assert exercise.explanation not in plain + markdown, exercise.id


def test_what_is_stored_does_not_depend_on_what_was_done(card):
    texts = ("text/plain", "text/markdown")
    before = [card._repr_mimebundle_()[mime] for mime in texts]
    exercises.check("decode_bits", exercises.solution("decode_bits").function)
    exercises.hint("decode_bits", 2)
    again = views.ExerciseCard("decode_bits")
    assert [again._repr_mimebundle_()[mime] for mime in texts] == before


def test_a_progress_file_damaged_while_the_card_is_open_is_named(card, progress_home):
    progress_home.mkdir()
    progress.path().write_text("{")
    press(card, "Hint 1")
    assert page(card).count("progress.damaged-") == 1
    progress.path().write_text("{")
    card.show_solution()
    assert page(card).count("progress.damaged-") == 2
