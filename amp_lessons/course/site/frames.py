"""Frames of the views of a lesson: which cells make them, and where they are kept."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from amp_lessons.course.lessons import shipped
from amp_lessons.course.lessons.shipped import Cell
from amp_lessons.course.site.made import made
from amp_lessons.course.site.making import LIVE

# What asks something of a learner has no frames, and a check would take its time: such cells are not run.
_ASKING = (
    "Quiz|CurveQuiz|ExerciseCard|Patient|check|LessonEnd|Map|SymptomTree|DrillView|FlashCards|MockInterview|"
    "CodingRound|DesignRound"
)
_NOT_RUN = re.compile(rf"views\.({_ASKING})\(")
_VIEW = re.compile(rf"\bviews\.(?!{_ASKING})[A-Z]\w+\(")


def put_frames(number: str, kept: Path, out: Path, say: Callable[[str], None]) -> dict[str, str]:
    """Put the scripts of a lesson's views into ``out``: made anew, or from ``kept``.

    Return for the cell of each view that is live what of it stands still, in a sentence or "".
    Raises RuntimeError where the lesson cannot be run.
    """
    cells = cells_to_run(number)
    if not cells:
        return {}
    asked = "\n".join(f"{each['id']}\n{shipped.source(each)}" for each in cells)
    folder = made(number, asked, kept, say)
    for script in folder.glob("*.js"):
        shutil.copy(script, out)
    live: dict[str, str] = json.loads((folder / LIVE).read_text("utf-8"))
    return live


def cells_to_run(number: str) -> list[Cell]:
    """Return the cells that a lesson's views need: all code before the last view, without questions."""
    cells = shipped.cells_of(shipped.numbered(shipped.originals(), number))
    code = [each for each in cells if each["cell_type"] == "code"]
    code = [each for each in code if not _NOT_RUN.match(shipped.source(each))]
    views = [place for place, each in enumerate(code) if _VIEW.search(shipped.source(each))]
    return code[: views[-1] + 1] if views else []
