"""``amp-lessons interview export``: the questions for Anki, or as a table."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from amp_lessons import interview
from amp_lessons.commands.interview.terminal import say
from amp_lessons.interview.exporting import MissingExtraError, as_csv, write_anki


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``amp-lessons interview export``."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--anki", type=Path, metavar="FILE", help="an Anki package: give it a name in .apkg")
    what.add_argument("--csv", metavar="FILE", help="a table; - writes it to the terminal")
    parser.add_argument("--topic", action="append", choices=interview.TOPICS, help="only these topics")


def run(args: argparse.Namespace) -> int:
    """Write the questions; 1 with a sentence where what that needs is missing."""
    chosen = [each for each in interview.QUESTIONS if each.topic in (args.topic or interview.TOPICS)]
    print(f"running {len(chosen)} proofs; all of them take a minute or two", file=sys.stderr, flush=True)
    if args.csv == "-":
        print(as_csv(chosen), end="")
        return 0
    try:
        _write(args, chosen)
    except MissingExtraError as error:
        print(error, file=sys.stderr)
        return 1
    say(f"Written to {args.anki or args.csv}: {len(chosen)} cards.")
    return 0


def _write(args: argparse.Namespace, chosen: list[interview.Question]) -> None:
    if args.anki:
        write_anki(args.anki, chosen)
    else:
        Path(args.csv).write_text(as_csv(chosen), "utf-8")
