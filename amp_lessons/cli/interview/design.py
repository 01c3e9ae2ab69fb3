"""``amp-lessons interview design``: a round of system design, whose constraints come in stages."""

from __future__ import annotations

import argparse
import random

from amp_lessons.cli.interview.leading import add_report_argument, lead
from amp_lessons.cli.interview.terminal import HOW_TO_LEAVE, say
from amp_lessons.course import interview
from amp_lessons.course.interview import DesignRound

_HOW_IT_GOES = (
    "Design aloud, or on paper; each stage brings a constraint. Then you see what a good answer covers, "
    "and tick what you said. The model answers come after the last stage. u takes back what you ticked last."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``amp-lessons interview design``."""
    known = ", ".join(f"{each.id} ({each.title[0].lower()}{each.title[1:]})" for each in interview.DESIGNS)
    parser.add_argument(
        "design",
        nargs="?",
        metavar="DESIGN",
        choices=[each.id for each in interview.DESIGNS],
        help=f"what to design: {known} (default: one of them, drawn)",
    )
    add_report_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Lead the round."""
    chosen = args.design or random.choice(interview.DESIGNS).id
    round = next(each for each in interview.DESIGNS if each.id == chosen)
    say(f"System design: {round.title}, {len(round.stages)} stages, {round.minutes} minutes. {_HOW_IT_GOES}")
    say(HOW_TO_LEAVE)
    return lead(lambda: DesignRound(chosen), args.html)
