"""``python -m classroom.slides``: make a deck of each lesson, or of those named."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from classroom.slides.deck import write_deck

ROOT = Path(__file__).parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    """Write the decks and say where; 1 with a sentence for a lesson that is none."""
    parser = argparse.ArgumentParser(prog="python -m classroom.slides", description=main.__doc__)
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help="its number, such as 03 (default: all)")
    parser.add_argument(
        "--out", type=Path, default=Path("slides"), metavar="FOLDER", help="(default: slides)"
    )
    args = parser.parse_args(argv)
    notebooks = {path.name[:2]: path for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))}
    unknown = set(args.lessons) - set(notebooks)
    if unknown:
        print(
            f"no such lesson: {', '.join(sorted(unknown))}; there are {', '.join(notebooks)}", file=sys.stderr
        )
        return 1
    args.out.mkdir(parents=True, exist_ok=True)
    for number in args.lessons or notebooks:
        print(write_deck(notebooks[number], args.out))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
