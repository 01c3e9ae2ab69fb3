"""``amp-lessons interview prove``: the cell behind an answer, run."""

from __future__ import annotations

import argparse

from amp_lessons.cli.interview.terminal import say
from amp_lessons.course import interview


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the argument of ``amp-lessons interview prove``."""
    parser.add_argument("question", metavar="QUESTION", help="its id, such as loss_scaling.why")


def run(args: argparse.Namespace) -> int:
    """Print question, answer, cell and output; 1 if the proof does not hold here."""
    try:
        question = interview.question(args.question)
    except KeyError as error:
        raise ValueError(f"{error.args[0]}; `amp-lessons interview cards --list` lists them all") from None
    proof = question.prove()
    say(question.question)
    print()
    say(question.answer)
    print(f"\n{proof}")
    return 0 if proof.holds else 1
