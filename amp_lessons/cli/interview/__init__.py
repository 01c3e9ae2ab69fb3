"""``amp-lessons interview``: flash cards, drills, code and a mock interview in a terminal.

Everything is asked and answered by lines of plain text, so that it works over ssh, in 80 columns, without
colours, and with answers that come from a pipe. Each answer is kept before the next question is asked.
"""

from __future__ import annotations

import argparse
import importlib
import sys

from amp_lessons.cli.interview import plan
from amp_lessons.course.progress import ProgressError

# name, help: the module of that name is imported when the command is called.
_WAYS = (
    ("cards", "flash cards that come back when you would begin to forget them"),
    ("mock", "a mock interview, with a clock and a report"),
    ("code", "code under a clock: to write, to review, to debug"),
    ("design", "a round of system design, whose constraints come in stages"),
    ("drill", "questions of fifty seconds each, with numbers drawn by a seed"),
    ("sheet", "one page with what to know by heart, to print"),
    ("export", "the questions for Anki, or as a table"),
    ("prove", "run the cell that shows that an answer is true"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the ways in, and the options of each."""
    parser.set_defaults(way=None)
    plan.add_arguments(parser)
    ways = parser.add_subparsers(title="ways in", metavar="WAY")
    for name, words in _WAYS:
        module = importlib.import_module(f"{__name__}.{name}")
        way = ways.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")
        module.add_arguments(way)
        way.set_defaults(way=module.run, parser=way)


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
        print(error.args[0] if isinstance(error, KeyError) else error, file=sys.stderr)
        return 1
