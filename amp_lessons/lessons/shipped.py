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


def numbered(folder: Path, number: str) -> Path:
    """Return the lesson of a folder by its number, ``"03"`` or ``"3"``; ValueError names those there are."""
    found = {path.name.split("_")[0]: path for path in lessons(folder)}
    if number.strip().zfill(2) not in found:
        raise ValueError(f"there is no lesson {number!r}; choose one of {', '.join(found)}")
    return found[number.strip().zfill(2)]
