"""Questions with their answers, to read: ``amp-lessons interview sheet``, ``export`` and ``prove``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from amp_lessons._base.text.bars import with_bar
from amp_lessons.cli import typed
from amp_lessons.cli.interview.terminal import say
from amp_lessons.course import interview
from amp_lessons.course.interview import Question
from amp_lessons.course.interview.exporting import MissingExtraError, as_anki, as_csv

_TOLD_EVERY_S = 10.0


def add_sheet(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``amp-lessons interview sheet``."""
    typed.add_file(parser, "--html", "write it as a page that prints on A4")
    typed.add_file(parser, "--pdf", "write it as a PDF of one page")


def sheet(args: argparse.Namespace) -> int:
    """Write the page with what to know by heart where it was asked for, else print it."""
    for path in filter(None, (args.html, args.pdf)):
        typed.try_writing(path)
    if not (args.html or args.pdf):
        print(interview.sheet())
        return 0
    from amp_lessons.course.views.pages.sheet import sheet_page, sheet_pdf

    if args.html:
        typed.write(args.html, sheet_page(interview.sheet()))
    if args.pdf:
        typed.write(args.pdf, sheet_pdf(interview.sheet()))
    return 0


def add_export(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``amp-lessons interview export``."""
    what = parser.add_mutually_exclusive_group(required=True)
    typed.add_file(what, "--anki", "an Anki package: give it a name in .apkg")
    what.add_argument(
        "--csv", type=typed.file_or_terminal, metavar="FILE", help="a table; - writes it to the terminal"
    )
    parser.add_argument("--topic", action="append", choices=interview.TOPICS, help="only these topics")


def export(args: argparse.Namespace) -> int:
    """Write the questions; 1 with a sentence where what that needs is missing."""
    chosen = [each for each in interview.QUESTIONS if each.topic in (args.topic or interview.TOPICS)]
    path = args.csv or args.anki
    typed.try_writing(path)
    print(f"{len(chosen)} answers; the first time each of their proofs runs", file=sys.stderr, flush=True)
    proved = with_bar(_counted(chosen), "answers", len(chosen))
    try:
        typed.write(path, as_csv(proved) if args.csv else as_anki(proved))
    except MissingExtraError as error:
        return typed.refuse(error)
    return 0


def _counted(questions: list[Question]) -> Iterator[Question]:
    """Yield questions, and say now and then how far it has come where no bar does: in a pipe, in a log."""
    told_at = time.monotonic()
    for number, each in enumerate(questions):
        if not sys.stderr.isatty() and time.monotonic() - told_at >= _TOLD_EVERY_S:
            print(f"{number} of {len(questions)} answers", file=sys.stderr, flush=True)
            told_at = time.monotonic()
        yield each


def add_prove(parser: argparse.ArgumentParser) -> None:
    """Declare the argument of ``amp-lessons interview prove``."""
    parser.add_argument("question", metavar="QUESTION", help="its id, such as loss_scaling.why")


def prove(args: argparse.Namespace) -> int:
    """Print question, answer, the cell behind it and its output; 1 if the proof does not hold here."""
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
