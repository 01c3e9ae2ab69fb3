"""``python -m classroom.assignments nbgrader COURSE 03``: an assignment of a lesson; ``otter`` likewise."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from classroom.assignments import assignment

_MAKERS = {"nbgrader": assignment.for_nbgrader, "otter": assignment.for_otter}


def main() -> int:
    """Make it, and say where it lies."""
    parser = argparse.ArgumentParser(prog="python -m classroom.assignments", description=__doc__)
    parser.add_argument("grader", choices=list(_MAKERS))
    parser.add_argument("folder", type=Path, help="nbgrader's course, or where otter's files go")
    parser.add_argument("lesson", help="the number of a lesson: 03")
    args = parser.parse_args()
    try:
        print(f"written: {_MAKERS[args.grader](args.folder, args.lesson)}")
    except (ValueError, OSError) as error:
        print(f"classroom.assignments: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
