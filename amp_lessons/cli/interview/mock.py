"""``amp-lessons interview mock``: one question at a time, against the clock, and a report at the end."""

from __future__ import annotations

import argparse
import time

from amp_lessons.cli import typed
from amp_lessons.cli.interview.leading import HOW_IT_GOES, add_report_argument, lead
from amp_lessons.cli.interview.terminal import HOW_TO_LEAVE, say
from amp_lessons.course import interview
from amp_lessons.course.interview import Mock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``amp-lessons interview mock``."""
    parser.add_argument("--level", choices=interview.LEVELS, default="senior", help="(default: senior)")
    parser.add_argument("--topic", action="append", choices=interview.TOPICS, help="only these topics")
    parser.add_argument("--minutes", type=typed.whole(5), default=45, help="how long it takes (default: 45)")
    parser.add_argument(
        "--seed", type=typed.whole(None), help="draw the same interview again (default: another each time)"
    )
    add_report_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Lead the interview."""
    seed = int(time.time()) if args.seed is None else args.seed
    topics = tuple(args.topic or ())
    on = f" on {', '.join(topics).replace('_', ' ')}" if topics else ""
    say(f"Mock interview{on}, level {args.level}, {args.minutes} minutes, seed {seed}. {HOW_IT_GOES}")
    say(HOW_TO_LEAVE)
    return lead(lambda: Mock(args.level, args.minutes, seed, topics=topics), args.html)
