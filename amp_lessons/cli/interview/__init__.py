"""``amp-lessons interview``: flash cards, drills, code and a mock interview in a terminal.

Everything is asked and answered by lines of plain text, so that it works over ssh, in 80 columns, without
colours, and with answers that come from a pipe. Each answer is kept before the next question is asked.
"""

from __future__ import annotations

import argparse

from amp_lessons.cli import typed
from amp_lessons.cli.interview import answers, cards, code, plan, rounds
from amp_lessons.course.progress import ProgressError

# The function that declares its options, the one that is called, and help, by name.
_WAYS = {
    "cards": (cards.add_cards, cards.cards, "flash cards that come back when you would begin to forget them"),
    "mock": (rounds.add_mock, rounds.mock, "a mock interview, with a clock and a report"),
    "code": (code.add_arguments, code.run, "code under a clock: to write, to review, to debug"),
    "design": (
        rounds.add_design,
        rounds.design,
        "a round of system design, whose constraints come in stages",
    ),
    "drill": (cards.add_drill, cards.drill, "questions of fifty seconds each, with numbers drawn by a seed"),
    "sheet": (answers.add_sheet, answers.sheet, "one page with what to know by heart, to print"),
    "export": (answers.add_export, answers.export, "the questions for Anki, or as a table"),
    "prove": (answers.add_prove, answers.prove, "run the cell that shows that an answer is true"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the ways in, and the options of each."""
    parser.set_defaults(way=None)
    plan.add_arguments(parser)
    ways = parser.add_subparsers(title="ways in", metavar="WAY")
    for name, (add, go, words) in _WAYS.items():
        way = ways.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")
        add(way)
        way.set_defaults(way=go, parser=way)


def run(args: argparse.Namespace) -> int:
    """Go the chosen way, or show the plan; 1 with a sentence where that cannot be."""
    try:
        if args.way is not None:
            return args.way(args)
        if plan.wanted(args):
            return plan.run(args)
        args.parser.print_help()
        return 0
    except BrokenPipeError:  # nobody reads any more: the business of cli.main
        raise
    except (ProgressError, ValueError, KeyError, OSError) as error:
        return typed.refuse(error.args[0] if isinstance(error, KeyError) else error)
