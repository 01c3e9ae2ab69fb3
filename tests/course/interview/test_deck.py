"""Flash cards: what comes first, what comes back, and whose they are."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from amp_lessons import interview
from amp_lessons.course import progress
from amp_lessons.course.interview.deck import Deck, suggested_grade, wait
from tests.course.keep import keep

START = datetime(2026, 3, 2, 9, 0, tzinfo=timezone.utc)


@pytest.fixture
def deck(clock):
    clock.at = START
    return Deck(now=clock)


def test_every_question_is_a_card_and_the_easy_ones_come_first(deck):
    assert {card.id for card in deck.cards} == {question.id for question in interview.QUESTIONS}
    assert deck.next().question.level == "entry"
    assert deck.due() == ()
    assert str(deck) == f"{len(deck.cards)} cards: 0 to repeat now, 10 new ones for today"


def test_a_card_known_well_comes_back_as_fsrs_plans_it(deck, clock):
    first = deck.next().id
    for days in (0, 2, 11, 46):  # its published intervals
        graded = deck.grade(first, "good")
        assert (graded.due_at - clock.at).days == days
        assert first not in {card.id for card in deck.due()}
        clock.at = graded.due_at
        assert deck.next().id == first


def test_what_is_forgotten_comes_back_within_minutes_and_before_anything_new(deck, clock):
    first = deck.next().id
    deck.grade(first, "again")
    assert deck.next().id != first
    assert str(deck).endswith("0 to repeat now, 9 new ones for today; the next comes back in 1 minute")
    clock.at += timedelta(minutes=2)
    assert deck.next().id == deck.due()[0].id == first


def test_the_longest_overdue_comes_first(deck, clock):
    early, late = (card.id for card in deck.new()[:2])
    deck.grade(late, "easy")
    clock.at += timedelta(days=1)
    deck.grade(early, "hard")
    clock.at += timedelta(days=40)
    assert [card.id for card in deck.due()] == [early, late]


def test_a_day_has_room_for_so_many_new_cards(clock):
    clock.at = START
    deck = Deck(now=clock, new_a_day=2)
    while card := deck.next():
        deck.grade(card.id, "easy")
    assert len(progress.read().reviews) == 2
    clock.at += timedelta(days=1)
    assert len(deck.new()) == 2


def test_a_deck_of_one_topic_level_or_lesson():
    asked = [card.question for card in Deck("loss_scaling", ["senior"]).cards]
    assert {(each.topic, each.level) for each in asked} == {("loss_scaling", "senior")}
    assert {card.question.lesson for card in Deck(lessons="03").cards} == {"03"}


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"lessons": "3"}, "no lesson with questions '3'; did you mean 03"),
        ({"topics": ["loss_skaling"]}, "no topic 'loss_skaling'; did you mean loss_scaling"),
        ({"levels": "junior"}, "no level 'junior'"),
    ],
)
def test_a_deck_of_what_is_not_there_is_refused(chosen, said):
    with pytest.raises(ValueError, match=said):
        Deck(**chosen)


def test_a_question_for_a_number_draws_another_each_time(deck):
    drawn = set()
    for _ in range(6):
        card = deck.card("estimation.training_state")
        estimate = interview.estimate(card.id, len(card.reviews))
        assert (card.front, card.back) == (estimate.question, estimate.answer)
        drawn.add(card.front)
        deck.grade(card.id, "good")
    assert len(drawn) > 1


def test_the_waits_are_those_that_grading_leads_to(deck, clock):
    card = deck.next()
    for grade, waits in deck.waits(card).items():
        keep("forget")
        assert deck.grade(card.id, grade).due_at - clock.at == waits


def test_a_grade_or_card_that_is_none_is_refused_and_nothing_is_kept(deck):
    with pytest.raises(ValueError, match="a grade is one of"):
        deck.grade("loss_scaling.why", "perfect")
    with pytest.raises(KeyError, match=r"did you mean loss_scaling\.why"):
        deck.grade("loss_scaling.whi", "good")
    assert progress.read().reviews == {}


def test_damage_is_told(deck, progress_home):
    progress_home.mkdir()
    progress.path().write_text("{")
    assert deck.next() is not None
    assert "progress.damaged-" in deck.message


@pytest.mark.parametrize(("covered", "grade"), [(0, "again"), (1, "again"), (2, "hard"), (3, "good")])
def test_the_rubric_suggests_a_grade(covered, grade):
    assert suggested_grade(covered, 3) == grade


@pytest.mark.parametrize(
    ("minutes", "words"), [(0, "1 minute"), (10, "10 minutes"), (60, "1 hour"), (11 * 24 * 60, "11 days")]
)
def test_waits_in_words(minutes, words):
    assert wait(timedelta(minutes=minutes)) == words
