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


def hint_button(card, number):
    return card._hint_buttons[number]


def page(card):
    """All that the card shows, as one HTML text."""

    def html(widget):
        if getattr(widget.layout, "display", None) == "none":
            return ""
        return getattr(widget, "value", "") + "".join(
            html(child) for child in getattr(widget, "children", ())
        )

    return html(card)


def test_it_says_what_to_write_how_hard_and_how_long(card):
    for words in ("From bits to a value", "difficulty 2 of 5", "15 minutes", "Mind subnormal numbers"):
        assert words in page(card)


def test_hints_open_one_after_the_other(card):
    assert [hint_button(card, n).disabled for n in (1, 2, 3)] == [False, True, True]
    press(card, "Hint 1")
    assert [hint_button(card, n).disabled for n in (1, 2, 3)] == [False, False, True]
    assert "Hint 1 of 3" in page(card)
    assert "Hint 2 of 3" not in page(card)
    press(card, "Hint 2")
    assert not hint_button(card, 3).disabled
    with pytest.raises(ValueError, match="1, 2, 3"):
        card.hint(4)


def test_a_repeated_hint_neither_counts_nor_shows_twice(card):
    for _ in range(3):
        press(card, "Hint 1")
    assert page(card).count("Hint 1 of 3") == 1
    assert progress.read().of("decode_bits").hints == 1


def test_hints_seen_on_another_day_stay_open():
    exercises.hint("decode_bits", 1)
    card = views.ExerciseCard("decode_bits")
    assert card.status == "So far: 1 hint."
    card.hint(2)
    assert card.status == "So far: 2 hints."


def test_the_solution_asks_first(card):
    press(card, "Show solution")
    assert "gives the whole answer away" in page(card)
    assert "hidden 1 is a bit of precision" not in page(card)
    press(card, "Keep trying")
    assert "gives the whole answer away" not in page(card)
    assert not progress.read().of("decode_bits").solution_seen
    press(card, "Show solution")
    press(card, "Show it anyway")
    assert "gives the whole answer away" not in page(card)
    assert "hidden 1 is a bit of precision" in page(card)
    assert progress.read().of("decode_bits").solution_seen


def test_the_solution_can_be_copied_as_it_is(card):
    card.show_solution()
    source, *ways = re.findall(r"<pre[^>]*>(.*?)</pre>", page(card), re.DOTALL)
    assert len(ways) == len(card.exercise.other_ways)
    assert "<span" in source
    text = html.unescape(re.sub(r"<[^>]+>", "", source))
    assert text.strip() == exercises.solution("decode_bits").source.strip()


def test_after_it_is_solved_the_solution_gives_nothing_away(card):
    exercises.check("decode_bits", exercises.solution("decode_bits").function)
    solved = views.ExerciseCard("decode_bits")
    press(solved, "Show solution")
    assert "gives the whole answer away" not in page(solved)
    assert "hidden 1 is a bit of precision" in page(solved)


def other_ways(card):
    return re.findall(r"<details><summary>Another way: (.*?)</summary>", page(card))


def test_other_ways_are_shown_folded_below_the_solution(card):
    titles = [way.title for way in card.exercise.other_ways]
    assert len(titles) >= 2
    assert other_ways(card) == []
    for number in (1, 2, 3):
        press(card, f"Hint {number}")
    press(card, "Show solution")
    assert other_ways(card) == [], "nothing is given away while the question is open"
    press(card, "Show it anyway")
    assert other_ways(card) == titles
    assert page(card).index("hidden 1 is a bit of precision") < page(card).index(titles[0])
    folded = page(card).split("<details><summary>Another way: ")[1]
    assert "<span style=" in folded, "coloured as the solution is"
    assert f'aria-label="Source of another way: {titles[0]}"' in folded


def test_other_ways_are_shown_once_it_is_solved_without_the_solution(card):
    views.check("decode_bits", lambda bits, exponent_bits, mantissa_bits: 0.0)
    assert other_ways(card) == []
    views.check("decode_bits", exercises.solution("decode_bits").function)
    assert len(other_ways(card)) == len(other_ways(views.ExerciseCard("decode_bits"))) >= 2
    assert "hidden 1 is a bit of precision" not in page(card)


def test_a_solution_seen_on_another_day_does_not_give_other_ways_away():
    exercises.solution("decode_bits")
    assert other_ways(views.ExerciseCard("decode_bits")) == []


def test_it_says_what_has_been_done(card):
    assert card.status == "Not started yet."
    views.check("decode_bits", lambda bits, exponent_bits, mantissa_bits: 0.0)
    assert card.status == "So far: 1 try, 1 hint."
    assert "So far: 1 try, 1 hint." in page(card)
    press(card, "Hint 1")
    views.check("decode_bits", exercises.solution("decode_bits").function)
    assert re.search(r"So far: solved \d{4}-\d\d-\d\d, 2 tries, 1 hint", page(card))


def test_a_check_of_another_exercise_leaves_it_alone(card):
    before = page(card)
    views.check("largest_safe_scale", lambda gradients: 1.0)
    assert page(card) == before


def test_progress_that_cannot_be_read_is_said_and_stops_nobody(card, progress_home, monkeypatch):
    def unreadable():
        raise progress.ProgressError("progress cannot be read: no such disk")

    monkeypatch.setattr(progress, "read", unreadable)
    card.refresh()
    assert "no such disk" in page(card)
    press(card, "Hint 1")
    press(card, "Hint 2")
    assert "Hint 2 of 3" in page(card)


def test_a_damaged_progress_file_is_named(progress_home):
    progress_home.mkdir()
    (progress_home / "progress.json").write_text("{")
    assert "progress.damaged-" in views.ExerciseCard("decode_bits").status


@pytest.mark.parametrize("exercise", shelf.exercises(), ids=lambda exercise: exercise.id)
def test_without_a_kernel_task_and_hints_can_be_read_and_the_solution_not(exercise):
    shown = views.ExerciseCard(exercise.id)._repr_mimebundle_()
    assert exercise.title in shown["text/plain"]
    assert exercise.task in shown["text/plain"]
    assert exercise.asks in shown["text/plain"]
    assert shown["text/markdown"].count("<details>") == 4
    assert exercise.explanation not in "".join(shown[mime] for mime in ("text/plain", "text/markdown"))


def test_what_is_stored_does_not_depend_on_what_was_done(card):
    texts = ("text/plain", "text/markdown")
    before = [card._repr_mimebundle_()[mime] for mime in texts]
    exercises.check("decode_bits", exercises.solution("decode_bits").function)
    exercises.hint("decode_bits", 2)
    again = views.ExerciseCard("decode_bits")
    assert [again._repr_mimebundle_()[mime] for mime in texts] == before


def test_as_text_it_says_the_hints_that_were_opened(card):
    card.hint(1)
    assert card._repr_mimebundle_()["text/plain"].endswith(str(exercises.hint("decode_bits", 1)))


def test_a_progress_file_damaged_while_the_card_is_open_is_named(card, progress_home):
    progress_home.mkdir()
    progress.path().write_text("{")
    press(card, "Hint 1")
    assert page(card).count("progress.damaged-") == 1
    progress.path().write_text("{")
    card.show_solution()
    assert page(card).count("progress.damaged-") == 2
