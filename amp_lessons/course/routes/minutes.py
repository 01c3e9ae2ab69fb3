"""How many minutes each section of a lesson takes, by one rule for all lessons: computed, not measured.

An exercise takes what its card says, a mock interview or a code round what it is set to, a round of system
design 25 minutes. The rest is what a reader needs: 180 words a minute, 40 seconds for 300
characters of code, and a minute for each question and each view. Readers in trials needed a fifth more than
that, so it is multiplied by 1.2.

``python -m amp_lessons.course.routes.minutes 03`` prints the sections of a lesson with their minutes.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from amp_lessons.course.lessons import shipped, tasks
from amp_lessons.course.lessons.shipped import Cell, heading_of, source

OPENING = "Opening"  # what stands above the first heading

_A_READERS = 1.2
_TIMED = re.compile(r"views\.(?:MockInterview|CodingRound)\(.*minutes=(\d+)")
DESIGN_MINUTES = 25  # of each round: the room of interviews stands above this one, and its tests hold it
_UNTIMED = ("-stub", "-card", "-check", "install", "lesson-end")  # counted with the exercise, or folded away
# A view takes a minute, or a minute for each question that is stored with it; these take longer.
_VIEWS = {"FlashCards": 8}  # four cards, each said aloud, turned and graded in two minutes


@dataclass(frozen=True)
class Section:
    """What stands from one heading to the next, and its minutes; ``level`` is 2 for ``##``, 3 for ``###``.

    ``id`` is that of its heading's cell, ``code`` that of its cells.
    """

    id: str
    heading: str
    level: int
    deeper: bool
    minutes: int
    code: str = field(default="", repr=False)


def sections(number: str) -> tuple[Section, ...]:
    """Return the sections of a lesson by its number; their minutes add up. Raises as ``shipped.head_of``."""
    return sections_of(shipped.numbered(shipped.originals(), number))


@functools.cache
def sections_of(lesson: Path) -> tuple[Section, ...]:
    """Return the sections of a notebook, with whole minutes that add up in its core and below it."""
    core, below = shipped.parted(shipped.cells_of(lesson))
    deeper = [cell for section in below for cell in section]
    return (*_rounded(_by_heading(core), False), *_rounded(_by_heading(deeper), True))


def with_subsections(number: str, id: str) -> list[Section]:
    """Return the section of a lesson by the id of its heading's cell, and what follows at a deeper level.

    Raises ValueError where the lesson has no such section.
    """
    ids = {cell["id"] for cell in shipped.section(number, id)}
    return [each for each in sections(number) if each.id in ids]


def core(number: str) -> int:
    """Return the minutes of a lesson's core."""
    return sum(each.minutes for each in sections(number) if not each.deeper)


def deeper(number: str) -> dict[str, int]:
    """Return the minutes of each deeper section by its heading, what stands below ``###`` in it included."""
    found: dict[str, int] = {}
    for each in sections(number):
        if each.deeper:
            heading = each.heading if each.level == 2 else [*found][-1]
            found[heading] = found.get(heading, 0) + each.minutes
    return found


def _by_heading(cells: list[Cell]) -> list[list[Cell]]:
    """Part cells at their headings; what stands above the first is a part, too."""
    parts: list[list[Cell]] = []
    for cell in cells:
        if heading_of(cell) or not parts:
            parts.append([])
        parts[-1].append(cell)
    return parts


def _rounded(parts: list[list[Cell]], deeper: bool) -> Iterator[Section]:
    """Round sums from the beginning, so that the sections' whole minutes add up."""
    exact, so_far = 0.0, 0
    for cells in parts:
        signs, heading = heading_of(cells[0]) or ("##", OPENING)
        exact += sum(map(_given, cells)) + _A_READERS * sum(map(_weight, cells))
        whole, so_far = round(exact) - so_far, round(exact)
        yield Section(cells[0]["id"], heading, len(signs), deeper, whole, shipped.code_of(cells))


def _given(cell: Cell) -> int:
    """Return the minutes that an exercise's card, or a mock interview, a code or a design round states."""
    from amp_lessons.course.exercises import shelf  # loads PyTorch, which sections without minutes need not

    text = source(cell)
    timed = sum(map(int, _TIMED.findall(text))) + DESIGN_MINUTES * text.count("views.DesignRound(")
    return timed + sum(shelf.find(id).minutes for id in tasks.exercises_in(text))


def _weight(cell: Cell) -> float:
    """Return the minutes that reading a cell, running it and answering its questions take."""
    text = source(cell)
    if cell["cell_type"] == "markdown":
        return word_count(text) / 180
    if cell["id"].endswith(_UNTIMED):
        return 0.0
    characters = sum(len(line.strip()) for line in text.splitlines())
    longest = max((_VIEWS.get(name, 1) for name in re.findall(r"views\.(\w+)", text)), default=0)
    return characters * 40 / 300 / 60 + max(_questions_stored(cell), longest)


def word_count(markdown: str) -> int:
    """Count the words one reads as prose: no code blocks, no tables, no addresses of links."""
    prose = re.sub(r"```[\s\S]*?```|^ *\|.*$|\]\([^)]*\)", " ", markdown, flags=re.MULTILINE)
    return sum(any(character.isalnum() for character in word) for word in prose.split())


def _questions_stored(cell: Cell) -> int:
    texts = (output.get("data", {}).get("text/markdown", "") for output in cell["outputs"])
    return sum(shipped.joined(text).count("<details>") for text in texts)


def main(numbers: list[str]) -> None:
    """Print the minutes of the lessons with these numbers, section by section."""
    for number in numbers:
        for each in sections(number):
            print(f"{each.minutes:5} {'    ' * (each.level - 2)}{each.heading}")
        more = deeper(number)
        print(f"{core(number):5} minutes for the core; {sum(more.values())} more: {more}")


if __name__ == "__main__":
    main(sys.argv[1:])
