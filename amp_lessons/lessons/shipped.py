"""Where the lessons lie that the course comes with: in an installed package, or in the checkout beside it."""

from __future__ import annotations

from pathlib import Path

FIRST = "00_start_here.ipynb"
INSTALLED = Path(__file__).parent / "notebooks"  # a wheel has it; setup.py fills it
CHECKED_OUT = Path(__file__).parents[2] / "notebooks"


def originals() -> Path:
    """Return the folder of the lessons as they came. Raises FileNotFoundError where they did not come."""
    for folder in (INSTALLED, CHECKED_OUT):
        if (folder / FIRST).is_file():
            return folder
    raise FileNotFoundError(
        f"the lessons are neither in {INSTALLED} nor in {CHECKED_OUT}; install the course again"
    )


def checkout_above(start: Path) -> Path | None:
    """Return the checkout of the course that ``start`` lies in, if it lies in one."""
    return next(
        (folder for folder in (start, *start.parents) if (folder / "notebooks" / FIRST).is_file()), None
    )


def lessons(folder: Path) -> list[Path]:
    """List the lessons in a folder of originals, in their order."""
    return sorted(folder.glob("[0-9][0-9]_*.ipynb"))
