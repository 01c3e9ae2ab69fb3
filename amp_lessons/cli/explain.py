"""``amp-lessons explain``: what an error of PyTorch's, or the code of a finding, means to mixed precision."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import amp_lessons
from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.audit.rules import ROWS, Row
from amp_lessons.cli.typed import TERMINAL, refuse

_CODE = re.compile(r"[a-z0-9]+(_[a-z0-9]+)+")
_UNKNOWN = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what is explained."""
    parser.add_argument(
        "said",
        nargs="+",
        metavar="TEXT",
        help="the code of a finding, such as clip_before_unscale, or what PyTorch has said, quoted; "
        f"{TERMINAL} reads an error, with its whole traceback, from standard input",
    )


def run(args: argparse.Namespace) -> int:
    """Print what the text means; 0 where that is known, 1 where it is not."""
    text = sys.stdin.read() if args.said == [TERMINAL] else " ".join(args.said)
    if _CODE.fullmatch(text.strip()):
        return _explain_code(text.strip())
    from amp_lessons.audit.explaining import explain  # it imports PyTorch, which a code does not need

    explanation = explain(text)
    print(explanation)
    return 0 if explanation.known else _UNKNOWN


def _explain_code(code: str) -> int:
    exercises = Path(amp_lessons.__path__[0]) / "course" / "exercises"
    # by their text: without extras no check can be loaded
    checks = (each.read_text("utf-8") for each in exercises.rglob("*.py"))
    of_check = code not in ROWS and not (exercises / code).is_dir()
    if of_check and any(f'"{code}"' in check for check in checks):
        print(f"{code}: a code of an exercise's check; its report says what was seen, and the cure")
        return 0
    if code not in ROWS:
        return refuse(f"there is no finding {code!r}; {did_you_mean(code, ROWS)}", _UNKNOWN)
    row = ROWS[code]
    says, cure = row.says
    print(f"{code}: {row.means}\n  {_who_sees(row)}" + (f"\n  says: {says}" if says else ""))
    print(f"  cure: {cure or 'it depends on what was seen'}\n  lesson: {row.lesson} explains it")
    return 0


def _who_sees(row: Row) -> str:
    if row.seen_by == "check":
        return f"the checks of exercises find it; an audit does not: {row.unseen}"
    by_audit = row.seen_by == "audit"
    finders = "an audit finds" if by_audit else "an audit and the checks of exercises find"
    return f"{finders} it, and print the line"
