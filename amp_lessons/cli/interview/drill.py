"""``amp-lessons interview drill``: quick questions against the clock."""

from __future__ import annotations

import argparse
import time

from amp_lessons._base.text.charts import charted
from amp_lessons._base.text.words import counted, power_of_two
from amp_lessons.cli import typed
from amp_lessons.cli.interview.terminal import (
    HOW_TO_LEAVE,
    InputOver,
    ask,
    ask_for,
    rule,
    say,
    started,
)
from amp_lessons.course import clinic, interview
from amp_lessons.course.interview import Drill
from amp_lessons.course.interview.drilling import KINDS, score

_LETTERS = "abcdefgh"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``amp-lessons interview drill``."""
    parser.add_argument(
        "--seed", type=typed.whole(None), help="draw the same questions again (default: others each time)"
    )
    parser.add_argument(
        "--number", type=typed.whole(), default=8, metavar="N", help="how many questions (default: 8)"
    )
    parser.add_argument("--kind", choices=KINDS, help="only of this kind (default: of each in turn)")


def run(args: argparse.Namespace) -> int:
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
        for drill in drawn:
            if asked:
                ask("Press Enter for the next one:")
            answered, seconds = _ask(drill)
            asked, right = asked + 1, right + answered
            in_time += answered and seconds <= drill.seconds
    except InputOver:
        pass
    say(f"{score(right, in_time, asked)} The same questions again: --seed {seed}")
    return 0


def _ask(drill: Drill) -> tuple[bool, float]:
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
