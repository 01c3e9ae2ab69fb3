"""Where the questions about symptoms end; ``causes.yaml`` beside this file has the causes and their cells."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from amp_lessons._base.entries import read_entries


@dataclass(frozen=True)
class End:
    """One end: what is wrong, what to do about it, the lesson that explains it, and a cell to run.

    ``section`` is the id of the heading's cell in that lesson, below which it does.
    """

    name: str
    cause: str
    cure: str
    lesson: str
    code: str
    section: str = ""

    def __str__(self) -> str:
        """Return cause and cure in lines of 100 characters, and the cell."""
        said = (textwrap.fill(each, 100) for each in (self.cause, f"Cure: {self.cure}"))
        return "\n".join((*said, "", self.code))


ENDS = {end.name: end for end in read_entries("amp_lessons.course.clinic", ["causes.yaml"], End)}
