"""``amp-lessons interview cards``: say an answer aloud, compare it, grade yourself."""

from __future__ import annotations

import argparse
import contextlib

from amp_lessons.cli import typed
from amp_lessons.cli.interview.terminal import (
    HOW_TO_LEAVE,
    InputOver,
    TakenBack,
    ask,
    ask_for,
    ask_points,
    rule,
    say,
    say_list,
)
from amp_lessons.course import exercises, interview
from amp_lessons.course.interview import Card, Deck
from amp_lessons.course.interview.deck import NEW_A_DAY, suggested_grade, wait
from amp_lessons.course.progress import GRADES, utc_now


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``amp-lessons interview cards``."""
    parser.add_argument("--topic", action="append", choices=interview.TOPICS, help="only these topics")
    parser.add_argument("--level", action="append", choices=interview.LEVELS, help="only these levels")
    parser.add_argument(
        "--new", type=typed.whole(0), default=NEW_A_DAY, metavar="N", help="new cards a day (default: 10)"
    )
    parser.add_argument(
        "--list", action="store_true", help="ask nothing: list the cards, and when each is due"
    )


def run(args: argparse.Namespace) -> int:
    """Ask card after card until nothing is due, or nobody answers; each grade is kept at once."""
    deck = Deck(args.topic or interview.TOPICS, args.level or interview.LEVELS, new_a_day=args.new)
    if args.list:
        for card in deck.cards:
            due = f"due {card.due_at:%Y-%m-%d}" if card.due_at else "new"
            print(f"{card.id:40}  {card.question.level:6}  {due}")
        return 0
    say(f"{deck}. u takes your last grade back. {HOW_TO_LEAVE}")
    for exercise in exercises.due_for_repetition():
        say(f"An exercise is due, too: {exercise.id}, lesson {exercise.lesson}.")
    practised: list[str] = []
    with contextlib.suppress(InputOver):
        _practise_all(deck, practised)
    say(f"Practised: {len(practised)}. {deck}.")
    if deck.message:
        say(deck.message)
    return 0


def _practise_all(deck: Deck, practised: list[str]) -> None:
    """Ask cards until none is due, and write down which; a card whose grade is taken back is asked again."""
    card = deck.next()
    while card:
        try:
            _practise(deck, card)
            practised.append(card.id)
            card = deck.next()
        except TakenBack:
            if not practised:
                say("There is nothing to take back yet.")
                continue
            deck.take_back(practised[-1])
            card = deck.card(practised.pop())
            say("Taken back.")


def _practise(deck: Deck, card: Card) -> None:
    rule(f"{card.question.topic}, {card.question.level}")
    say(card.front)
    print()
    ask("Say your answer aloud, then press Enter:", may_undo=True)
    print()
    say(card.back)
    print("\nA good answer covers:")
    say_list(card.points)
    print()
    say(f"A weak one: {card.question.weak_answer}")
    print()
    covered = ask_points(card.points)
    waits = deck.waits(card)
    say("It comes back: " + ", ".join(f"{grade} in {wait(waits[grade])}" for grade in GRADES) + ".")
    suggested = suggested_grade(len(covered), len(card.points))
    while (
        grade := ask_for(f"Your grade, or proof [{suggested}]:", (*GRADES, "proof"), suggested, may_undo=True)
    ) == "proof":
        print(f"\n{card.prove()}\n", flush=True)
    graded = deck.grade(card.id, grade)
    away = wait(graded.due_at - utc_now())
    say(" ".join(filter(None, [f"It comes back in {away}.", graded.message])))
