"""``amp-lessons interview export``: the questions for Anki, or as a table."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from amp_lessons._base.text.bars import with_bar
from amp_lessons.cli import typed
from amp_lessons.course import interview
from amp_lessons.course.interview import Question
from amp_lessons.course.interview.exporting import MissingExtraError, as_anki, as_csv

_TOLD_EVERY_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``amp-lessons interview export``."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--anki", type=typed.file_to_write, metavar="FILE", help="an Anki package: give it a name in .apkg"
    )
    what.add_argument(
        "--csv", type=typed.file_or_terminal, metavar="FILE", help="a table; - writes it to the terminal"
    )
    parser.add_argument("--topic", action="append", choices=interview.TOPICS, help="only these topics")


def run(args: argparse.Namespace) -> int:
    """Write the questions; 1 with a sentence where what that needs is missing."""
    chosen = [each for each in interview.QUESTIONS if each.topic in (args.topic or interview.TOPICS)]
    path = args.csv or args.anki
    typed.try_writing(path)
    print(f"{len(chosen)} answers; the first time each of their proofs runs", file=sys.stderr, flush=True)
    proved = with_bar(_counted(chosen), "answers", len(chosen))
    try:
        typed.write(path, as_csv(proved) if args.csv else as_anki(proved))
    except MissingExtraError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _counted(questions: list[Question]) -> Iterator[Question]:
    """Yield questions, and say now and then how far it has come where no bar does: in a pipe, in a log."""
    told_at = time.monotonic()
    for number, each in enumerate(questions):
        if not sys.stderr.isatty() and time.monotonic() - told_at >= _TOLD_EVERY_S:
            print(f"{number} of {len(questions)} answers", file=sys.stderr, flush=True)
            told_at = time.monotonic()
        yield each
