"""``amp-lessons interview cards`` and ``drill``: answers to say aloud and grade, quick ones by a clock."""

from __future__ import annotations

import argparse
import contextlib
import time

from amp_lessons._base.text.charts import charted
from amp_lessons._base.text.words import counted, power_of_two
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
    started,
)
from amp_lessons.course import clinic, exercises, interview
from amp_lessons.course.interview import Card, Deck, Drill
from amp_lessons.course.interview.deck import NEW_A_DAY, suggested_grade, wait
from amp_lessons.course.interview.drilling import KINDS, score
from amp_lessons.course.progress import GRADES, utc_now

_LETTERS = "abcdefgh"


def add_cards(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``amp-lessons interview cards``."""
    parser.add_argument("--topic", action="append", choices=interview.TOPICS, help="only these topics")
    parser.add_argument("--level", action="append", choices=interview.LEVELS, help="only these levels")
    parser.add_argument(
        "--new", type=typed.whole(0), default=NEW_A_DAY, metavar="N", help="new cards a day (default: 10)"
    )
    parser.add_argument(
        "--list", action="store_true", help="ask nothing: list the cards, and when each is due"
    )


def cards(args: argparse.Namespace) -> int:
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


def add_drill(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``amp-lessons interview drill``."""
    parser.add_argument(
        "--seed", type=typed.whole(None), help="draw the same questions again (default: others each time)"
    )
    parser.add_argument(
        "--number", type=typed.whole(), default=8, metavar="N", help="how many questions (default: 8)"
    )
    parser.add_argument("--kind", choices=KINDS, help="only of this kind (default: of each in turn)")


def drill(args: argparse.Namespace) -> int:
    """Ask so many questions, say after each why, and at last how many were right and in time."""
    seed = int(time.time()) if args.seed is None else args.seed
    if args.kind:
        drawn = [interview.drill(1000 * seed + i, args.kind) for i in range(args.number)]
    else:
        drawn = list(interview.drills(seed, args.number))
    say(HOW_TO_LEAVE)
    if not started(f"{counted(len(drawn), 'question')}, each with a clock"):
        return 0
    right = in_time = asked = 0
    try:
        for each in drawn:
            if asked:
                ask("Press Enter for the next one:")
            answered, seconds = _ask_drill(each)
            asked, right = asked + 1, right + answered
            in_time += answered and seconds <= each.seconds
    except InputOver:
        pass
    say(f"{score(right, in_time, asked)} The same questions again: --seed {seed}")
    return 0


def _ask_drill(drill: Drill) -> tuple[bool, float]:
    """Ask one question; return whether the answer is right, and after how many seconds it came."""
    rule(f"{drill.kind}, {drill.seconds} seconds")
    say(drill.question.text.replace("`", ""))
    if drill.curve:
        _say_curve(clinic.loss_curve(drill.curve))
    letters = _LETTERS[: len(drill.question.choices)]
    for letter, choice in zip(letters, drill.question.choices, strict=True):
        say(choice.text, f"  {letter}) ")
    began = time.monotonic()
    chosen = drill.question.choices[letters.index(ask_for("Your answer:", letters))]
    seconds = time.monotonic() - began
    answer = drill.question.answer
    verdict = "Yes." if chosen.right else f"No: {letters[drill.right]}) {answer.text}."
    late = f" That took {seconds:.0f} seconds." if seconds > drill.seconds else ""
    say(f"{verdict} {answer.why}{late}")
    return chosen.right, seconds


def _say_curve(curve: clinic.LossCurve) -> None:
    """Print the curve, all its points, and losses and scales at some, from the first step to the last."""
    print("\n".join(f"  {line}" for line in charted({"loss": curve.losses, **curve.beside})))
    places = [round(i * (len(curve.losses) - 1) / 6) for i in range(7)]
    rows = {"step": [str(place + 1) for place in places]}
    for name, values in {"loss": curve.losses, **curve.beside}.items():
        rows[name] = [f"{values[place]:.3g}" for place in places]
    if curve.scales:
        rows["loss scale"] = [power_of_two(curve.scales[place]) for place in places]
    names, widest = max(map(len, rows)), max(len(text) for row in rows.values() for text in row)
    for name, row in rows.items():
        print(f"  {name:{names}}", *(f"{text:>{widest}}" for text in row))
